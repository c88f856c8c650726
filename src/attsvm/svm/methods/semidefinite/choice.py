"""The least nuclear or spectral norm: which method solves which problems.

Three methods, each the fastest somewhere: Newton's method on a face (``face.py``) for small problems; the interior
point (``interior_point.py``) where that fails, as on nearly infeasible problems; and Douglas-Rachford splitting
(``generic/douglas_rachford.py``) for large problems.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm._utils.linear_algebra import singular_values
from attsvm.norms import Norm, Nuclear, Spectral
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.rows import Block, ReducedRows, RowVector, reduced_rows
from attsvm.svm.loop import Point, Stop
from attsvm.svm.methods.from_frobenius import Solved, Unsolved, from_frobenius
from attsvm.svm.methods.generic.choice import EASY_STEPS, SPLITTING, solve_generic, solve_one
from attsvm.svm.methods.growing import MOST_ROWS, growing_rows
from attsvm.svm.methods.predictor_corrector import Values, raised
from attsvm.svm.methods.registry import Candidate, SolverSettings, solver, undecided
from attsvm.svm.methods.semidefinite.cone import Cone, NuclearCone, SpectralCone
from attsvm.svm.methods.semidefinite.face import solve_on_face
from attsvm.svm.methods.semidefinite.interior_point import interior_point
from attsvm.svm.methods.semidefinite.problems import MatrixProblems
from attsvm.svm.tolerances import ROUNDED

METHOD = "semidefinite"

METHODS = METHOD, SPLITTING

SPLIT_NUMBERS = 300_000
"""With at least this many numbers in the rows, the splitting is faster than the interior point."""

MANY_ROWS = 300
"""With more rows than this, a growing set of rows is used if the Frobenius norm needs less than a third of them, and
the interior point is not preceded by the search for a face from the answer in the Frobenius norm."""


@solver(Nuclear, methods=METHODS)
def solve_nuclear(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Least nuclear norm, to which training the factors of W = K Q' converges; the weights have their true rank."""
    if method == SPLITTING or constraints.blocks is not None:  # of rank two
        return solve_generic(constraints, norm, settings, method)
    return solve_semidefinite(constraints, norm, NuclearCone, settings, method)


