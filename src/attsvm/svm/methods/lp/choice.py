"""The entrywise ℓp Att-SVM for every real p in [1, ∞]: which method, on which rows."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from attsvm._utils.shapes import Bool, Float
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.svm.certificate import is_frobenius
from attsvm.svm.constraints.constraints import ALL_TOKENS, SMALL_NUMBERS, STORED_NUMBERS, Constraints, TokenValues
from attsvm.svm.constraints.rows import DenseRows, RowVector, Vector, dense_selection, factored_selection
from attsvm.svm.loop import Point, Report, Stop
from attsvm.svm.methods.frobenius.choice import DENSE_NUMBERS, solve_frobenius
from attsvm.svm.methods.frobenius.choice import METHODS as FROBENIUS_METHODS
from attsvm.svm.methods.from_frobenius import Solved, Unsolved, from_frobenius
from attsvm.svm.methods.growing import growing_rows
from attsvm.svm.methods.lp.interior_point import interior_point
from attsvm.svm.methods.lp.newton import newton
from attsvm.svm.methods.lp.problems import LpProblems, lp_norm
from attsvm.svm.methods.registry import CACHED, Candidate, SolverSettings, solver
from attsvm.svm.tolerances import FAILED, FINEST

INTERIOR_POINT, NEWTON, LINEAR_PROGRAM = "interior-point", "newton", "linear-program"

NEWTON_RANGE = (1.2, 4.0)
"""The range of p in which Newton's method by least-distance problems takes three to eight steps."""


def _methods(norm: Norm) -> tuple[str, ...]:
    """Return the methods that solve in an ℓp norm, the one for the general case first."""
    if is_frobenius(norm):
        return FROBENIUS_METHODS
    assert isinstance(norm, Lp)
    return INTERIOR_POINT, NEWTON if 1 < norm.p < np.inf else LINEAR_PROGRAM


