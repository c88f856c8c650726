"""The least nuclear or spectral norm: from constraints to a candidate, many problems together."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from attsvm._utils.linear_algebra import singular_values
from attsvm.norms import Norm
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.constraints.pair_rows import Block, Reduced, reduced_rows
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.frobenius.choice import solve_frobenius
from attsvm.svm.loop import Point, Watch
from attsvm.svm.methods.batches import chunks, undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.generic.solve_generic import SPLITTING, solve_one
from attsvm.svm.methods.growing import growing_rows
from attsvm.svm.methods.semidefinite.cone import Cone, Problems, Values
from attsvm.svm.methods.semidefinite.directly import solve_directly
from attsvm.svm.methods.semidefinite.face import Face
from attsvm.svm.methods.semidefinite.interior_point import interior_point

METHOD = "semidefinite"

METHODS = METHOD, SPLITTING

SPLIT_NUMBERS = 300_000
"""With at least this many numbers in the rows, the splitting is faster than the interior point."""

SPLIT_STEPS = 400
"""Steps of the splitting after which the interior point is used; most problems need 100 to 300."""

GROWN_ROWS = 300
"""With more rows than this, a growing set of rows is used if the Frobenius norm needs less than a third of them."""

MOST_ROWS = 1500
"""With more rows than this, a growing set of rows is always used."""

CHUNK = 1_000_000
"""Numbers in the equations of problems solved together: more would not fit into the processor's cache."""

NEAR = 0.1
"""Multipliers of the Frobenius norm are raised to this, relative to the largest, to start inside the cone."""

FINEST_TARGET = 1e-12
EXACT = 1e-11
"""Gaps below this are those of the direct method, or as good."""

MAX_STEPS = 50

DIRECT_ROWS = 400
"""Up to so many rows the face is looked for from the answer in the Frobenius norm, before the interior point."""

SHRINK = 0.9
"""The dual norm of A*(λ) at this start."""


def solve_semidefinite(
    constraints: Constraints, norm: Norm, cone: Callable[[int], Cone], settings: Settings, method: str | None = None
) -> Candidate:
    """Minimise N(W) under the constraints, for a norm that is a semidefinite program.

    ``cone``: the cone of the norm, given d_k. ``method``: "semidefinite"; by default, large problems use
    Douglas-Rachford splitting. Small ones start with Newton's method on the face that the Frobenius solution suggests,
    except with a callback or a limit of steps; the interior-point method solves those on which it fails.

    In the nuclear norm the weights have their true rank. In both norms they lie in the span of the queries.
    """
    flat = constraints.with_one_axis()
    size = flat.batch_shape[0]
    weights = np.zeros((size, *flat.weights_shape))
    multipliers = np.zeros(flat.inequality.shape)
    ray = np.zeros(size, bool)
    steps = np.zeros(size, int)
    warm = None if settings.warm_start is None else settings.warm_start.reshape(weights.shape)
    watch = Watch(settings.report)
    entries = flat.most_rows * max(flat.most_rows, math.prod(flat.weights_shape))
    how = _How(METHOD, f"the {norm.name} norm is a semidefinite program with rows of rank one")
    split = method is None and _row_numbers(flat) >= SPLIT_NUMBERS
    for index in chunks(undecided(flat), entries, CHUNK):
        some = flat if len(index) == size else flat[index]
        # it shows which problems are infeasible, the size of the value, and which rows are active
        frobenius = _frobenius(some if constraints.batch_shape else constraints)
        ray[index] = frobenius.ray
        multipliers[index] = frobenius.multipliers
        go_on = index[~frobenius.ray]
        if len(go_on) == 0:
            continue
        own = settings if warm is None else replace(settings, warm_start=warm[go_on])
        begin = _Begin(frobenius.weights, frobenius.multipliers)
        if len(go_on) < len(index):
            some, begin = some[~frobenius.ray], _Begin(*(part[~frobenius.ray] for part in begin))
        if len(index) == 1:
            found, how = _alone(some, norm, cone, own, begin, watch, split)
        else:
            found = _solve(some, norm, cone, own, begin, watch)
        weights[go_on], multipliers[go_on], steps[go_on] = found.weights, found.multipliers, found.steps
    return Candidate(weights, multipliers, ray, steps, *how).with_axes_of(constraints)


