"""The least value of a norm without a solver of its own: which method, on which rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attsvm._utils.threads import threads_for
from attsvm.norms import MissingPiece, Norm, Rotary
from attsvm.svm.constraints.constraints import SMALL_NUMBERS, Constraints, TokenValues, Weights
from attsvm.svm.constraints.rows import reduced_rows
from attsvm.svm.loop import Point, Report, Watch
from attsvm.svm.methods.frobenius.choice import solve_frobenius
from attsvm.svm.methods.generic.douglas_rachford import douglas_rachford
from attsvm.svm.methods.generic.interior_point import complex_interior_point
from attsvm.svm.methods.generic.problems import Bounds, Program
from attsvm.svm.methods.generic.semismooth_newton import semismooth_newton
from attsvm.svm.methods.generic.steepest import ByDirections, quasi_newton
from attsvm.svm.methods.growing import MOST_ROWS, growing_rows
from attsvm.svm.methods.registry import Candidate, SolverSettings, check_method, solver, undecided
from attsvm.svm.tolerances import FINEST

NEWTON, SPLITTING, QUASI_NEWTON = "semismooth-newton", "douglas-rachford", "quasi-newton"
INTERIOR = "interior-point"
PROXIMAL, BY_DIRECTIONS = (NEWTON, SPLITTING), (QUASI_NEWTON, SPLITTING)
OF_ROTATIONS = (INTERIOR, NEWTON, SPLITTING)

Method = Callable[[Program, Bounds, float, int, Report], int]

METHODS: dict[str, Method] = {
    NEWTON: semismooth_newton,
    SPLITTING: douglas_rachford,
    QUASI_NEWTON: quasi_newton,
    INTERIOR: complex_interior_point,
}

WHY = {
    NEWTON: "a norm with a prox, in a problem that is small or hard for the splitting",
    SPLITTING: "a large problem, or a norm with steepest directions alone that is not strictly convex",
    QUASI_NEWTON: "a strictly convex norm with steepest directions alone",
    INTERIOR: "the norm of rotations is a semidefinite program with complex rows of rank one",
}

EASY_STEPS, NEAR = 400, 1e-5
"""On larger problems another method, whose steps are much slower there, follows the splitting if the gap is above this
after so many steps. Most problems need 100 to 300."""


@lru_cache(maxsize=256)
def methods_of(norm: Norm) -> tuple[str, ...]:
    """Return the methods that the pieces of a norm allow. A norm that is made of others may lack what they lack."""
    if isinstance(norm, Rotary):
        return OF_ROTATIONS
    sample = np.ones(norm.sample_shape)
    for piece, names in ((lambda: norm.prox(sample, 1.0), PROXIMAL), (lambda: norm.steepest(sample), BY_DIRECTIONS)):
        try:
            piece()
        except MissingPiece:
            continue
        return names
    return ()


@solver(Norm, methods=methods_of)  # type: ignore[type-abstract]  # the base class of all norms
def solve_generic(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Find the least N(W) for a norm with ``prox`` or ``project_dual_ball``, or with ``steepest`` alone.

    Whether a selection can be kept does not depend on the norm, so the problem is first solved in the Frobenius norm:
    its Farkas multipliers are returned where there are any, and elsewhere it is the initial point.

    ``method``: "semismooth-newton" or "douglas-rachford" for a norm with a prox, "quasi-newton" or "douglas-rachford"
    for a norm with ``steepest`` alone. None chooses by size, and tries the second method from the best answer so far
    if the first one does not reach ``tol``.

    Raises MissingPiece if the norm has none of the three.
    """
    known = methods_of(norm)
    if not known:
        raise MissingPiece(
            f"norm: {norm.name} does not provide `prox`, `project_dual_ball` or `steepest`, so it cannot be solved"
        )
    if method is not None:
        check_method(method, known, norm)
    names = known if method is None else (method,)
    # a prox made of steepest directions serves the splitting
    usable = ByDirections(norm) if QUASI_NEWTON in known else norm
    frobenius = solve_frobenius(constraints, SolverSettings())
    flat = constraints.with_one_axis()
    weights = np.array(frobenius.weights, dtype=np.float64).reshape(flat.batch_shape + flat.weights_shape)
    multipliers = np.array(frobenius.multipliers, dtype=np.float64).reshape(flat.inequality.shape)
    steps = np.zeros(len(weights), dtype=int)
    watch = Watch(settings.report)
    used, why = names[0], "the answer in the Frobenius norm is already optimal or infeasible"
    # weights of 0 are the answer in the Frobenius norm where it was not found
    to_solve = undecided(flat) & weights.any(axis=(-2, -1)) & ~frobenius.ray.reshape(-1)
    # the problems share nothing, so each has its own number of steps
    for k in np.flatnonzero(to_solve):
        if watch.stopped:
            break
        own = settings.of_problem(int(k), constraints.batch_shape)
        one = flat[k : k + 1]
        found, name = solve_one(one, usable, names, own, watch, weights[k : k + 1], multipliers[k : k + 1])
        weights[k], multipliers[k], steps[k] = found.weights[0], found.multipliers[0], found.steps[0]
        if name:
            used, why = name, WHY[name]
    if method is not None:
        why = "requested"
    return Candidate(weights, multipliers, frobenius.ray, steps, used, why).with_axes_of(constraints)


