"""Least Frobenius norm (ℓ2 for a prompt): which method solves a problem, by its size and by what the others reached."""

import math

import numpy as np

from attsvm._utils.threads import threads_for
from attsvm.svm.certificate import FROBENIUS, certify, unattainable
from attsvm.svm.constraints.constraints import STORED_NUMBERS, Constraints, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.frobenius.batched import solve_batch, unsolved
from attsvm.svm.methods.frobenius.dual_search import DualSearch
from attsvm.svm.methods.frobenius.least_distance import solve_rows
from attsvm.svm.methods.frobenius.pivoting import FEW_ROWS
from attsvm.svm.methods.frobenius.proximal_pivoting import MOST_ROWS
from attsvm.svm.methods.registry import Candidate, SolverSettings
from attsvm.svm.tolerances import EPS, FAILED

ROWS, PRODUCTS, PIVOTING = "least-distance", "projected-gradient", "proximal-pivoting"
METHODS = (ROWS, PRODUCTS)
"""Names of the methods that a user can force."""

DENSE_NUMBERS = 4_000_000
"""Rows with at most this many numbers are written out if no other method reached the last digits."""

FEW_WEIGHTS = 200
"""With at most this many weights, rows are stored up to ``DENSE_NUMBERS``: products would be needed in thousands."""

FIRST_STEPS, MAX_STEPS = 1_000, 50_000
"""Products of a large problem before its active rows are found by pivoting, and in all if the caller sets no limit."""

GOOD_GAP = 8 * EPS
"""The target of the gap, multiplied by the value if that is above 1: about the smallest gap that rounding allows."""

WARM_SLACK = 1e-3  # with initial weights, the search starts with the rows whose relative slack is below this


def solve_frobenius(constraints: Constraints, settings: SolverSettings, method: str | None = None) -> Candidate:
    """Solve small problems by least-distance programming on the rows, large ones by products with keys and queries.

    Least-distance programming is direct and uses none of the ``settings``. ``method``: "least-distance" or
    "projected-gradient"; None chooses by size. Most problems of a batch are solved by batched pivoting.

    Returns weights polished to the last digits that float64 allows, or Farkas multipliers.
    """
    rows = _most_rows(constraints)
    large = method == PRODUCTS or (method is None and _is_large(rows, math.prod(constraints.weights_shape)))
    solve_one = _solve_large if large else _solve_rows
    if not constraints.batch_shape:
        return solve_one(constraints, settings, method is not None)
    flat = constraints.with_one_axis()
    found = solve_batch(flat) if method != PRODUCTS and rows <= FEW_ROWS else unsolved(flat)
    ray = np.zeros(len(found.done), bool)
    used, why = ROWS, "many problems: their active rows are found together"
    for k in np.flatnonzero(~found.done):
        one = solve_one(flat[k], settings.of_problems(int(k)), method is not None)
        found.weights[k], found.multipliers[k], ray[k], found.steps[k] = one[:4]
        if not found.done.any():
            used, why = one.method, one.why
    candidate = Candidate(found.weights, found.multipliers, ray, found.steps, used, why)
    return candidate.with_axes_of(constraints)


def _is_large(rows: int, weights: int) -> bool:
    """Tell whether products with keys and queries are faster than writing out the rows, for this number of weights."""
    return rows * weights > (STORED_NUMBERS if weights > FEW_WEIGHTS else DENSE_NUMBERS)


def _most_rows(constraints: Constraints) -> int:
    """Count the rows of the largest problem, or an upper bound that already shows that all problems are small."""
    bound = math.prod(constraints.inequality.shape[-3:])
    if bound * math.prod(constraints.weights_shape) <= STORED_NUMBERS:
        return bound  # without reading the masks
    return constraints.most_rows


def _solve_rows(constraints: Constraints, settings: SolverSettings, forced: bool, why: str = "") -> Candidate:
    """Solve one problem by its written rows."""
    rows = constraints.rows()
    found = solve_rows(rows)
    return Candidate(
        weights=found.point.reshape(constraints.weights_shape),
        multipliers=constraints.spread(found.multipliers, rows.position),
        ray=np.asarray(found.is_ray),
        steps=np.asarray(1),
        method=ROWS,
        why=why or ("requested" if forced else "small: the rows are written out"),
    )


