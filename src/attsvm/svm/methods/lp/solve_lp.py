"""The entrywise ℓp Att-SVM for every real p in [1, ∞]: which method, on which rows."""

import math
from typing import Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.svm.certificate import is_frobenius
from attsvm.svm.constraints.constraints import ALL_TOKENS, Constraints, TokenValues
from attsvm.svm.constraints.row_products import (
    DenseRows,
    Selection,
    dense_selection,
    factored_selection,
)
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Point, Watch
from attsvm.svm.methods.batches import chunks, undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import METHODS as FROBENIUS_METHODS
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.growing import growing_rows
from attsvm.svm.methods.lp.interior_point import interior_point
from attsvm.svm.methods.lp.linear_program import linear_program
from attsvm.svm.methods.lp.newton import newton
from attsvm.svm.methods.registry import solver

Method = Literal["newton", "interior-point", "linear-program"]

NEWTON_RANGE = (1.2, 4.0)
"""The range of p in which Newton's method by least-distance problems takes three to eight steps."""

SMALL_ROWS = 30_000
"""With at most this many numbers in the rows of a problem, active-set methods (Newton, simplex) are the fastest."""

GROWN_ROWS = 100_000
"""With more numbers than this in the rows of a problem, the method works on a growing set of rows."""

DENSE_ROWS = 1_000_000
"""With more numbers than this, the rows are never stored, although stored rows are more robust."""

CHUNK_ROWS = 600_000
"""Numbers in the rows of problems solved together: more would not fit into the processor's cache."""

TARGET = 1e-13
"""The target of the relative gap. It takes hardly more time than 1e-8."""

FAILED = 1e-10
"""A relative gap above which another method is tried."""

MAX_STEPS = 60
"""Largest number of steps of Newton's method or the interior point; both usually take a quarter of it."""


def _methods(norm: Norm) -> tuple[str, ...]:
    """The methods that solve in an ℓp norm, the one for the general case first."""
    if is_frobenius(norm):
        return FROBENIUS_METHODS
    assert isinstance(norm, Lp)
    return ("interior-point", "newton" if 1 < norm.p < np.inf else "linear-program")


