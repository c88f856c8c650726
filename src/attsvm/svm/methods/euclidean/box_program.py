"""Convex quadratic programs in a box: min ½ x'Kx − b'x subject to 0 ≤ x ≤ c."""

from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

MAX_STEPS = 60
TINY = float(np.finfo(float).tiny)
# The largest slope of an entry at its upper bound, relative to the right side, up to which the iteration is precise.
STIFF = 1e8
TO_THE_BOUNDARY = 0.995
# Complementarity (with the largest right side scaled to 1) at which it is clear which entries are at a bound.
CENTRED = 1e-14
POLISH_ROUNDS = 8
# Residual of equations, relative to their right side, above which they count as dependent.
DEPENDENT = 1e-9
ROUNDING = 16 * float(np.finfo(float).eps)
# What is added to the diagonal of a matrix, relative to its largest entry, and how often: each time a hundredfold.
RIDGE, RIDGES = float(np.finfo(float).eps), 6


class BoxPoint(NamedTuple):
    """An approximate optimum, and the steps it took."""

    point: Float[np.ndarray, " m"]
    steps: int


def solve_box(
    matrix: Float[np.ndarray, "m m"],
    right: Float[np.ndarray, " m"],
    upper: Float[np.ndarray, " m"],
    max_steps: int = MAX_STEPS,
) -> BoxPoint:
    """Solve by Mehrotra's predictor and corrector, followed by exact equations for the entries inside the box.

    ``matrix``: K, symmetric and positive semidefinite. ``right``: b. ``upper``: c ≥ 0; an entry with c = 0 is fixed at
    0. ``max_steps``: largest number of steps of the interior point method. There is always a solution, because the
    program is feasible and bounded.

    References: Mehrotra (1992), *On the implementation of a primal-dual interior point method*.
    """
    stiffness = float((upper * np.diagonal(matrix)).max(initial=0.0)) / max(float(np.abs(right).max(initial=0.0)), TINY)
    if STIFF < stiffness < np.inf:
        # rounding hides which entries are at a bound; in a smaller box it does not, and they are mostly the same
        share = STIFF / stiffness
        point, steps = solve_box(matrix, right, upper * share, max_steps)
        at_low, at_high = point <= 0, point >= upper * share
        return BoxPoint(_polished(matrix, right, upper, point / share, at_low, at_high), steps)
    # in units of the box: x = c u, 0 ≤ u ≤ 1; fixed entries are decoupled
    fixed = upper == 0
    size = np.where(fixed, 1.0, upper)
    scaled = np.where(fixed[:, None] | fixed, 0.0, matrix * size[:, None] * size)
    target = np.where(fixed, 0.0, right * size)
    unit = max(float(np.abs(target).max(initial=0.0)), TINY)
    scaled, target = scaled / unit, target / unit
    u = np.full_like(target, 0.5)
    slope = scaled @ u - target
    low, high = np.maximum(1.0, slope), np.maximum(1.0, -slope)
    steps = 0
    while steps < max_steps:
        slope = scaled @ u - target
        measure = float(np.mean(u * low + (1 - u) * high)) / 2 if len(u) else 0.0
        if measure <= CENTRED:
            break
        system = scaled.copy()
        system[np.diag_indices_from(system)] += low / u + high / (1 - u)
        factor = _factor(system)
        change, change_low, change_high = _move(factor, slope, u, low, high, 0.0, 0.0)
        length = _room(u, low, high, change, change_low, change_high)
        after = (u + length * change) * (low + length * change_low)
        after += (1 - u - length * change) * (high + length * change_high)
        centre = measure * (float(after.mean()) / 2 / measure) ** 3
        change, change_low, change_high = _move(
            factor, slope, u, low, high, centre - change * change_low, centre + change * change_high
        )
        length = min(1.0, TO_THE_BOUNDARY * _room(u, low, high, change, change_low, change_high))
        u = np.clip(u + length * change, TINY, 1 - np.finfo(float).eps / 2)
        low, high = low + length * change_low, high + length * change_high
        steps += 1
    # at the optimum one of the two is zero, the other not: near it, one is much the smaller
    point = np.where(fixed, 0.0, u * size)
    return BoxPoint(_polished(matrix, right, upper, point, low > u, high > 1 - u), steps)