def _row_numbers(constraints: Constraints) -> int:
    """Numbers in the rows of the largest problem, in the span of the data."""
    *_, n, Q, _ = constraints.inequality.shape
    d_k, d_q = constraints.weights_shape
    rows = constraints.most_rows
    return int(rows * min(d_k, rows) * min(d_q, n * Q))


def _pays_to_grow(num_rows: int, multipliers: TokenValues) -> bool:
    return num_rows > MOST_ROWS or (num_rows > GROWN_ROWS and num_rows > 3 * int(np.count_nonzero(multipliers)))


class _Begin(NamedTuple):
    """The solution in the Frobenius norm, of each problem."""

    weights: Weights
    multipliers: TokenValues


class _How(NamedTuple):
    """The method that was used, and why."""

    method: str
    why: str


def _alone(
    constraints: Constraints,
    norm: Norm,
    cone: Callable[[int], Cone],
    settings: Settings,
    begin: _Begin,
    watch: Watch,
    split: bool,
) -> tuple[Point, _How]:
    """Solve one problem; first by the splitting, if ``split``."""
    steps = 0
    if split:
        found = _split(constraints, norm, settings, begin, watch)
        steps = int(found.steps[0])
        if found.gap[0] <= settings.tol or watch.stopped or steps == settings.max_steps:
            return found, _How(SPLITTING, f"a large problem: proximal steps of the {norm.name} norm")
        left = None if settings.max_steps is None else settings.max_steps - steps
        settings = replace(settings, warm_start=found.weights, max_steps=left)
    why = f"the {norm.name} norm is a semidefinite program with rows of rank one"
    if _pays_to_grow(constraints.most_rows, begin.multipliers):
        found = _grown(constraints, norm, cone, settings, begin, watch)
        why += ", here on a growing set of them"
    else:
        found = _solve(constraints, norm, cone, settings, begin, watch)
    return found._replace(steps=found.steps + steps), _How(METHOD, why)


def _split(constraints: Constraints, norm: Norm, settings: Settings, begin: _Begin, watch: Watch) -> Point:
    """Solve one problem by the splitting, in a number of steps that is usually enough."""
    limit = SPLIT_STEPS if settings.max_steps is None else min(SPLIT_STEPS, settings.max_steps)
    own = replace(settings, max_steps=limit, warm_start=settings.warm_start, warm_multipliers=None)
    if own.warm_start is not None:
        own = replace(own, warm_start=own.warm_start[0])
    return solve_one(constraints, norm, (SPLITTING,), own, watch, *begin)[0]


def _grown(
    constraints: Constraints, norm: Norm, cone: Callable[[int], Cone], settings: Settings, begin: _Begin, watch: Watch
) -> Point:
    """Solve one problem on a growing set of rows."""

    def solve(some: Constraints, tol: float, limit: int | None, before: Point | None) -> Point:
        given = replace(settings, tol=tol, max_steps=limit)
        return _solve(
            some, norm, cone, given if before is None else replace(given, warm_start=before.weights), begin, watch
        )

    return growing_rows(constraints, *begin, solve, settings.tol, settings.max_steps, lambda: watch.stopped).point


def _solve(
    constraints: Constraints, norm: Norm, cone: Callable[[int], Cone], settings: Settings, begin: _Begin, watch: Watch
) -> Point:
    """Solve some problems together, each from a feasible pair."""
    reduced = reduced_rows(constraints)
    known, multipliers = reduced.contract(begin.weights), reduced.unit.gather(begin.multipliers)
    best = Point.unsolved(np.zeros_like(known), multipliers)
    sizes = _sizes(reduced, norm, known)
    if settings.warm_start is not None:
        warm = reduced.contract(settings.warm_start)
        warm_sizes = _sizes(reduced, norm, warm)
        shorter = warm_sizes < sizes
        known[shorter], sizes[shorter] = warm[shorter], warm_sizes[shorter]
    sizes = np.where(np.isfinite(sizes), sizes, 1.0)
    # the value becomes about 1
    asked = reduced.unit.right > 0
    right = np.where(asked, reduced.unit.right / sizes[:, None], reduced.unit.right)
    problems = Problems(reduced.rows, right, reduced.unit.equality)
    own_cone = cone(reduced.rows.left.shape[-1])
    if settings.report is None and settings.max_steps is None and reduced.rows.left.shape[1] <= DIRECT_ROWS:
        _directly(best, problems, own_cone.face, known / sizes[:, None, None], multipliers, settings)
    for start in (_raised, _even):
        index = (best.gap > settings.tol).nonzero()[0]
        if len(index) == 0 or watch.stopped:
            break
        own = problems if len(index) == len(sizes) else problems.keep(index)
        _improve(best, own, index, own_cone, start(own, multipliers[index]), settings, watch)
    _keep_known(reduced, norm, best, known, sizes, settings.tol)
    shape = constraints.inequality.shape[1:]
    return best._replace(weights=reduced.expand(best.weights), multipliers=reduced.unit.spread(best.multipliers, shape))