def solve_one(
    constraints: Constraints,
    norm: Norm,
    names: Sequence[str],
    settings: SolverSettings,
    watch: Watch,
    weights: Weights,
    multipliers: TokenValues,
) -> tuple[Point, str]:
    """Solve one problem by some methods, on a growing set of rows if there are many, and name the last method used.

    ``constraints``: with a batch axis of length 1. ``weights``, ``multipliers``: the answer in the Frobenius norm. The
    name is "" if it is optimal in this norm, too.
    """
    if constraints.most_rows <= MOST_ROWS:
        return _solve_rows(constraints, norm, names, settings, watch, weights, multipliers)
    used = ""

    def solve(some: Constraints, tol: float, limit: int | None, before: Point | None) -> Point:
        nonlocal used
        own = replace(settings, tol=tol, max_steps=limit)
        if before is not None:
            own = replace(own, warm_start=before.weights[0], warm_multipliers=before.multipliers[0])
        point, name = _solve_rows(some, norm, names, own, watch, weights, multipliers)
        used = name or used
        return point

    stopped, tol, limit = lambda: watch.stopped, settings.tol, settings.max_steps
    return growing_rows(constraints, weights, multipliers, solve, tol, limit, stopped, spare=2).point, used


def _solve_rows(
    constraints: Constraints,
    norm: Norm,
    names: Sequence[str],
    settings: SolverSettings,
    watch: Watch,
    weights: Weights,
    multipliers: TokenValues,
) -> tuple[Point, str]:
    """Solve with all rows, by one method after the other until one reaches the gap."""
    # on an invariant side, the optimum is in the span of the data
    reduced = reduced_rows(constraints, left=norm.left_invariant, right=norm.right_invariant)
    unit = reduced.unit
    program = Program(norm, reduced.rows, unit.right[0], unit.equality[0])
    bounds = Bounds(program, reduced.contract(weights)[0], unit.gather(multipliers)[0])
    if settings.warm_start is not None:
        bounds.see_weights(reduced.contract(settings.warm_start[None])[0])
    if settings.warm_multipliers is not None:
        bounds.see_multipliers(unit.gather(settings.warm_multipliers[None])[0])
    # at a value of about 1 the multipliers are of the size of b, and so is 1/σ
    size = bounds.upper if np.isfinite(bounds.upper) else 1.0
    program = replace(program, right=program.right / size)
    bounds = Bounds(program, bounds.weights / size, bounds.multipliers)
    target = max(0.5 * settings.tol, FINEST)
    steps, used = 0, ""
    limit = 1_000_000 if settings.max_steps is None else settings.max_steps
    small = len(program.right) * math.prod(program.shape) <= SMALL_NUMBERS
    chosen: Sequence[str] = names
    if tuple(names) == PROXIMAL:
        chosen = (NEWTON,) if small else (SPLITTING, NEWTON)

    def watch_splitting(step: int, gap: float) -> bool:
        return watch(step, gap) or (NEWTON in chosen and step >= EASY_STEPS and gap > NEAR)

    # each method goes on from the best bounds of the one before
    for name in chosen:
        nearly = name == NEWTON and used == SPLITTING and bounds.gap <= NEAR
        if bounds.gap <= target or watch.stopped or limit <= steps or nearly:
            break
        used = name
        with threads_for(len(program.right) ** 2):
            report = watch_splitting if name == SPLITTING else watch
            steps += METHODS[name](program, bounds, target, limit - steps, report)
    found = Point(
        reduced.expand(bounds.weights[None]),
        unit.spread(bounds.multipliers[None], constraints.inequality.shape[1:]),
        np.array([bounds.gap]),
        np.array([steps]),
    )
    return found, used