def _factor(system: np.ndarray) -> tuple[np.ndarray, bool]:
    """The Cholesky factor of a positive definite matrix, with a ridge if rounding has made it indefinite.

    Raises LinAlgError if no ridge is enough, because an entry is not finite.
    """
    ridge = RIDGE * float(np.abs(np.diagonal(system)).max(initial=0.0))
    for attempt in range(RIDGES):
        try:
            return cast("tuple[np.ndarray, bool]", cho_factor(system, check_finite=False))
        except LinAlgError:
            system[np.diag_indices_from(system)] += ridge * 100**attempt
    raise LinAlgError("the matrix of a step is not positive definite")


def _move(
    factor: tuple[np.ndarray, bool],
    slope: np.ndarray,
    u: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    of_low: np.ndarray | float,
    of_high: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Newton's step to the complementarity u·low = of_low and (1 − u)·high = of_high."""
    change = cho_solve(factor, of_low / u - of_high / (1 - u) - slope, check_finite=False)
    return change, (of_low - low * change) / u - low, (of_high + high * change) / (1 - u) - high


def _room(u: np.ndarray, low: np.ndarray, high: np.ndarray, change: np.ndarray, *of_dual: np.ndarray) -> float:
    """The longest step that keeps everything positive, at most 1/TO_THE_BOUNDARY."""
    longest = 1 / TO_THE_BOUNDARY
    for value, by in ((u, change), (1 - u, -change), (low, of_dual[0]), (high, of_dual[1])):
        falling = by < 0
        longest = min(longest, float((value[falling] / -by[falling]).min(initial=np.inf)))
    return longest


def _polished(
    matrix: np.ndarray,
    right: np.ndarray,
    upper: np.ndarray,
    point: np.ndarray,
    at_low: np.ndarray,
    at_high: np.ndarray,
) -> np.ndarray:
    """The optimum of the face near the point, after exchanging the entries that violate a condition."""
    best, least = point, _excess(matrix, right, upper, point)
    for _ in range(POLISH_ROUNDS):
        inside = np.flatnonzero(~at_low & ~at_high)
        exact = np.where(at_high, upper, 0.0)
        if len(inside):
            rest = right[inside] - matrix[inside] @ exact
            exact[inside] = _equations(matrix[np.ix_(inside, inside)], rest)
        kept = np.clip(exact, 0.0, upper)
        slope = matrix @ kept - right
        below, above = exact < 0, exact > upper
        # where the terms of a slope are large, so is its rounding
        noise = ROUNDING * (np.abs(matrix) @ kept + np.abs(right))
        freed_low, freed_high = at_low & (slope < -noise) & (upper > 0), at_high & (slope > noise)
        if not (below | above | freed_low | freed_high).any():
            return kept
        excess = _excess(matrix, right, upper, kept)
        if excess < least:
            best, least = kept, excess
        at_low, at_high = (at_low & ~freed_low) | below, (at_high & ~freed_high) | above
    return best


def _equations(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution of positive semidefinite equations; the one of least norm if they are dependent."""
    try:
        found = cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
    except LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-14)[0])
    if np.abs(matrix @ found - right).max() > DEPENDENT * np.abs(right).max():
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-14)[0])
    return np.asarray(found)


def _excess(matrix: np.ndarray, right: np.ndarray, upper: np.ndarray, point: np.ndarray) -> float:
    """An upper bound on the objective minus the optimum, as a sum of non-negative terms."""
    slope = matrix @ point - right
    return float(np.sum(np.where(slope > 0, point * slope, (point - upper) * slope)))