@solver(Spectral, methods=METHODS)
def solve_spectral(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Least spectral norm, to which spectral descent and Muon are conjectured to converge."""
    if method == SPLITTING or constraints.blocks is not None:  # of rank two
        return solve_generic(constraints, norm, settings, method)
    return solve_semidefinite(constraints, norm, SpectralCone, settings, method)


def solve_semidefinite(
    constraints: Constraints,
    norm: Norm,
    cone: Callable[[int], Cone],
    settings: SolverSettings,
    method: str | None = None,
) -> Candidate:
    """Minimise N(W) under the constraints, many problems together, for a norm that is a semidefinite program.

    The answer in the Frobenius norm shows the size of the value, and which rows are probably active. The weights lie in
    the span of the data.

    ``cone``: the cone of the norm, given d_k. ``method``: "semidefinite" leaves out the splitting.
    """
    solve = _SemidefiniteSolve(norm, cone, method is not None).solve
    # one problem takes another way in the Frobenius norm than many
    alone = math.prod(constraints.batch_shape) == 1 or np.count_nonzero(undecided(constraints)) == 1
    return from_frobenius(constraints, settings, solve, METHOD, constraints.most_rows**2, alone)


def _row_numbers(constraints: Constraints) -> int:
    """Return how many numbers are in the rows of the largest problem, in the span of the data."""
    *_, n, Q, _ = constraints.inequality.shape
    d_k, d_q = constraints.weights_shape
    rows = constraints.most_rows
    return int(rows * min(d_k, rows) * min(d_q, n * Q))


class _SemidefiniteSolve(NamedTuple):
    """How problems are solved, from their answers in the Frobenius norm."""

    norm: Norm
    cone: Callable[[int], Cone]
    forced: bool

    def solve(self, given: Unsolved) -> Solved:
        """Solve some problems together, or one by its size."""
        if len(given.weights) > 1:
            return self.solve_rows(given), METHOD, self.why
        large = not self.forced and _row_numbers(given.constraints) >= SPLIT_NUMBERS
        return self.solve_large(given) if large else self.solve_small(given)

    @property
    def why(self) -> str:
        return f"the {self.norm.name} norm is a semidefinite program with rows of rank one"

    def solve_large(self, given: Unsolved) -> Solved:
        """Solve one problem by the splitting, then by the other methods if it is not enough."""
        settings = given.settings
        # splitting, in a number of steps that is usually enough
        limit = EASY_STEPS if settings.max_steps is None else min(EASY_STEPS, settings.max_steps)
        found, _ = solve_one(given.set(max_steps=limit, warm_multipliers=None), self.norm, (SPLITTING,))
        steps = int(found.steps[0])
        if found.gap[0] <= settings.tol or given.watch.stopped or steps == settings.max_steps:
            return found, SPLITTING, f"a large problem: proximal steps of the {self.norm.name} norm"
        # the rest starts from its weights
        left = None if settings.max_steps is None else settings.max_steps - steps
        found, method, why = self.solve_small(given.set(warm_start=found.weights, max_steps=left))
        return found._replace(steps=found.steps + steps), method, why

    def solve_small(self, given: Unsolved) -> Solved:
        """Solve one problem without the splitting, on a growing set of rows if there are many."""
        rows = given.constraints.most_rows
        # the active rows of the Frobenius norm are a guess of those of this norm
        few_active = rows > 3 * int(np.count_nonzero(given.multipliers))
        if not (rows > MOST_ROWS or (rows > MANY_ROWS and few_active)):
            return self.solve_rows(given), METHOD, self.why
        return growing_rows(given, self.solve_rows).point, METHOD, f"{self.why}, here on a growing set of them"

    def solve_rows(self, given: Unsolved) -> Point:
        """Solve some problems together, with all rows: first on their faces, then by the interior point."""
        constraints, weights, multipliers, settings, watch = given
        norm = self.norm
        reduced = reduced_rows(constraints)
        known, own_multipliers = reduced.contract(weights), reduced.unit.gather(multipliers)
        # the better one of the Frobenius answer and the warm start, scaled to a margin of 1, is feasible
        sizes = _sizes(reduced, norm, known)
        if settings.warm_start is not None:
            warm = reduced.contract(settings.warm_start)
            warm_sizes = _sizes(reduced, norm, warm)
            shorter = warm_sizes < sizes
            known[shorter], sizes[shorter] = warm[shorter], warm_sizes[shorter]
        sizes = np.where(np.isfinite(sizes), sizes, 1.0)
        # the value becomes about 1
        gain = reduced.unit.gain / sizes[:, None]
        right = np.where(reduced.unit.there, gain, -1.0)
        problems = MatrixProblems(reduced.rows, right, gain, reduced.unit.equality)
        cone = self.cone(reduced.rows.left.shape[-1])
        best = Point.unsolved(np.zeros_like(known), own_multipliers)
        target = max(0.2 * settings.tol, ROUNDED)
        # the steps on a face have no gap that could be reported
        if settings.report is None and settings.max_steps is None and right.shape[1] <= MANY_ROWS:
            self._on_faces(best, problems, cone, known / sizes[:, None, None], own_multipliers, target)
        # the second start is for problems whose Frobenius multipliers are far from those of this norm
        for start in (own_multipliers, np.where(problems.asked, 1.0, 0.0)):
            index = np.flatnonzero(best.gap > settings.tol)
            if len(index) == 0 or watch.stopped:
                break
            stop = Stop(target)
            if settings.max_steps is not None:
                stop = stop._replace(max_steps=settings.max_steps - int(best.steps[index].max()))
            if stop.max_steps > 0:
                own = problems if len(index) == len(sizes) else problems.select(index)
                found = interior_point(cone, own, raised(start[index], own.equality), stop, watch)
                best.steps[index] += found.steps
                best.improve(index, cone.cleaned(own, found, target))
        _keep_known(reduced, norm, best, known, sizes, settings.tol)
        shape = constraints.inequality.shape[1:]
        all_weights, all_multipliers = reduced.expand(best.weights), reduced.unit.spread(best.multipliers, shape)
        return best._replace(weights=all_weights, multipliers=all_multipliers)

    def _on_faces(
        self, best: Point, problems: MatrixProblems, cone: Cone, weights: Block, multipliers: RowVector, target: float
    ) -> None:
        """Solve all problems on the faces of their Frobenius answers, which are often near enough."""
        # A*(λ) a little inside the dual ball, and W of value 1
        sigma = singular_values(problems.rows.adjoint(multipliers))
        _, size = cone.face.values(sigma, sigma)
        held, start = (multipliers > 0) | problems.equality, multipliers * (0.9 / size)[:, None]
        found = solve_on_face(cone.face, problems, weights, start, held, np.ones(len(size)), target)
        done = found.gap <= target
        best.improve(np.arange(len(done)), found._replace(gap=np.where(done, found.gap, np.inf)))
        best.steps[done] = found.steps[done]


def _keep_known(reduced: ReducedRows, norm: Norm, best: Point, known: Block, sizes: Values, tol: float) -> None:
    """Keep the initial weights where the iteration ended early with worse ones."""
    short = best.gap > tol
    if not np.count_nonzero(short):
        return
    rigid = np.any(reduced.unit.there & (reduced.unit.right <= 0), axis=-1)
    better = short & np.where(rigid, best.gap == np.inf, sizes < _sizes(reduced, norm, best.weights))
    best.weights[better] = known[better]


def _sizes(reduced: ReducedRows, norm: Norm, weights: Block) -> Values:
    """Return the values of weights scaled to a margin of 1; ∞ where the margin is not positive."""
    right = reduced.unit.right
    asked = right > 0
    relative = reduced.rows.apply(weights) / np.where(asked, right, 1.0)
    margin = np.minimum.reduce(relative, axis=-1, where=asked, initial=np.inf)
    positive = margin > 0
    sizes = norm.values(weights) / np.where(positive, margin, 1.0)
    return np.where(positive & (sizes > 0), sizes, np.inf)
