"""The least value of any norm: which method, on which rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attsvm.norms import Norm
from attsvm.norms.base import MissingPiece
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.constraints.pair_rows import reduced_rows
from attsvm.svm.frobenius.choice import solve_frobenius
from attsvm.svm.loop import Point, Report, Watch
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.generic.by_directions import ByDirections
from attsvm.svm.methods.generic.douglas_rachford import douglas_rachford
from attsvm.svm.methods.generic.program import Bounds, Program
from attsvm.svm.methods.generic.quasi_newton import quasi_newton
from attsvm.svm.methods.generic.semismooth_newton import semismooth_newton
from attsvm.svm.methods.growing import growing_rows
from attsvm.svm.methods.registry import solver
from attsvm.svm.threads import threads_for

NEWTON, SPLITTING, QUASI_NEWTON = "semismooth-newton", "douglas-rachford", "quasi-newton"
PROXIMAL, BY_DIRECTIONS = (NEWTON, SPLITTING), (QUASI_NEWTON, SPLITTING)

NEWTON_NUMBERS = 10_000
"""With at most this many numbers in the rows, Newton's method is as fast as the splitting and solves more problems, if
the norm computes several proxes in one call."""

EASY_STEPS = 500
"""Steps of the splitting after which Newton's method is tried; most problems take a third of it."""

FAR = 1e-3
"""On larger problems it is only tried then if the gap is still above this. Its steps are much slower."""

CLOSE = 1e-5
"""On larger problems no other method follows the splitting if it stalls at a smaller gap: it would take far longer."""

MOST_ROWS = 1500
"""With more rows than this, a growing set of rows is used: the splitting stores the square of their number."""

FINEST_TARGET = 1e-13
NO_LIMIT = 1_000_000


Method = Callable[[Program, Bounds, float, int, Report], int]

METHODS: dict[str, Method] = {
    NEWTON: semismooth_newton,
    SPLITTING: douglas_rachford,
    QUASI_NEWTON: quasi_newton,
}

WHY = {
    NEWTON: "a small problem in a norm with a prox",
    SPLITTING: "a large problem, one that is hard for Newton's method, or a norm with steepest directions alone",
    QUASI_NEWTON: "a strictly convex norm with steepest directions alone",
}


@lru_cache(maxsize=256)
def methods_of(norm: Norm) -> tuple[str, ...]:
    """Return the methods that the pieces of a norm allow. A norm that is made of others may lack what they lack."""
    sample = np.ones(norm.sample_shape)
    for piece, names in ((lambda: norm.prox(sample, 1.0), PROXIMAL), (lambda: norm.steepest(sample), BY_DIRECTIONS)):
        try:
            piece()
        except MissingPiece:
            continue
        return names
    return ()


