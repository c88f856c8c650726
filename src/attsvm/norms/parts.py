"""Arrays as sums of points of several dual balls: the nearest sum to an array, and the smallest balls that contain it.

Both are found by a fixed-point iteration with proximal maps, which Anderson's extrapolation makes fast.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from attsvm.norms.base import Norm
from attsvm.norms.lp import Lp

EUCLIDEAN = Lp(2.0)

MOST_ROUNDS = 300
"""Rounds of Dykstra's method."""

MOST_STEPS = 1000
"""Steps of the splitting."""

STEPS_PER_LOOK = 10
"""Steps of the splitting from one look at the bounds to the next."""

OVER_RELAXED = 1.6
"""Each step of the splitting is longer by this factor."""

NEGLIGIBLE = 1e-15
"""Changes below this, relative to the array, are rounding errors."""

DEPENDENT = 1e-10
"""Differences of steps whose singular values are below this, relative to the largest, are left out."""


class Parts(NamedTuple):
    """Arrays u_i, one for each norm, and whether the iteration that found them has converged."""

    arrays: list[np.ndarray]
    converged: bool


class Extrapolation:
    """Anderson's extrapolation of a fixed-point iteration, from the last steps.

    ``memory``: number of differences of steps.

    References: Walker and Ni (2011), *Anderson acceleration for fixed-point iterations*.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.forget()

    def forget(self) -> None:
        """Leave out all steps until now."""
        self._states: list[np.ndarray] = []
        self._changes: list[np.ndarray] = []

    def after(self, state: np.ndarray, change: np.ndarray) -> np.ndarray:
        """The next state, after a step from ``state`` to ``state + change``."""
        state, change, shape = state.reshape(-1), change.reshape(-1), state.shape
        self._states = [*self._states[-self.memory :], state]
        self._changes = [*self._changes[-self.memory :], change]
        ahead = state + change
        if len(self._states) > 1:
            by_state, by_change = (np.diff(each, axis=0).T for each in (self._states, self._changes))
            ahead = ahead - (by_state + by_change) @ np.linalg.lstsq(by_change, change, rcond=DEPENDENT)[0]
        return np.asarray(ahead.reshape(shape))


def nearest_parts(
    norms: Sequence[Norm], levels: Sequence[float], x: np.ndarray, most_rounds: int = MOST_ROUNDS
) -> Parts:
    """The u_i with N_i*(u_i) ≤ levels_i whose sum is nearest to x; x − Σ u_i is the proximal point of Σ levels_i N_i.

    The ℓ2 norm is taken last: its proximal map after that of another norm is the one of the sum (Yu 2013), so that one
    round is enough for two norms.

    ``norms``: with ``prox``. ``levels``: at least 0. ``x``: one matrix or one vector.

    References: Boyle and Dykstra (1986), *A method for finding projections onto the intersection of convex sets in
    Hilbert spaces*; Yu (2013), *On Decomposing the Proximal Map*.
    """
    order = sorted(range(len(norms)), key=lambda i: norms[i] == EUCLIDEAN)
    in_order = [(norms[i], levels[i]) for i in order]
    small = NEGLIGIBLE * float(np.linalg.norm(x))
    parts = _one_round(in_order, x, np.zeros((len(norms) - 1, *x.shape)))
    further, extrapolation, converged = parts, Extrapolation(6), len(norms) == 2 and in_order[1][0] == EUCLIDEAN
    for _ in range(0 if converged else most_rounds):
        before = further[1:]  # the first part follows from the others
        found = _one_round(in_order, x, before)
        if _distance(x, found) > _distance(x, parts):  # a plain round never moves away from x
            extrapolation.forget()
            before = parts[1:]
            found = _one_round(in_order, x, before)
        parts, change = found, found[1:] - before
        converged = bool(np.linalg.norm(change) <= small)
        if converged:
            break
        further = np.concatenate([parts[:1], extrapolation.after(before, change)])
    return Parts([parts[order.index(i)] for i in range(len(norms))], converged)


def _distance(x: np.ndarray, parts: np.ndarray) -> float:
    return float(np.linalg.norm(x - parts.sum(axis=0)))


def _one_round(in_order: Sequence[tuple[Norm, float]], x: np.ndarray, others: np.ndarray) -> np.ndarray:
    left = x - others.sum(axis=0)
    found = []
    for i, (norm, level) in enumerate(in_order):
        whole = left + others[i - 1] if i else left
        left = norm.prox(whole, level) if level > 0 else whole
        found.append(whole - left)
    return np.stack(found)


def least_parts(
    proxes: Callable[[np.ndarray, float], np.ndarray],
    number: int,
    x: np.ndarray,
    size: float,
    look: Callable[[np.ndarray, np.ndarray], bool],
) -> None:
    """Find the smallest balls whose points sum to x: minimise N(W) over ⟨x, W⟩ = 1 by Douglas-Rachford splitting.

    ``proxes``: the proximal map of the combined norm on several copies of W, one for each of its norms. ``number``: of
    copies. ``x``: of length 1. ``size``: N(x). ``look``: called with points of the dual balls whose sum tends to a
    multiple of x, and with the copies of W; a true return value ends the iteration.
    """

    def step_from(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        copies = proxes(states, 1 / size)
        mean = (2 * copies - states).mean(axis=0)
        return copies, OVER_RELAXED * (mean + x * (1 - np.vdot(x, mean)) - copies)

    # multipliers have about the size of N(x), and weights that of x
    states = np.stack([(1 + 1 / number) * x] * number)
    copies, change = step_from(states)
    extrapolation = Extrapolation(15)
    for step in range(MOST_STEPS):
        if step % STEPS_PER_LOOK == 0 and look(size * (states - copies), copies):
            break
        further = extrapolation.after(states, change)
        tried = step_from(further)
        if np.linalg.norm(tried[1]) > np.linalg.norm(change):  # a plain step never makes the next one longer
            further = states + change
            tried = step_from(further)
        states, (copies, change) = further, tried