@solver(Lp, methods=_methods)
def solve_lp(constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None) -> Candidate:
    """Least entrywise ‖W‖_p under the constraints.

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
    if method == NEWTON and constraints.equality is not None:
        raise ProblemError("method: expected interior-point for sets of tokens, got 'newton'")
    numbers = constraints.most_rows * math.prod(constraints.weights_shape)
    numbers = numbers if numbers <= STORED_NUMBERS else CACHED  # large ones one at a time
    return from_frobenius(constraints, settings, _LpSolve(norm.p, method).solve, method or INTERIOR_POINT, numbers)


def _start(constraints: Constraints, weights: Vector, multipliers: TokenValues, warm: np.ndarray | None) -> Vector:
    """Initial weights, scaled to margin 1: those of the warm start if they keep the selection, else ``weights``."""
    # feasible weights, where the margin is positive
    start, positive = _at_margin_one(constraints, weights)
    # weights without a positive margin are scaled so that W = A*(λ) is optimal
    # ‖sA*(λ)‖ is the bound b'λ / ‖A*(λ)‖ on the least norm for p = 2, if s = b'λ / ‖A*(λ)‖²
    total = (multipliers * constraints.right).sum(axis=ALL_TOKENS)
    square = np.vecdot(weights, weights)
    scale = np.where(square > 0, total / np.where(square > 0, square, 1.0), 1.0)
    start = np.where(positive[:, None], start, weights * np.where(scale > 0, scale, 1.0)[:, None])
    if warm is None or constraints.equality is not None or constraints.has_relaxed:
        return start
    warmer, positive = _at_margin_one(constraints, warm.reshape(weights.shape))
    return np.where(positive[:, None], warmer, start)


def _at_margin_one(constraints: Constraints, weights: Vector) -> tuple[Vector, Bool[np.ndarray, " N"]]:
    """Weights divided by their smallest margin, and whether that margin is positive."""
    smallest = constraints.smallest_margin(weights.reshape(-1, *constraints.weights_shape))
    positive = (smallest > 0) & np.isfinite(smallest)
    return weights / np.where(positive, smallest, 1.0)[:, None], positive


class _Attempt(NamedTuple):
    method: str
    why: str
    solve: Callable[[LpProblems[DenseRows], Vector, RowVector, Stop, Report], Point]


class _LpSolve(NamedTuple):
    """How problems are solved."""

    p: float
    forced: str | None

    def solve(self, given: Unsolved) -> Solved:
        """Solve some problems together. Multipliers are in the places of the rows."""
        constraints, matrices, multipliers, settings, watch = given
        weights = _start(constraints, matrices.reshape(len(matrices), -1), multipliers, settings.warm_start)
        numbers = constraints.most_rows * math.prod(constraints.weights_shape)
        if numbers > STORED_NUMBERS and self.forced in (None, INTERIOR_POINT):
            point = self._grown(given, weights)
            if watch.stopped or point.gap[0] <= FAILED or numbers > DENSE_NUMBERS or settings.max_steps is not None:
                return point, INTERIOR_POINT, "many rows: a growing set of them"
        # all rows, by one method after the other
        rows, unit = dense_selection(constraints)
        problems, start = LpProblems.of(rows, unit, self.p), unit.gather(multipliers)
        stop = Stop(FINEST) if settings.max_steps is None else Stop(FINEST, settings.max_steps)
        first, *others = self._attempts(len(weights), numbers, bool(unit.equality.any()))
        best, used, why = first.solve(problems, weights, start, stop, watch), first.method, first.why
        for attempt in others:
            short = np.flatnonzero(best.gap > FAILED)
            if len(short) == 0 or settings.max_steps is not None or watch.stopped:
                break
            again = attempt.solve(problems.select(short), weights[short], start[short], stop, watch)
            better = best.improve(short, again)
            # the steps are those of the method whose answer is kept
            best.steps[short[better]] = again.steps[better]
            if np.count_nonzero(better) == len(weights):
                used, why = attempt.method, attempt.why
        return best._replace(multipliers=unit.spread(best.multipliers, constraints.inequality.shape[1:])), used, why

    def _attempts(self, count: int, numbers: int, equalities: bool) -> list[_Attempt]:
        """Methods in the order in which they are tried, each on the problems that the one before it did not solve."""
        careful = partial(interior_point, careful=True)
        interior = [
            _Attempt(INTERIOR_POINT, "any p, many problems together", interior_point),
            _Attempt(INTERIOR_POINT, "near infeasibility: with orthogonal factors", careful),
        ]
        simplex, by_newton = (LINEAR_PROGRAM, linear_programs), (NEWTON, newton)
        if self.forced is not None:
            method, solve = simplex if self.forced == LINEAR_PROGRAM else by_newton
            return interior if self.forced == INTERIOR_POINT else [_Attempt(method, "requested", solve)]
        if numbers <= SMALL_NUMBERS and self.p in (1, np.inf) and count == 1:
            return [_Attempt(LINEAR_PROGRAM, "p = 1 and p = ∞ are linear programs", linear_programs), *interior]
        if numbers <= SMALL_NUMBERS and NEWTON_RANGE[0] <= self.p <= NEWTON_RANGE[1] and not equalities:
            return [_Attempt(NEWTON, "small problems, moderate p", newton), *interior]
        return interior

    def _grown(self, given: Unsolved, weights: Float[np.ndarray, "1 D"]) -> Point:
        """Solve one problem by the interior point on a growing set of rows, which are never stored densely."""
        shape = given.weights.shape

        def solve(some: Unsolved) -> Point:
            rows, unit = factored_selection(some.constraints)
            problems, own = LpProblems.of(rows, unit, self.p), some.settings
            stop = Stop(own.tol) if own.max_steps is None else Stop(own.tol, own.max_steps)
            point = interior_point(problems, weights, unit.gather(given.multipliers), stop, given.watch)
            return point._replace(
                weights=point.weights.reshape(shape),
                multipliers=unit.spread(point.multipliers, given.multipliers.shape[1:]),
            )

        point, complete = growing_rows(given._replace(weights=weights.reshape(shape)).set(tol=FINEST), solve, spare=2)
        return point._replace(weights=point.weights.reshape(1, -1), gap=point.gap if complete else np.array([np.inf]))


def linear_programs(
    problems: LpProblems[DenseRows], weights: Vector, multipliers: RowVector, stop: Stop, report: Report
) -> Point:
    """Least ‖w‖_1 or ‖w‖_∞ by the simplex method of HiGHS, one problem after the other.

    For p = 1, w is the difference of two parts ≥ 0 of least sum. For p = ∞ it is w/γ with the largest γ such that
    Aw ≥ γb for some w in the box −1 ≤ w ≤ 1: the box costs the simplex method no rows.

    Where HiGHS finds no optimum, the initial weights have the gap ∞. Its tolerances are absolute, and the size of these
    weights is taken as the unit.
    """
    size = lp_norm(weights, problems.p)
    problems = problems.divided(size)
    best = Point.unsolved(weights / size, np.zeros_like(multipliers))
    dim = weights.shape[1]
    for k, (matrix, b, equality) in enumerate(
        zip(problems.rows.matrix, problems.right, problems.equality, strict=True)
    ):
        # min 1'(w⁺ + w⁻) with (A, −A)(w⁺, w⁻) ≥ b
        objective, split, side = np.ones(2 * dim), np.hstack([matrix, -matrix]), b
        bounds: Any = (0, None)
        if problems.p != 1:
            # max γ with Aw − γb ≥ 0, −1 ≤ w ≤ 1
            objective, split, side = np.append(np.zeros(dim), -1.0), np.hstack([matrix, -b[:, None]]), np.zeros(len(b))
            bounds = [(-1, 1)] * dim + [(0, None)]
        found = linprog(
            objective,
            A_ub=-split[~equality],
            b_ub=-side[~equality],
            A_eq=split[equality],
            b_eq=side[equality],
            bounds=bounds,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        best.steps[k] = found.nit
        if found.status != 0 or (problems.p != 1 and not found.x[dim] > 0):
            continue
        best.weights[k] = found.x[:dim] - found.x[dim:] if problems.p == 1 else found.x[:dim] / found.x[dim]
        # HiGHS returns the derivatives of the objective by the right sides of −Aw ≤ −b
        best.multipliers[k, ~equality] = np.maximum(-found.ineqlin.marginals, 0.0)
        best.multipliers[k, equality] = found.eqlin.marginals
        best.gap[k] = 0.0
    rows = problems.rows
    gap = problems.gap(best.weights, best.multipliers, rows.apply(best.weights), rows.adjoint(best.multipliers))
    return best._replace(weights=best.weights * size, gap=np.where(best.gap == 0, gap, np.inf))
