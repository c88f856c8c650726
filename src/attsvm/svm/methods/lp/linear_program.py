"""The ℓ1 and ℓ∞ Att-SVM as linear programs, with the multipliers that HiGHS returns."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import OptimizeResult, linprog

from attsvm.svm.loop import Point
from attsvm.svm.methods.lp.point import lp_norm, relative_gap


def linear_program(
    matrix: Float[np.ndarray, "m D"],
    right: Float[np.ndarray, " m"],
    equality: Bool[np.ndarray, " m"],
    p: float,
    start: Float[np.ndarray, " D"],
) -> Point:
    """Least ‖w‖_1 or ‖w‖_∞ with matrix·w ≥ right (= where ``equality``).

    For p = 1, w is the difference of two parts ≥ 0 of least sum. For p = ∞ it is w/γ with the largest γ such that
    matrix·w ≥ γ·right for some w in the box −1 ≤ w ≤ 1: the box costs the simplex method no rows.

    ``matrix``: rows of unit norm. ``p``: 1 or ∞. ``start``: feasible weights, not 0: HiGHS's tolerances, 1e-10 here,
    are absolute, and the size of these weights is taken as the unit.

    Returns a vertex; the start, with gap ∞, where HiGHS finds no optimum.
    """
    dim = matrix.shape[1]
    size = lp_norm(start, p)[0]
    scaled = right / size
    if p == 1:
        found = _highs(np.ones(2 * dim), np.hstack([matrix, -matrix]), scaled, equality, (0, None))
    else:
        objective = np.append(np.zeros(dim), -1.0)
        extended = np.hstack([matrix, -scaled[:, None]])
        found = _highs(objective, extended, np.zeros(len(right)), equality, [(-1, 1)] * dim + [(0, None)])
    steps = np.asarray(found.nit)
    if found.status != 0 or (p != 1 and not found.x[dim] > 0):
        return Point(start, np.zeros(len(right)), np.asarray(np.inf), steps)
    weights = found.x[:dim] - found.x[dim:] if p == 1 else found.x[:dim] / found.x[dim]
    multipliers = np.empty(len(right))
    multipliers[~equality] = np.maximum(-found.ineqlin.marginals, 0.0)
    multipliers[equality] = found.eqlin.marginals
    gap = relative_gap(scaled, equality, p, weights, multipliers, matrix @ weights, multipliers @ matrix)
    return Point(weights * size, multipliers, gap, steps)


def _highs(
    objective: np.ndarray, matrix: np.ndarray, right: np.ndarray, equality: np.ndarray, bounds: Any
) -> OptimizeResult:
    return linprog(
        objective,
        A_ub=-matrix[~equality],
        b_ub=-right[~equality],
        A_eq=matrix[equality],
        b_eq=right[equality],
        bounds=bounds,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
