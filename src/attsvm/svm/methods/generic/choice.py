"""The least value of a norm without a solver of its own: which method, on which rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attsvm._utils.threads import threads_for
from attsvm.norms import Norm, Rotary
from attsvm.svm.constraints.constraints import SMALL_NUMBERS, Constraints
from attsvm.svm.constraints.rows import reduced_rows
from attsvm.svm.loop import Point, Report
from attsvm.svm.methods.from_frobenius import Solved, Unsolved, from_frobenius
from attsvm.svm.methods.generic.douglas_rachford import douglas_rachford
from attsvm.svm.methods.generic.interior_point import complex_interior_point
from attsvm.svm.methods.generic.problems import Bounds, Program
from attsvm.svm.methods.generic.semismooth_newton import semismooth_newton
from attsvm.svm.methods.generic.steepest import ByDirections, quasi_newton
from attsvm.svm.methods.growing import MOST_ROWS, growing_rows
from attsvm.svm.methods.registry import CACHED, Candidate, SolverSettings, check_method, provides, solver
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


def methods_of(norm: Norm) -> tuple[str, ...]:
    """Return the methods that the members of a norm allow."""
    if isinstance(norm, Rotary):
        return OF_ROTATIONS
    return PROXIMAL if provides(norm, "prox") else BY_DIRECTIONS


@solver(Norm, methods=methods_of, needs=("prox", "project_dual_ball", "steepest"))  # type: ignore[type-abstract]
def solve_generic(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Find the least N(W) for a norm with ``prox`` or ``project_dual_ball``, or with ``steepest`` alone.

    ``method``: "semismooth-newton" or "douglas-rachford" for a norm with a prox, "quasi-newton" or "douglas-rachford"
    for a norm with ``steepest`` alone. None chooses by size, and tries the second method from the best answer so far
    if the first one does not reach ``tol``.
    """
    known = methods_of(norm)
    names = known if method is None else (method,)
    if method is not None:
        check_method(method, known, norm)
    # a prox made of steepest directions serves the splitting
    usable = ByDirections(norm) if QUASI_NEWTON in known else norm

    def solve(given: Unsolved) -> Solved:
        found, name = solve_one(given, usable, names)
        return found, name, WHY.get(name, "")

    # the problems share nothing, so each has its own number of steps
    found = from_frobenius(constraints, settings, solve, names[0], CACHED)
    return found if method is None else found._replace(why="requested")


def solve_one(given: Unsolved, norm: Norm, names: Sequence[str]) -> tuple[Point, str]:
    """Solve one problem by some methods, on a growing set of rows if there are many, and name the last method used.

    The name is "" if the answer in the Frobenius norm is optimal in this norm, too.
    """
    if given.constraints.most_rows <= MOST_ROWS:
        return _solve_rows(given, norm, names)
    used = ""

    def solve(some: Unsolved) -> Point:
        nonlocal used
        point, name = _solve_rows(some, norm, names)
        used = name or used
        return point

    return growing_rows(given, solve, spare=2).point, used


def _solve_rows(given: Unsolved, norm: Norm, names: Sequence[str]) -> tuple[Point, str]:
    """Solve with all rows, by one method after the other until one reaches the gap."""
    constraints, weights, multipliers, settings, watch = given
    # on an invariant side, the optimum is in the span of the data
    reduced = reduced_rows(constraints, left=norm.left_invariant, right=norm.right_invariant)
    unit = reduced.unit
    program = Program(norm, reduced.rows, unit.right[0], unit.equality[0])
    bounds = Bounds(program, reduced.contract(weights)[0], unit.gather(multipliers)[0])
    if settings.warm_start is not None:
        bounds.see_weights(reduced.contract(settings.warm_start)[0])
    if settings.warm_multipliers is not None:
        bounds.see_multipliers(unit.gather(settings.warm_multipliers)[0])
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