@solver(Lp, methods=_methods)
def solve_lp(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least entrywise ‖W‖_p under the constraints.

    Whether a selection can be kept does not depend on the norm, so the problem is first solved in the Frobenius norm:
    its Farkas multipliers are returned where there are any, and elsewhere it is the initial point.

    ``norm``: 1 ≤ p ≤ ∞. ``method``: "least-distance" or "projected-gradient" for p = 2, "newton" for 1 < p < ∞,
    "linear-program" for p = 1 and ∞, "interior-point" for every p but 2. None chooses: a linear program for one small
    problem with p = 1 or ∞; Newton's method for small problems of moderate p; in all other cases, and where these fail,
    an interior point. Many problems are solved together. The interior point works on a growing set of rows if there are
    too many to be stored.

    Raises ProblemError if the method does not fit the constraints.
    """
    if is_frobenius(norm):
        return solve_frobenius(constraints, settings, method)
    assert isinstance(norm, Lp)
    if method == "newton" and constraints.equality is not None:
        raise ProblemError("method: expected interior-point for sets of tokens, got 'newton'")
    forced, p = cast("Method | None", method), norm.p
    frobenius = solve_frobenius(constraints, Settings())
    flat = constraints.with_one_axis()
    size = flat.batch_shape[0]
    weights = np.array(frobenius.weights, dtype=np.float64).reshape(size, -1)
    multipliers = np.array(frobenius.multipliers, dtype=np.float64).reshape(flat.inequality.shape)
    steps = np.zeros(size, dtype=int)
    weights = _start(flat, weights, multipliers, settings.warm_start)
    # nothing to do where there is no solution, or where 0 is one
    to_solve = undecided(flat) & weights.any(axis=-1) & ~frobenius.ray.reshape(size)
    used, why = forced or "interior-point", "the answer in the Frobenius norm is already optimal or infeasible"
    watch = Watch(settings.report)
    numbers = _row_numbers(flat)
    for index in chunks(to_solve, numbers, CHUNK_ROWS if numbers <= GROWN_ROWS else 0):
        point, used, why = _solve(flat[index], p, settings, weights[index], multipliers[index], forced, watch)
        weights[index], multipliers[index], steps[index] = point.weights, point.multipliers, point.steps
    return Candidate(weights, multipliers, frobenius.ray, steps, used, why).with_axes_of(constraints)


def _start(
    constraints: Constraints, weights: Float[np.ndarray, "N D"], multipliers: TokenValues, warm: np.ndarray | None
) -> Float[np.ndarray, "N D"]:
    """Initial weights, scaled to margin 1: those of the warm start if they keep the selection, else ``weights``."""
    start, positive = _at_margin_one(constraints, weights)
    # weights without a positive margin are scaled so that W = A*(λ) is optimal
    total = (multipliers * constraints.right).sum(axis=ALL_TOKENS)
    square = np.vecdot(weights, weights)
    scale = np.where(square > 0, total / np.where(square > 0, square, 1.0), 1.0)
    start = np.where(positive[:, None], start, weights * np.where(scale > 0, scale, 1.0)[:, None])
    if warm is None or constraints.equality is not None or constraints.has_relaxed:
        return start
    warmer, positive = _at_margin_one(constraints, warm.reshape(weights.shape))
    return np.where(positive[:, None], warmer, start)


def _at_margin_one(
    constraints: Constraints, weights: Float[np.ndarray, "N D"]
) -> tuple[Float[np.ndarray, "N D"], Bool[np.ndarray, " N"]]:
    """Weights divided by their smallest margin, and whether that margin is positive."""
    images = constraints.apply(weights.reshape(-1, *constraints.weights_shape))
    smallest = np.where(constraints.margin_mask, images, np.inf).min(axis=ALL_TOKENS)
    positive = (smallest > 0) & np.isfinite(smallest)
    return weights / np.where(positive, smallest, 1.0)[:, None], positive


def _row_numbers(constraints: Constraints) -> int:
    """Numbers in the rows of the largest problem."""
    return constraints.most_rows * math.prod(constraints.weights_shape)


def _solve(
    constraints: Constraints,
    p: float,
    settings: Settings,
    weights: Float[np.ndarray, "N D"],
    multipliers: TokenValues,
    forced: Method | None,
    watch: Watch,
) -> tuple[Point, Method, str]:
    """Solve some problems together; the multipliers are in the places of their rows."""
    shape = constraints.inequality.shape[1:]
    numbers = _row_numbers(constraints)
    if numbers > GROWN_ROWS and forced in (None, "interior-point"):
        point = _grown(constraints, p, settings, weights, multipliers, watch)
        if watch.stopped or point.gap[0] <= FAILED or numbers > DENSE_ROWS or settings.max_steps is not None:
            return point, "interior-point", "many rows: a growing set of them"
    rows = dense_selection(constraints)
    start = weights, rows.unit.gather(multipliers)
    attempts = _attempts(p, len(weights), numbers, bool(rows.unit.equality.any()), forced)
    best = _run(attempts[0], rows, p, settings.max_steps, watch, *start)
    method, why = attempts[0].method, attempts[0].why
    for attempt in attempts[1:]:
        short = best.gap > FAILED
        if not short.any() or settings.max_steps is not None or watch.stopped:
            break
        again = _run(attempt, rows.keep(short), p, None, watch, *(part[short] for part in start))
        index = np.flatnonzero(short)
        better = best.improve(index, again)
        best.steps[index[better]] = again.steps[better]
        if np.count_nonzero(better) == len(weights):
            method, why = attempt.method, attempt.why
    return best._replace(multipliers=rows.unit.spread(best.multipliers, shape)), method, why


def _grown(
    constraints: Constraints,
    p: float,
    settings: Settings,
    weights: Float[np.ndarray, "1 D"],
    multipliers: TokenValues,
    watch: Watch,
) -> Point:
    """Solve one problem by the interior point on a growing set of rows, which are never stored densely."""
    shape = constraints.inequality.shape[1:]

    def solve(some: Constraints, tol: float, limit: int | None, before: Point | None) -> Point:
        rows = factored_selection(some)
        point = interior_point(rows, p, weights, rows.unit.gather(multipliers), tol, limit or MAX_STEPS, watch)
        return point._replace(
            weights=point.weights.reshape(1, *constraints.weights_shape),
            multipliers=rows.unit.spread(point.multipliers, shape),
        )

    start = weights.reshape(1, *constraints.weights_shape)
    stopped, limit = lambda: watch.stopped, settings.max_steps
    point, complete = growing_rows(constraints, start, multipliers, solve, TARGET, limit, stopped, spare=2)
    return point._replace(weights=point.weights.reshape(1, -1), gap=point.gap if complete else np.array([np.inf]))


class _Attempt(NamedTuple):
    method: Method
    why: str
    careful: bool = False


def _attempts(p: float, problems: int, numbers: int, equalities: bool, forced: Method | None) -> list[_Attempt]:
    """Methods in the order in which they are tried, each on the problems that the one before it did not solve."""
    interior = [
        _Attempt("interior-point", "any p, many problems together"),
        _Attempt("interior-point", "near infeasibility: with orthogonal factors", careful=True),
    ]
    if forced:
        return interior if forced == "interior-point" else [_Attempt(forced, "requested")]
    if p in (1, np.inf) and problems == 1 and numbers <= SMALL_ROWS:
        return [_Attempt("linear-program", "p = 1 and p = ∞ are linear programs"), *interior]
    if NEWTON_RANGE[0] <= p <= NEWTON_RANGE[1] and numbers <= SMALL_ROWS and not equalities:
        return [_Attempt("newton", "small problems, moderate p"), *interior]
    return interior


def _run(
    attempt: _Attempt,
    rows: Selection[DenseRows],
    p: float,
    max_steps: int | None,
    watch: Watch,
    weights: Float[np.ndarray, "N D"],
    multipliers: RowVector,
) -> Point:
    limit = max_steps or MAX_STEPS
    if attempt.method == "newton":
        return newton(rows, p, weights, multipliers, TARGET, limit)
    if attempt.method == "interior-point":
        return interior_point(rows, p, weights, multipliers, TARGET, limit, watch, attempt.careful)
    points, (all_there, right, equality, _, _) = [], rows.unit
    for k, (matrix, there) in enumerate(zip(rows.products.matrix, all_there, strict=True)):
        found = linear_program(matrix[there], right[k, there], equality[k, there], p, weights[k])
        full = np.zeros(len(there))
        full[there] = found.multipliers
        points.append(found._replace(multipliers=full))
    return Point(*(np.stack(parts) for parts in zip(*points, strict=True)))