def _solve_large(constraints: Constraints, settings: SolverSettings, forced: bool) -> Candidate:
    """Solve one problem by products; if they lose digits, by pivoting, on written rows, or by more products."""
    products = DualProducts(constraints)
    search = DualSearch(products, GOOD_GAP, settings.max_steps or MAX_STEPS, settings.report)

    def answer(point: TokenValues, ray: TokenValues | None, method: str, why: str) -> Candidate:
        own = products.of_original_rows(point if ray is None else ray)
        weights = products.adjoint(point) if ray is None else np.zeros(constraints.weights_shape)
        return Candidate(weights, own, np.asarray(ray is not None), np.asarray(search.steps), method, why)

    why = "requested" if forced else "large: by products with keys and queries, the rows are never formed"
    if not products.asked.any() or unattainable(constraints).any():
        return answer(np.zeros(products.right.shape), None, PRODUCTS, why)
    alone = forced or settings.max_steps is not None or constraints.most_rows > MOST_ROWS
    with threads_for(products.multiplications):
        start, is_guess = _start(products, settings)
        point, ray = search.by_products(start, MAX_STEPS if alone else FIRST_STEPS, is_guess)
        candidate = answer(point, ray, PRODUCTS, why)
        if forced or settings.max_steps or _is_settled(constraints, candidate, search):
            return candidate
        if search.running:
            pivoted, ray = search.by_pivoting_or_ray(point)
            text = f"large: after {FIRST_STEPS} products with keys and queries, the active rows were found by pivoting"
            candidate = answer(pivoted, ray, PIVOTING, text)
            if _is_settled(constraints, candidate, search):
                return candidate
        if constraints.most_rows * math.prod(constraints.weights_shape) <= DENSE_NUMBERS:
            why = "the products lose too many digits: the rows are written out"
            return _solve_rows(constraints, settings, forced, why)
        if search.running:
            point, ray = search.by_products(point, MAX_STEPS, True)
            candidate = answer(point, ray, PRODUCTS, why)
    return candidate


def _is_settled(constraints: Constraints, candidate: Candidate, search: DualSearch) -> bool:
    """Tell whether no other method would give more digits, or the user stopped the search."""
    if search.stopped or candidate.ray:
        return True
    done = certify(constraints, FROBENIUS, candidate.weights, candidate.multipliers)
    # ‖row‖‖W‖ of the rows on average, weighted by their multipliers
    average = np.vdot(done.dual, constraints.norms) / (np.vdot(done.dual, constraints.right) or 1.0)
    unit_value = float(done.value * average)
    return bool(done.gap <= max(FAILED, 4 * EPS * unit_value) and done.violation <= FAILED)


def _start(products: DualProducts, settings: SolverSettings) -> tuple[TokenValues, bool]:
    """Return initial multipliers at their best scale, and whether their positive entries are probably right."""
    right = products.right
    if settings.warm_multipliers is not None:
        guess = products.of_unit_rows(settings.warm_multipliers.reshape(right.shape))
    elif settings.warm_start is not None:
        margins = products.apply(settings.warm_start)
        smallest = np.divide(margins, right, out=np.full(right.shape, np.inf), where=products.asked).min()
        tight = products.bounded & (margins <= smallest * (1 + WARM_SLACK) * right)
        guess = np.maximum(np.where(tight, right, 0.0) if smallest > 0 else right, 0.0)
    else:
        return np.maximum(right, 0.0) / products.eigenvalue, False
    # the minimum of ½t²μ'Kμ − t h'μ over t
    curvature, gain = float(np.vdot(guess, products.times(guess))), float(np.vdot(guess, right))
    if not (curvature > 0 and gain > 0):
        return np.maximum(right, 0.0) / products.eigenvalue, False
    return guess * (gain / curvature), True