@solver(Norm, methods=methods_of)  # type: ignore[type-abstract]  # the base class of all norms
def solve_generic(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least N(W) for a norm with ``prox`` or ``project_dual_ball``, or with ``steepest`` alone.

    Whether a selection can be kept does not depend on the norm, so the problem is first solved in the Frobenius norm:
    its Farkas multipliers are returned where there are any, and elsewhere it is the initial point.

    ``method``: "semismooth-newton" or "douglas-rachford" for a norm with a prox, "quasi-newton" or "douglas-rachford"
    for a norm with ``steepest`` alone. None chooses by size, and tries the next method from the best answer so far if
    the first one does not reach ``tol``.

    Raises MissingPiece if the norm has none of the three.
    """
    known = methods_of(norm)
    names = known if method is None else (method,)
    usable = ByDirections(norm) if QUASI_NEWTON in known else norm
    if not known:
        raise MissingPiece(
            f"norm: {norm.name} does not provide `prox`, `project_dual_ball` or `steepest`, so it cannot be solved"
        )
    frobenius = solve_frobenius(constraints, Settings())
    flat = constraints.with_one_axis()
    weights = np.array(frobenius.weights, dtype=np.float64).reshape(flat.batch_shape + flat.weights_shape)
    multipliers = np.array(frobenius.multipliers, dtype=np.float64).reshape(flat.inequality.shape)
    steps = np.zeros(len(weights), dtype=int)
    watch = Watch(settings.report)
    used, why = names[0], "the answer in the Frobenius norm is already optimal or infeasible"
    for k in np.flatnonzero(undecided(flat) & ~frobenius.ray.reshape(-1)):
        if watch.stopped:
            break
        one = Task(usable, names, settings.of_problem(int(k), constraints.batch_shape), watch)
        found, name = one.solve(flat[k : k + 1], weights[k : k + 1], multipliers[k : k + 1])
        weights[k], multipliers[k], steps[k] = found.weights[0], found.multipliers[0], found.steps[0]
        if name:
            used, why = name, WHY[name]
    if method is not None:
        why = "requested"
    return Candidate(weights, multipliers, frobenius.ray, steps, used, why).with_axes_of(constraints)


class Answer(NamedTuple):
    """The weights and multipliers of one problem."""

    point: Point
    method: str  # "" if the initial point is the answer


class Task(NamedTuple):
    """How one problem is solved."""

    norm: Norm
    names: Sequence[str]  # the methods that may be used
    settings: Settings
    watch: Watch

    def solve(self, constraints: Constraints, weights: Weights, multipliers: TokenValues) -> Answer:
        """Solve from the answer in the Frobenius norm."""
        if constraints.most_rows > MOST_ROWS:
            return self._grown(constraints, weights, multipliers)
        return self._solved(constraints, weights, multipliers)

    def _grown(self, constraints: Constraints, weights: Weights, multipliers: TokenValues) -> Answer:
        """Solve on a growing set of rows."""
        settings, used = self.settings, ""

        def solve(some: Constraints, tol: float, limit: int | None, before: Point | None) -> Point:
            nonlocal used
            own = replace(settings, tol=tol, max_steps=limit)
            if before is not None:
                own = replace(own, warm_start=before.weights[0], warm_multipliers=before.multipliers[0])
            point, name = self._replace(settings=own)._solved(some, weights, multipliers)
            used = name or used
            return point

        stopped, tol, limit = lambda: self.watch.stopped, settings.tol, settings.max_steps
        grown = growing_rows(constraints, weights, multipliers, solve, tol, limit, stopped, spare=2)
        return Answer(grown.point, used)

    def _solved(self, constraints: Constraints, weights: Weights, multipliers: TokenValues) -> Answer:
        """Solve with all rows, by one method after the other until one reaches the gap."""
        norm, _, settings, watch = self
        any_shape = norm.shape is None
        reduced = reduced_rows(
            constraints, left=any_shape and norm.left_invariant, right=any_shape and norm.right_invariant
        )
        unit = reduced.unit
        program = Program(norm, reduced.rows, unit.right[0], unit.equality[0])
        bounds = Bounds(program, reduced.contract(weights)[0], unit.gather(multipliers)[0])
        if settings.warm_start is not None:
            bounds.see_weights(reduced.contract(settings.warm_start[None])[0])
        if settings.warm_multipliers is not None:
            bounds.see_multipliers(unit.gather(settings.warm_multipliers[None])[0])
        size = bounds.upper if np.isfinite(bounds.upper) else 1.0
        program = replace(program, right=program.right / size)
        bounds = Bounds(program, bounds.weights / size, bounds.multipliers)
        target = max(0.5 * settings.tol, FINEST_TARGET)
        steps, used = 0, ""
        limit = NO_LIMIT if settings.max_steps is None else settings.max_steps
        for name, report in self._attempts(program):
            if bounds.gap <= target or watch.stopped or limit <= steps:
                break
            used = name
            with threads_for(len(program.right) ** 2):
                steps += METHODS[name](program, bounds, target, limit - steps, report)
        found = Point(
            reduced.expand(bounds.weights[None]),
            unit.spread(bounds.multipliers[None], constraints.inequality.shape[1:]),
            np.array([bounds.gap]),
            np.array([steps]),
        )
        return Answer(found, used)

    def _attempts(self, program: Program) -> list[tuple[str, Report]]:
        """Methods in the order in which they are tried, and what each reports its steps to."""
        small = len(program.right) * math.prod(program.shape) <= NEWTON_NUMBERS
        far = 0.0 if small else FAR

        def until_hard(step: int, gap: float) -> bool:
            return self.watch(step, gap) or (step >= EASY_STEPS and gap > far)

        def unless_close(step: int, gap: float) -> bool:
            return self.watch(step, gap) or (step == 0 and not small and gap <= CLOSE)

        if len(self.names) == 1:
            return [(self.names[0], self.watch)]
        if QUASI_NEWTON in self.names:
            return [(QUASI_NEWTON, self.watch), (SPLITTING, self.watch)]
        if len(program.right) > MOST_ROWS:
            return [(SPLITTING, self.watch)]
        both: list[tuple[str, Report]] = [(NEWTON, unless_close), (SPLITTING, unless_close)]
        return both if small and _computes_together(self.norm) else [(SPLITTING, until_hard), *both]


def _computes_together(norm: Norm) -> bool:
    """Whether a norm computes several proxes in one call: a step of Newton's method needs one for each row."""
    return type(norm).proxes is not Norm.proxes and all(map(_computes_together, norm.parts))
