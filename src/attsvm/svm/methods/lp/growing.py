"""Large ℓp Att-SVMs: the interior point on a growing set of rows, every other row watched through A and A*."""

import numpy as np
from jaxtyping import Float

from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.row_products import factored_selection
from attsvm.svm.methods.candidate import Settings
from attsvm.svm.methods.lp.interior_point import interior_point
from attsvm.svm.methods.lp.point import LpPoint

ROUGH = 1e-4
"""The relative gap at which it pays to look for missing rows: most rounds end there."""

MAX_ROUNDS = 30

MAX_STEPS = 60
"""Of one round."""


def growing_rows(
    constraints: Constraints,
    p: float,
    settings: Settings,
    weights: Float[np.ndarray, "1 D"],
    multipliers: TokenValues,
    target: float,
) -> tuple[LpPoint, TokenValues, bool]:
    """Least ‖w‖_p of one problem, whose rows are never written out: memory grows with keys and queries.

    Few rows hold with equality at the optimum. The set begins with those of the smallest margins at the start, and
    takes in the rows that the optimum over it violates, until there is none; the optimum over such a set is that over
    all rows, and its multipliers, 0 elsewhere, prove it.

    Parameters
    ----------
    constraints : Constraints
        With a leading axis of 1.
    p : float
        1 ≤ p ≤ ∞.
    settings : Settings
    weights : ndarray, shape (1, D)
        Feasible: the Frobenius solution.
    multipliers : ndarray, shape (1, n, Q, T)
    target : float
        Relative gap to stop at.

    Returns
    -------
    LpPoint, the multipliers of the original rows, and whether the user stopped the search.
    """
    shape = constraints.inequality.shape[1:]
    norms = constraints.norms.reshape(-1)
    rows = np.flatnonzero(norms)
    right = constraints.right.reshape(-1)[rows] / norms[rows]
    fixed = np.zeros(len(rows), bool)
    if constraints.equality is not None:
        fixed = constraints.equality.reshape(-1)[rows]

    def slack(flat: Float[np.ndarray, "1 D"]) -> Float[np.ndarray, " m"]:
        """Of the unit rows; equalities are always in the set and never missing."""
        image = constraints.apply(flat.reshape(1, *constraints.weights_shape))
        return np.where(fixed, np.inf, image.reshape(-1)[rows] / norms[rows] - right)

    likely = multipliers.reshape(-1)[rows] > 0
    wanted = min(len(rows), 2 * int(likely.sum()) + 50)
    chosen = fixed | likely
    chosen[np.argsort(slack(weights))[:wanted]] = True

    aim, steps = max(ROUGH, target), 0
    stop = False

    def callback(step: int, gap: float) -> bool:
        nonlocal stop
        stop = settings.report is not None and settings.report(steps + step, gap)
        return stop

    for _ in range(MAX_ROUNDS):
        limit = MAX_STEPS if settings.max_steps is None else settings.max_steps - steps
        selection = factored_selection(constraints, rows[chosen])
        start = selection.gather(multipliers)
        point = interior_point(
            selection.products, selection.right, selection.equality, p, weights, start, aim, limit, callback
        )
        steps += int(point.steps[0])
        short = slack(point.weights)
        missing = ~chosen & (short < -max(aim, 1e-12) * np.max(right))
        if stop or (settings.max_steps is not None and steps >= settings.max_steps):
            break
        if not missing.any():
            if aim <= target:
                break
            aim = target
            continue
        # the worst ones first, at most as many as there are: one missing row often stands for its neighbours
        worst = np.argsort(np.where(missing, short, np.inf))[: min(int(missing.sum()), int(chosen.sum()))]
        chosen[worst] = True
    complete = point.gap if not missing.any() else np.array([np.inf])
    found = LpPoint(point.weights, point.multipliers, complete, np.array([steps]))
    return found, selection.spread(point.multipliers, shape), stop
