"""Least Frobenius norm (ℓ2 for a prompt): which method, and the one for small problems, on their rows written out."""

import math
from dataclasses import replace

import numpy as np
from scipy.linalg import qr, solve_triangular

from attsvm.norms import Norm
from attsvm.svm.candidate import Candidate, Settings
from attsvm.svm.certificate import certify, unattainable
from attsvm.svm.constraints import Constraints, Rows
from attsvm.svm.frobenius_large import METHOD as LARGE
from attsvm.svm.frobenius_large import solve_large
from attsvm.svm.least_distance import PADDING, SHORTFALL, LeastDistance, least_distance, least_norm
from attsvm.svm.together import solve_together

FROBENIUS = Norm("lp", 2.0)

# Below this, relative to the largest, a pivot of the equalities is rounding; so is what they leave of a row.
DEPENDENT = 1e-13


METHODS = ("least-distance", LARGE)

SMALL_ROWS = 100_000
"""Numbers in the rows of one problem up to which they are written out: above, products with keys and queries win."""

DENSE_ROWS = 4_000_000
"""Numbers up to which rows are written out where the other method did not reach the last digits."""

LAST_DIGITS = 1e-10, 1e-15
"""A gap, and one relative to the value, that call for no other method."""


def solve_frobenius(constraints: Constraints, settings: Settings, method: str | None = None) -> Candidate:
    """Least-distance programming on the rows of small problems, gradients and conjugate gradients on large ones.

    Parameters
    ----------
    constraints : Constraints
    settings : Settings
        Least-distance programming is direct and uses none of it.
    method : {"least-distance", "projected-gradient"}, optional
        None chooses by size. Many small problems are begun together, and most of them end there.

    Returns
    -------
    Candidate
        Weights polished to the last digits that float64 allows, or Farkas multipliers.
    """
    if method == LARGE or (method is None and _row_numbers(constraints) > SMALL_ROWS):
        return _each_large(constraints, settings, forced=method is not None)
    why = "as asked" if method else "small: the rows are written out"
    if not constraints.lead:
        return _solve_one(constraints, why)
    lead, flat = constraints.lead, constraints.with_one_axis()
    found = solve_together(flat)  # may leave any of them undone
    ray = np.zeros(len(found.done), bool)
    for k in np.flatnonzero(~found.done):
        one = _solve_one(flat[k], why)
        found.weights[k], found.multipliers[k], ray[k], found.steps[k] = one[:4]
    return Candidate(
        weights=found.weights.reshape(*lead, *constraints.weights_shape),
        multipliers=found.multipliers.reshape(constraints.right.shape),
        ray=ray.reshape(lead),
        steps=found.steps.reshape(lead),
        method="least-distance",
        why=f"{why}, their active rows found together",
    )


def _row_numbers(constraints: Constraints) -> int:
    """Numbers in the rows of the largest problem."""
    D = math.prod(constraints.weights_shape)
    if math.prod(constraints.inequality.shape[-3:]) * D <= SMALL_ROWS:
        return 0  # without a look at the masks
    return int(np.count_nonzero(constraints.rows_mask, axis=(-3, -2, -1)).max()) * D


def _each_large(constraints: Constraints, settings: Settings, forced: bool) -> Candidate:
    """One large problem, or one after the other."""
    if not constraints.lead:
        return _one_large(constraints, settings, forced)
    solved = []
    for index in np.ndindex(constraints.lead):
        own = [None if warm is None else warm[index] for warm in (settings.warm_start, settings.warm_multipliers)]
        settings_of_one = replace(settings, warm_start=own[0], warm_multipliers=own[1])
        solved.append(_one_large(constraints[index], settings_of_one, forced))
    weights, multipliers, ray, steps = (
        np.stack([np.asarray(one[k]) for one in solved]).reshape(*constraints.lead, *np.shape(solved[0][k]))
        for k in range(4)
    )
    return Candidate(weights, multipliers, ray, steps, solved[0].method, solved[0].why)


def _one_large(constraints: Constraints, settings: Settings, forced: bool) -> Candidate:
    why = "as asked" if forced else "large: by products with keys and queries, the rows are never formed"
    candidate = solve_large(constraints, settings, why)
    settled = forced or settings.max_steps or settings.callback or candidate.ray or unattainable(constraints).any()
    if settled or _row_numbers(constraints) > DENSE_ROWS:
        return candidate
    done = certify(constraints, FROBENIUS, candidate.weights, candidate.multipliers)
    if done.gap <= max(LAST_DIGITS[0], LAST_DIGITS[1] * float(done.value)) and done.violation <= LAST_DIGITS[0]:
        return candidate
    return _solve_one(constraints, "the products lose too many digits: the rows are written out")


def _solve_one(constraints: Constraints, why: str) -> Candidate:
    rows = constraints.rows()
    found = _solve_rows(rows)
    return Candidate(
        weights=found.point.reshape(constraints.weights_shape),
        multipliers=constraints.spread(found.multipliers, rows.position),
        ray=np.asarray(found.is_ray),
        steps=np.asarray(found.rounds),
        method="least-distance",
        why=why,
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
