"""Problems with many rows: a method solves on a growing set of rows, and the others are checked through A and A*."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.svm.certificate import RIGID
from attsvm.svm.constraints.constraints import TokenMask, TokenValues, Weights
from attsvm.svm.loop import Point
from attsvm.svm.methods.from_frobenius import Unsolved
from attsvm.svm.tolerances import ROUNDED

MOST_ROWS = 1_500
"""With more rows than this, methods that store the square of their number work on a growing set."""

ROUGH = 1e-3
"""The relative gap at which a round looks for missing rows; most rounds end there."""


class Grown(NamedTuple):
    """The optimum over the last set of rows."""

    # ``gap`` is the gap over the set. Multipliers are in the places of the original rows, 0 outside the set.
    point: Point
    complete: bool  # whether no row outside the set is violated


def growing_rows(problem: Unsolved, solve: Callable[[Unsolved], Point], spare: float = 1.0) -> Grown:
    """Solve one problem on a small set of rows, because memory grows with the square of their number.

    The set starts with the rows of smallest slack in the Frobenius norm. The rows that the optimum over the set
    violates are added until there is none. The optimum over this set is then the optimum over all rows, and its
    multipliers, with 0 for all other rows, prove it.

    ``solve``: solves with some of the rows; the settings have the gap, the steps that are left, and the point of the
    round before. ``spare``: rows at the start, as a multiple of those with a positive multiplier.
    """
    constraints, weights, multipliers, settings, watch = problem
    target, max_steps = settings.tol, settings.max_steps
    norms, right = constraints.norms, constraints.right
    unit = np.where(norms > 0, norms, 1.0)
    watched = constraints.inequality & (norms > 0)

    def slack(weights: Weights, rows: TokenMask) -> tuple[TokenValues, float]:
        """Slack of the unit rows for weights scaled to a margin of 1 over ``rows``, and the length of these weights."""
        margin = float(constraints.smallest_margin(weights, rows)[0])
        margin = margin if 0 < margin < np.inf else 1.0
        return (constraints.apply(weights) / margin - right) / unit, float(np.linalg.norm(weights) / margin)

    likely = watched & (multipliers > 0)
    room, _ = slack(weights, watched)
    chosen = likely | _smallest(np.where(watched, room, np.inf), int(spare * likely.sum())) & watched
    tol, steps = max(ROUGH, target), 0
    while True:
        some = replace(constraints, inequality=constraints.inequality & chosen, right=np.where(chosen, right, 0.0))
        limit = None if max_steps is None else max(1, max_steps - steps)
        point = solve(problem._replace(constraints=some).set(tol=tol, max_steps=limit))
        problem = problem.set(warm_start=point.weights, warm_multipliers=point.multipliers)
        steps += int(point.steps[0])
        room, length = slack(point.weights, chosen)
        allowed = np.where(constraints.margin_mask, max(0.1 * tol, ROUNDED) * right / unit, RIGID * length)
        missing = watched & ~chosen & (room < -allowed)
        if watch.stopped or (max_steps is not None and steps >= max_steps):
            break
        if missing.any():
            # the most violated rows first, at most doubling the set: one row often makes its neighbours hold too
            chosen = chosen | (missing & _smallest(np.where(missing, room, np.inf), int(chosen.sum())))
        elif tol <= target:
            break
        else:
            tol = target
    return Grown(point._replace(steps=np.array([steps])), not missing.any())


def _smallest(values: Float[np.ndarray, "1 n Q T"], count: int) -> TokenMask:
    mask = np.zeros(values.size, bool)
    mask[np.argsort(values, axis=None)[:count]] = True
    return mask.reshape(values.shape)
