"""Least Frobenius norm (ℓ2 for a prompt): the choice of the method, and the method for small problems."""

import math
from dataclasses import replace

import numpy as np
from scipy.linalg import qr, solve_triangular

from attsvm.svm.certificate import FROBENIUS, certify, unattainable
from attsvm.svm.constraints.constraints import Constraints, Rows
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius_large import METHOD as LARGE
from attsvm.svm.methods.euclidean.frobenius_large import solve_large
from attsvm.svm.methods.euclidean.least_distance import PADDING, SHORTFALL, LeastDistance, least_distance, least_norm
from attsvm.svm.methods.euclidean.proximal_pivoting import MOST_ROWS, solve_by_pivoting
from attsvm.svm.methods.euclidean.together import solve_together, unsolved

# Pivots of the equalities below this, relative to the largest, count as rounding errors; so does what is left of a row
# after its projection on the equalities.
DEPENDENT = 1e-13


METHODS = ("least-distance", LARGE)

SMALL_ROWS = 100_000
"""Rows with at most this many numbers per problem are stored. Above, products with keys and queries are faster."""

DENSE_ROWS = 4_000_000
"""Rows with at most this many numbers are stored if the other method did not reach the last digits."""

FEW_WEIGHTS = 200
"""With at most this many weights, rows are stored up to ``DENSE_ROWS``: products would be needed in thousands."""

MOST_TOGETHER = 500
"""Many problems are started together if they have at most this many rows each, for rows of any size."""

FIRST_STEPS = 1_000
"""Products that a large problem gets before the active rows are found by pivoting."""

BY_PRODUCTS = "large: by products with keys and queries, the rows are never formed"
BY_PIVOTING = f"large: after {FIRST_STEPS} products with keys and queries, the active rows were found by pivoting"

BY_ROWS = "the products lose too many digits: the rows are written out"

LAST_DIGITS = 1e-10, 1e-15
"""A gap, and a gap relative to the value on unit rows, below which no other method is tried."""


def solve_frobenius(constraints: Constraints, settings: Settings, method: str | None = None) -> Candidate:
    """Solve small problems by least-distance programming on the rows, large ones by gradients and conjugate gradients.

    Least-distance programming is direct and uses none of the ``settings``. ``method``: "least-distance" or
    "projected-gradient"; None chooses by size. Many problems are started together, and most of them are solved in this
    way.

    Returns weights polished to the last digits that float64 allows, or Farkas multipliers.
    """
    rows = _most_rows(constraints)
    large = method == LARGE or (method is None and _is_large(rows, math.prod(constraints.weights_shape)))
    if not constraints.batch_shape:
        return _one(constraints, settings, large, method is not None)
    flat = constraints.with_one_axis()
    found = solve_together(flat) if method != LARGE and rows <= MOST_TOGETHER else unsolved(flat)
    ray = np.zeros(len(found.done), bool)
    used, why = "least-distance", "many problems: their active rows are found together"
    for k in np.flatnonzero(~found.done):
        one = _one(flat[k], settings.of_problem(int(k), constraints.batch_shape), large, method is not None)
        found.weights[k], found.multipliers[k], ray[k], found.steps[k] = one[:4]
        if not found.done.any():
            used, why = one.method, one.why
    candidate = Candidate(found.weights, found.multipliers, ray, found.steps, used, why)
    return candidate.with_axes_of(constraints)


def _is_large(rows: int, weights: int) -> bool:
    """Whether products with keys and queries are faster than writing out the rows, for this number of weights."""
    return rows * weights > (SMALL_ROWS if weights > FEW_WEIGHTS else DENSE_ROWS)


def _most_rows(constraints: Constraints) -> int:
    """Rows of the largest problem, or an upper bound that already shows that all problems are small."""
    bound = math.prod(constraints.inequality.shape[-3:])
    if bound * math.prod(constraints.weights_shape) <= SMALL_ROWS:
        return bound  # without reading the masks
    return constraints.most_rows


def _one(constraints: Constraints, settings: Settings, large: bool, forced: bool) -> Candidate:
    if large:
        return _one_large(constraints, settings, forced)
    return _solve_one(constraints, "requested" if forced else "small: the rows are written out")


def _one_large(constraints: Constraints, settings: Settings, forced: bool) -> Candidate:
    if forced or settings.max_steps or unattainable(constraints).any():
        return solve_large(constraints, settings, "requested" if forced else BY_PRODUCTS)
    stopped, tell = False, settings.report

    def report(step: int, gap: float) -> bool:
        nonlocal stopped
        stopped = tell is not None and tell(step, gap)
        return stopped

    settings = replace(settings, report=report)
    rows = _most_rows(constraints)
    pivots, dense = rows <= MOST_ROWS, rows * math.prod(constraints.weights_shape) <= DENSE_ROWS
    written = None
    candidate = solve_large(constraints, replace(settings, max_steps=FIRST_STEPS) if pivots else settings, BY_PRODUCTS)
    if pivots and not (stopped or candidate.ray) and candidate.steps >= FIRST_STEPS:
        pivoted = solve_by_pivoting(constraints, candidate.multipliers, BY_PIVOTING)
        if pivoted is not None:
            return pivoted._replace(steps=candidate.steps + pivoted.steps)
        if dense:
            written = _solve_one(constraints, BY_ROWS)
            if written.ray or _is_precise(constraints, written):
                return written
        before = candidate.steps
        candidate = solve_large(constraints, replace(settings, warm_multipliers=candidate.multipliers), BY_PRODUCTS)
        candidate = candidate._replace(steps=before + candidate.steps)
    if stopped or candidate.ray or not dense or _is_precise(constraints, candidate):
        return candidate
    return written or _solve_one(constraints, BY_ROWS)


def _is_precise(constraints: Constraints, candidate: Candidate) -> bool:
    """Whether no other method would give more digits."""
    done = certify(constraints, FROBENIUS, candidate.weights, candidate.multipliers)
    # ‖row‖‖W‖ of the rows on average, weighted by their multipliers
    average = np.vdot(done.dual, constraints.norms) / (np.vdot(done.dual, constraints.right) or 1.0)
    unit_value = float(done.value * average)
    return bool(done.gap <= max(LAST_DIGITS[0], LAST_DIGITS[1] * unit_value) and done.violation <= LAST_DIGITS[0])


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
    if not np.count_nonzero(rows.equality):
        return least_distance(rows.matrix, rows.right)
    # on the null space of the equalities only the inequalities remain; the components of their rows outside of it
    # determine the free multipliers
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
    """The point, or the point of least norm on the rows that hold with equality if its margins are closer to 1.

    Rounding errors in the equalities change the margins, and change them much if a right side is small.
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
