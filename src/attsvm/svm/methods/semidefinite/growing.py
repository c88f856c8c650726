"""Large nuclear and spectral Att-SVMs: the interior point on a growing set of rows, every other row watched."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights
from attsvm.svm.methods.candidate import Settings
from attsvm.svm.methods.semidefinite.interior_point import RIGID

ROUGH = 1e-3
"""The relative gap at which it pays to look for missing rows: most rounds end there."""

MAX_ROUNDS = 30


class Pair(NamedTuple):
    """Weights and multipliers to begin with."""

    weights: Weights
    multipliers: TokenValues


class Solved(NamedTuple):
    """Weights, multipliers, and steps taken."""

    weights: Weights
    multipliers: TokenValues
    steps: Int[np.ndarray, " N"]


def growing_rows(
    constraints: Constraints,
    frobenius: Pair,
    settings: Settings,
    solve: Callable[[Constraints, Settings], Solved],
    stopped: Callable[[], bool],
) -> Solved:
    """One problem on as few rows as determine its optimum: memory grows with their square, not with that of all.

    The set begins with the rows that the Frobenius solution holds, and takes in those that the optimum over it
    violates, until there is none. The optimum over such a set is that over all rows, and its multipliers, 0
    elsewhere, prove it.

    Parameters
    ----------
    constraints : Constraints
        With a leading axis of 1.
    frobenius : Pair
        The solution in the Frobenius norm.
    settings : Settings
    solve : callable
        Solves the problem that some of the rows make, to the tolerance it is given.
    stopped : callable
        Whether the user has said so.
    """
    norms = constraints.norms
    unit = np.where(norms > 0, norms, 1.0)
    watched = constraints.inequality & (norms > 0)

    def slack(weights: Weights, rows: TokenMask) -> tuple[TokenValues, float]:
        """Of the unit rows, for weights scaled to a margin of 1 over ``rows``; and the scaled weights' length."""
        images = constraints.apply(weights)
        margin = images.min(where=rows & constraints.margin_mask, initial=np.inf)
        margin = margin if 0 < margin < np.inf else 1.0
        return (images / margin - constraints.right) / unit, float(np.linalg.norm(weights) / margin)

    likely = watched & (frobenius.multipliers > 0)
    room, _ = slack(frobenius.weights, watched)
    chosen = likely | _smallest(np.where(watched, room, np.inf), int(likely.sum()))
    steps = np.zeros(1, int)
    tol = max(ROUGH, settings.tol)
    for _ in range(MAX_ROUNDS):
        limit = None if settings.max_steps is None else max(1, settings.max_steps - int(steps[0]))
        some = replace(
            constraints, inequality=constraints.inequality & chosen, right=np.where(chosen, constraints.right, 0.0)
        )
        weights, multipliers, more = solve(some, replace(settings, tol=tol, max_steps=limit))
        steps = steps + more
        if stopped() or (settings.max_steps is not None and steps[0] >= settings.max_steps):
            break
        room, length = slack(weights, chosen)
        allowed = np.where(constraints.margin_mask, 0.1 * tol * constraints.right / unit, RIGID * length)
        missing = watched & ~chosen & (room < -allowed)
        if missing.any():
            # the worst ones first, and no more than there are: one missing row often stands for its neighbours
            chosen = chosen | (missing & _smallest(np.where(missing, room, np.inf), int(chosen.sum())))
        elif tol <= settings.tol:
            break
        else:
            tol = settings.tol
        settings = replace(settings, warm_start=weights)
    return Solved(weights, multipliers, steps)


def _smallest(values: Float[np.ndarray, "1 n Q T"], count: int) -> TokenMask:
    mask = np.zeros(values.size, bool)
    mask[np.argsort(values, axis=None)[:count]] = True
    return mask.reshape(values.shape)
