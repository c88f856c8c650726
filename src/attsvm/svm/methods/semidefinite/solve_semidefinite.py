"""The least nuclear or spectral norm: from constraints to a candidate, many problems together."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from attsvm.norms import Norm
from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights
from attsvm.svm.constraints.pair_rows import Block, Reduced, reduced_rows
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.methods.batches import chunks, undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.growing import Growth, growing_rows
from attsvm.svm.methods.iteration import Point, Watch
from attsvm.svm.methods.semidefinite.cone import RIGID, Cone, Problems, Values
from attsvm.svm.methods.semidefinite.interior_point import interior_point

METHOD = "semidefinite"

GROWN_ROWS = 300
"""With more rows than this, a growing set of rows is used if the Frobenius norm needs less than a third of them."""

MOST_ROWS = 1500
"""With more rows than this, a growing set of rows is always used."""

CHUNK = 1_000_000
"""Numbers in the equations of problems solved together: more would not fit into the processor's cache."""

NEAR = 0.1
"""Multipliers of the Frobenius norm are raised to this, relative to the largest, to start inside the cone."""

ROUGH = 1e-3
"""The relative gap at which a growing set of rows is checked for missing ones."""

FINEST_TARGET = 1e-12
MAX_STEPS = 50


def solve_semidefinite(
    constraints: Constraints, norm: Norm, cone: Callable[[int], Cone], settings: Settings
) -> Candidate:
    """Least N(W) under the constraints, for a norm that is a semidefinite program.

    Parameters
    ----------
    constraints : Constraints
    norm : Norm
    cone : callable
        The cone of the norm, given d_k.
    settings : Settings

    Returns
    -------
    Candidate
        In the nuclear norm the weights have their true rank; in both norms they lie in the span of the queries.
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
    why = f"the {norm.name} norm is a semidefinite program with rows of rank one"
    for index in chunks(undecided(flat), entries, CHUNK):
        some = flat[index]
        # it shows which problems are infeasible, the size of the value, and which rows are active
        frobenius = _frobenius(some)
        ray[index] = frobenius.ray
        multipliers[index] = frobenius.multipliers
        go_on = index[~frobenius.ray]
        if len(go_on) == 0:
            continue
        own = replace(settings, warm_start=None if warm is None else warm[go_on])
        begin = _Begin(frobenius.weights[~frobenius.ray], frobenius.multipliers[~frobenius.ray])
        some = some[~frobenius.ray]
        if len(index) == 1 and _pays_to_grow(flat.most_rows, begin.multipliers):
            why += ", here on a growing set of them"
            found = _grown(some, norm, cone, own, begin, watch)
        else:
            found = _solve(some, norm, cone, own, begin, watch)
        weights[go_on], multipliers[go_on], steps[go_on] = found.weights, found.multipliers, found.steps
    return Candidate(weights, multipliers, ray, steps, METHOD, why).with_axes_of(constraints)


def _pays_to_grow(num_rows: int, multipliers: TokenValues) -> bool:
    return num_rows > MOST_ROWS or (num_rows > GROWN_ROWS and num_rows > 3 * int(np.count_nonzero(multipliers)))


class _Begin(NamedTuple):
    """The solution in the Frobenius norm, of each problem."""

    weights: Weights
    multipliers: TokenValues


def _grown(
    constraints: Constraints, norm: Norm, cone: Callable[[int], Cone], settings: Settings, begin: _Begin, watch: Watch
) -> Point:
    """Solve one problem on a growing set of rows."""
    unit = np.where(constraints.norms > 0, constraints.norms, 1.0)

    def solve(chosen: TokenMask, tol: float, limit: int | None, before: Weights | None) -> Point:
        some = replace(
            constraints, inequality=constraints.inequality & chosen, right=np.where(chosen, constraints.right, 0.0)
        )
        given = replace(settings, tol=tol, max_steps=limit)
        return _solve(some, norm, cone, given if before is None else replace(given, warm_start=before), begin, watch)

    def allowed(tol: float, length: float) -> TokenValues:
        return np.where(constraints.margin_mask, 0.1 * tol * constraints.right / unit, RIGID * length)

    growth = Growth(ROUGH, lambda likely: likely, allowed)
    return growing_rows(
        constraints, *begin, growth, solve, settings.tol, settings.max_steps, lambda: watch.stopped
    ).point


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
    top = np.max(np.abs(multipliers), axis=-1, keepdims=True)
    starts = (
        np.where(reduced.unit.equality, multipliers, np.maximum(multipliers, NEAR * top)),
        np.where(reduced.unit.equality, 0.0, np.where(reduced.unit.right > 0, 1.0, 0.1)),
    )
    for start in starts:
        index = np.flatnonzero(best.gap > settings.tol)
        if len(index) == 0 or watch.stopped:
            break
        _improve(
            best,
            reduced.keep(index),
            index,
            cone(reduced.rows.left.shape[-1]),
            sizes[index],
            start[index],
            settings,
            watch,
        )
    _keep_known(reduced, norm, best, known, sizes, settings.tol)
    shape = constraints.inequality.shape[1:]
    return best._replace(weights=reduced.expand(best.weights), multipliers=reduced.unit.spread(best.multipliers, shape))


def _frobenius(constraints: Constraints) -> Candidate:
    """The answer in the Frobenius norm; one problem takes another way than many."""
    if constraints.batch_shape != (1,):
        return solve_frobenius(constraints, Settings())
    found = solve_frobenius(constraints[0], Settings())
    return found._replace(
        weights=found.weights[None], multipliers=found.multipliers[None], ray=found.ray[None], steps=found.steps[None]
    )


def _keep_known(reduced: Reduced, norm: Norm, best: Point, known: Block, sizes: Values, tol: float) -> None:
    """Keep the initial weights where the iteration ended early with worse ones."""
    short = best.gap > tol
    if not short.any():
        return
    rigid = np.any(reduced.unit.equality | (reduced.unit.right == 0), axis=-1)
    better = short & np.where(rigid, best.gap == np.inf, sizes < _sizes(reduced, norm, best.weights))
    best.weights[better] = known[better]


def _sizes(reduced: Reduced, norm: Norm, weights: Block) -> Values:
    """Values of weights scaled to a margin of 1; ∞ where the margin is not positive."""
    margin = _margin(reduced, weights)
    sizes = norm.values(weights) / np.where(margin > 0, margin, 1.0)
    return np.where((margin > 0) & (sizes > 0), sizes, np.inf)


def _margin(reduced: Reduced, weights: Block) -> Values:
    """The smallest margin, relative to the right side."""
    asked = reduced.unit.right > 0
    return np.asarray(
        np.min(
            reduced.rows.apply(weights) / np.where(asked, reduced.unit.right, 1.0), axis=-1, where=asked, initial=np.inf
        )
    )


def _improve(
    best: Point,
    reduced: Reduced,
    index: Int[np.ndarray, " some"],
    cone: Cone,
    sizes: Values,
    start: RowVector,
    settings: Settings,
    watch: Watch,
) -> None:
    """Solve the problems at ``index``, and keep the results that are better than those known so far."""
    limit = MAX_STEPS if settings.max_steps is None else settings.max_steps - int(best.steps[index].max())
    if limit <= 0:
        return
    # the value becomes about 1
    right = np.where(reduced.unit.right > 0, reduced.unit.right / sizes[:, None], reduced.unit.right)
    problems = Problems(reduced.rows, right, reduced.unit.equality)
    target = max(0.2 * settings.tol, FINEST_TARGET)
    found = cone.cleaned(problems, interior_point(cone, problems, start, target, limit, watch), target)
    best.steps[index] += found.steps
    best.improve(index, found)