def _frobenius(constraints: Constraints) -> Candidate:
    """The answer in the Frobenius norm, with one batch axis; one problem takes another way than many."""
    if math.prod(constraints.batch_shape) != 1:
        return solve_frobenius(constraints, Settings())
    found = solve_frobenius(constraints[0] if constraints.batch_shape else constraints, Settings())
    return found._replace(
        weights=found.weights[None], multipliers=found.multipliers[None], ray=found.ray[None], steps=found.steps[None]
    )


def _keep_known(reduced: Reduced, norm: Norm, best: Point, known: Block, sizes: Values, tol: float) -> None:
    """Keep the initial weights where the iteration ended early with worse ones."""
    short = best.gap > tol
    if not np.count_nonzero(short):
        return
    rigid = np.any(reduced.unit.equality | (reduced.unit.right == 0), axis=-1)
    better = short & np.where(rigid, best.gap == np.inf, sizes < _sizes(reduced, norm, best.weights))
    best.weights[better] = known[better]


def _sizes(reduced: Reduced, norm: Norm, weights: Block) -> Values:
    """Values of weights scaled to a margin of 1; ∞ where the margin is not positive."""
    margin = _margin(reduced, weights)
    positive = margin > 0
    sizes = norm.values(weights) / np.where(positive, margin, 1.0)
    return np.where(positive & (sizes > 0), sizes, np.inf)


def _margin(reduced: Reduced, weights: Block) -> Values:
    """The smallest margin, relative to the right side."""
    right = reduced.unit.right
    asked = right > 0
    relative = reduced.rows.apply(weights) / np.where(asked, right, 1.0)
    return np.asarray(np.minimum.reduce(relative, axis=-1, where=asked, initial=np.inf))


def _raised(problems: Problems, multipliers: RowVector) -> RowVector:
    """A start inside the cone: multipliers that are not too small."""
    top = np.max(np.abs(multipliers), axis=-1, keepdims=True)
    return np.where(problems.equality, multipliers, np.maximum(multipliers, NEAR * top))


def _even(problems: Problems, multipliers: RowVector) -> RowVector:
    """A start that does not depend on the multipliers."""
    return np.where(problems.equality, 0.0, np.where(problems.asked, 1.0, 0.1))


def _directly(
    best: Point, problems: Problems, face: Face, weights: Block, multipliers: RowVector, settings: Settings
) -> None:
    """Solve all problems on their faces from an answer in another norm, which is often near enough; keep exact results.

    The steps have no gap that could be reported.
    """
    sigma = singular_values(problems.rows.adjoint(multipliers))
    _, size = face.values(sigma, sigma)
    held = (multipliers > 0) | problems.equality
    value = np.ones(len(size))
    start = multipliers * (SHRINK / size)[:, None]
    found = solve_directly(face, problems, weights, start, held, value, _target(settings))
    done = found.gap <= EXACT
    best.improve(np.arange(len(done)), found._replace(gap=np.where(done, found.gap, np.inf)))
    best.steps[done] = found.steps[done]


def _target(settings: Settings) -> float:
    """The gap at which an iteration ends."""
    return max(0.2 * settings.tol, FINEST_TARGET)


def _improve(
    best: Point,
    problems: Problems,
    index: Int[np.ndarray, " some"],
    cone: Cone,
    start: RowVector,
    settings: Settings,
    watch: Watch,
) -> None:
    """Solve the problems at ``index``, and keep the results that are better than those known so far."""
    limit = MAX_STEPS if settings.max_steps is None else settings.max_steps - int(best.steps[index].max())
    if limit <= 0:
        return
    target = _target(settings)
    found = interior_point(cone, problems, start, target, limit, watch)
    if (found.gap > EXACT).any():  # the others ended on their face
        found = cone.cleaned(problems, found, target)
    best.steps[index] += found.steps
    best.improve(index, found)
