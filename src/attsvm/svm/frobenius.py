"""Least Frobenius norm (ℓ2 for a prompt) of small problems: their rows are written out."""

import numpy as np
from scipy.linalg import qr, solve_triangular

from attsvm.svm.candidate import Candidate, Settings
from attsvm.svm.constraints import Constraints, Rows
from attsvm.svm.least_distance import PADDING, SHORTFALL, LeastDistance, least_distance, least_norm
from attsvm.svm.together import solve_together

# Below this, relative to the largest, a pivot of the equalities is rounding; so is what they leave of a row.
DEPENDENT = 1e-13


def solve_frobenius(constraints: Constraints, settings: Settings) -> Candidate:
    """Least-distance programming on the rows; many problems are begun together, and most of them end there.

    Parameters
    ----------
    constraints : Constraints
    settings : Settings
        Not used: the method is direct.

    Returns
    -------
    Candidate
        Weights polished to the last digits that float64 allows, or Farkas multipliers.
    """
    if not constraints.lead:
        return _solve_one(constraints)
    lead, flat = constraints.lead, constraints.with_one_axis()
    found = solve_together(flat)  # may leave any of them undone
    ray = np.zeros(len(found.done), bool)
    for k in np.flatnonzero(~found.done):
        one = _solve_one(flat[k])
        found.weights[k], found.multipliers[k], ray[k], found.steps[k] = one[:4]
    return Candidate(
        weights=found.weights.reshape(*lead, *constraints.weights_shape),
        multipliers=found.multipliers.reshape(constraints.right.shape),
        ray=ray.reshape(lead),
        steps=found.steps.reshape(lead),
        method="least-distance",
        why="many small problems: their active rows are found together",
    )


def _solve_one(constraints: Constraints) -> Candidate:
    rows = constraints.rows()
    found = _solve_rows(rows)
    return Candidate(
        weights=found.point.reshape(constraints.weights_shape),
        multipliers=constraints.spread(found.multipliers, rows.position),
        ray=np.asarray(found.is_ray),
        steps=np.asarray(found.rounds),
        method="least-distance",
        why="small: the rows fit in memory",
    )


def _solve_rows(rows: Rows) -> LeastDistance:
    if not rows.equality.any():
        return least_distance(rows.matrix, rows.right)
    # on the null space of the equalities only inequalities are left; their rows' parts in its complement
    # come back as the free multipliers
    equalities, inequalities = rows.matrix[rows.equality], rows.matrix[~rows.equality]
    basis, triangle, order = qr(equalities.T, mode="economic", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    rank = int((pivots > DEPENDENT * pivots[0]).sum())
    basis = basis[:, :rank]
    left = inequalities - (inequalities @ basis) @ basis.T
    left -= (left @ basis) @ basis.T
    size = np.sqrt(np.vecdot(left, left))
    none_left = size <= DEPENDENT
    right = rows.right[~rows.equality]
    multipliers = np.zeros(len(size))
    unattainable = none_left & (right > 0)
    if unattainable.any():
        # any of these rows is a combination of the equalities: the one with the smallest coefficients is the best proof
        coefficients = solve_triangular(triangle[:rank, :rank], basis.T @ inequalities[unattainable].T)
        multipliers[np.flatnonzero(unattainable)[np.argmin(np.vecdot(coefficients.T, coefficients.T))]] = 1.0
        found = LeastDistance(np.zeros(basis.shape[0]), multipliers, True, 0)
    else:
        kept = ~none_left
        found = least_distance(left[kept] / size[kept, None], right[kept] / size[kept])
        multipliers[kept] = found.multipliers / size[kept]
    if not found.is_ray:
        held = np.concatenate([equalities[order[:rank]], inequalities[multipliers > 0]])
        goal = np.concatenate([np.zeros(rank), right[multipliers > 0]])
        found = found._replace(point=_touched_up(inequalities, right, held, goal, found.point))
    free = np.zeros(len(equalities))
    free[order[:rank]] = solve_triangular(triangle[:rank, :rank], -basis.T @ (multipliers @ inequalities))
    both = np.empty(len(rows.equality))
    both[rows.equality], both[~rows.equality] = free, multipliers
    return found._replace(multipliers=both)


def _touched_up(
    inequalities: np.ndarray, right: np.ndarray, held: np.ndarray, goal: np.ndarray, point: np.ndarray
) -> np.ndarray:
    """The point, or that of least norm on the rows that hold with equality, where its margins fall less short.

    What rounding leaves of the equalities in a point moves margins; much, where a right side is small.
    """
    asked = right > 0
    best, shortest = point, np.inf
    for candidate in (point, least_norm(held, goal), least_norm(held, goal + PADDING * np.linalg.norm(point))):
        if candidate is not None and asked.any():
            margins = inequalities[asked] @ candidate / right[asked]
            shortfall = 1 - np.min(margins)
            if shortfall < shortest:
                best, shortest = candidate, shortfall
        if shortest <= SHORTFALL:
            break
    return best
