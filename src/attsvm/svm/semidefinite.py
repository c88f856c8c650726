"""The least nuclear or spectral norm: from constraints to a candidate, many problems together."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from attsvm.norms import Norm
from attsvm.svm.candidate import Candidate, Settings
from attsvm.svm.certificate import unattainable
from attsvm.svm.constraints import Constraints
from attsvm.svm.frobenius import solve_frobenius
from attsvm.svm.nuclear import NuclearCone
from attsvm.svm.pair_rows import Block, Reduced, RowVector, reduced_rows
from attsvm.svm.semidefinite_growing import Solved, growing_rows
from attsvm.svm.semidefinite_interior import Cone, InteriorPoint, Problems, Values, interior_point, measure
from attsvm.svm.spectral import SpectralCone

METHODS = ("semidefinite",)

FEW_ROWS = 200
"""Rows up to which the Frobenius solution costs nothing: it tells the infeasible problems and the value's size."""

GROWN_ROWS = 1500
"""Rows of one problem beyond which they are taken in as they are needed."""

CHUNK = 1_000_000
"""Numbers in the equations of problems solved together: more would leave the processor's cache."""

FINEST_TARGET = 1e-12
MAX_STEPS = 50

NEGLIGIBLE = 1e-6
"""Singular values that are tried without, relative to the first."""

ALL_TOKENS = (-3, -2, -1)


def solve_semidefinite(constraints: Constraints, norm: Norm, settings: Settings) -> Candidate:
    """Least nuclear or spectral ‖W‖ under the constraints.

    Parameters
    ----------
    constraints : Constraints
    norm : Norm
        Nuclear or spectral.
    settings : Settings

    Returns
    -------
    Candidate
        Of its true rank in the nuclear norm; without a component off the queries' span in either.
    """
    flat = constraints.with_one_axis()
    size = flat.lead[0]
    weights = np.zeros((size, *flat.weights_shape))
    multipliers = np.zeros(flat.inequality.shape)
    ray = np.zeros(size, bool)
    steps = np.zeros(size, int)
    # nothing to do where 0 is the solution, or a row of zeros leaves none
    to_solve = np.asarray(flat.margin_mask.any(axis=ALL_TOKENS) & ~unattainable(flat).any(axis=ALL_TOKENS))
    warm = None if settings.warm_start is None else settings.warm_start.reshape(weights.shape)
    watch = _Watch(settings.callback)
    most_rows = int(flat.rows_mask.sum(axis=ALL_TOKENS).max(initial=0))
    for index in _chunks(flat, most_rows, to_solve):
        own = replace(settings, warm_start=None if warm is None else warm[index])
        solve = _solve if most_rows <= GROWN_ROWS else _solve_growing
        weights[index], multipliers[index], ray[index], steps[index] = solve(flat[index], norm, own, watch)
    return Candidate(
        weights.reshape(*constraints.lead, *constraints.weights_shape),
        multipliers.reshape(constraints.inequality.shape),
        ray.reshape(constraints.lead),
        steps.reshape(constraints.lead),
        METHODS[0],
        f"the {norm.kind} norm is a semidefinite program with rows of rank one"
        + (", here on a growing set of them" if most_rows > GROWN_ROWS else ""),
    )


class _Watch:
    """The user's callback over several iterations: it goes on counting steps, and remembers that it said stop."""

    def __init__(self, callback: Callable[[int, float], object] | None) -> None:
        self.callback = callback
        self.stopped = False
        self._before = self._last = 0

    def __call__(self, step: int, gap: float) -> bool:
        if step == 0:
            self._before = self._last
        self._last = self._before + step
        if self.callback is not None and not self.stopped:
            self.stopped = bool(self.callback(self._last, gap))
        return self.stopped


def _chunks(
    constraints: Constraints, most_rows: int, chosen: Bool[np.ndarray, " N"]
) -> Iterator[Int[np.ndarray, " chunk"]]:
    entries = most_rows * max(most_rows, int(np.prod(constraints.weights_shape)))
    length = max(1, CHUNK // max(1, entries))
    index = np.flatnonzero(chosen)
    for first in range(0, len(index), length):
        yield index[first : first + length]


def _solve(constraints: Constraints, norm: Norm, settings: Settings, watch: "_Watch") -> Solved:
    """Weights, multipliers, which of them are Farkas multipliers, and steps."""
    reduced = reduced_rows(constraints)
    best = _nothing_found(reduced)
    everything = np.arange(len(reduced.right))
    plain = np.where(reduced.equality, 0.0, np.where(reduced.right > 0, 1.0, 0.1))
    ray, spread = np.zeros(len(everything), bool), np.zeros(constraints.inequality.shape)
    if len(reduced.position) <= FEW_ROWS:
        frobenius = _frobenius(constraints)
        ray, spread = frobenius.ray.copy(), frobenius.multipliers
        known, best.multipliers[:] = reduced.contract(frobenius.weights), reduced.gather(spread)
        sizes = _sizes(reduced, norm, known)
    else:
        known, sizes = np.zeros_like(best.weights), _guess(reduced, norm, plain)
    if settings.warm_start is not None:
        warm = reduced.contract(settings.warm_start)
        keeps = _margin(reduced, warm) > 0
        known[keeps], sizes[keeps] = warm[keeps], _sizes(reduced, norm, warm)[keeps]
    index = everything[~ray]
    _improve(best, reduced.take(index), index, norm, sizes[index], plain[index], settings, watch)

    for k in np.flatnonzero(~ray & (best.gap > settings.tol)):
        # infeasible, or begun too far off
        if watch.stopped:
            break
        one = np.array([k])
        frobenius = _frobenius(constraints[one])
        ray[k], spread[k] = frobenius.ray[0], frobenius.multipliers[0]
        if ray[k]:
            continue
        own = reduced.take(one)
        weights, multipliers = own.contract(frobenius.weights), own.gather(frobenius.multipliers)
        if best.gap[k] == np.inf:
            known[k], best.multipliers[k] = weights[0], multipliers[0]
        top = np.max(np.abs(multipliers), axis=-1, keepdims=True)
        start = np.where(own.equality, multipliers, np.maximum(multipliers, 0.2 * top))
        _improve(best, own, one, norm, _sizes(own, norm, weights), start, settings, watch)
    _keep_known(reduced, norm, best, known, settings.tol)
    found = reduced.spread(best.multipliers, constraints.inequality.shape[1:])
    spread = np.where(ray[:, None, None, None], spread, found)
    return reduced.expand(best.weights), spread, ray, best.steps


def _solve_growing(constraints: Constraints, norm: Norm, settings: Settings, watch: "_Watch") -> Solved:
    """The same for one large problem."""
    frobenius = _frobenius(constraints)
    if frobenius.ray.any():
        return frobenius.weights, frobenius.multipliers, frobenius.ray, np.zeros(1, int)
    return growing_rows(
        constraints, frobenius, settings, lambda some, own: _solve(some, norm, own, watch), lambda: watch.stopped
    )


def _frobenius(constraints: Constraints) -> Candidate:
    """The answer in the Frobenius norm; one problem takes another way than many."""
    if constraints.lead != (1,):
        return solve_frobenius(constraints, Settings())
    found = solve_frobenius(constraints[0], Settings())
    return found._replace(
        weights=found.weights[None], multipliers=found.multipliers[None], ray=found.ray[None], steps=found.steps[None]
    )


def _nothing_found(reduced: Reduced) -> InteriorPoint:
    count, _, key_dim = reduced.rows.left.shape
    return InteriorPoint(
        np.zeros((count, key_dim, reduced.rows.queries.shape[-1])),
        np.zeros_like(reduced.right),
        np.full(count, np.inf),
        np.zeros(count, int),
    )


def _keep_known(reduced: Reduced, norm: Norm, best: InteriorPoint, known: Block, tol: float) -> None:
    """Where the iteration ended early, the weights it was given may be better than those it came to."""
    if np.all(best.gap <= tol):
        return
    rigid = np.any(reduced.equality | (reduced.right == 0), axis=-1)
    margin, known_margin = _margin(reduced, best.weights), _margin(reduced, known)
    shorter = norm.value(known) * np.maximum(margin, 0) < norm.value(best.weights) * known_margin
    better = (best.gap > tol) & (known_margin > 0) & np.where(rigid, best.gap == np.inf, shorter | (margin <= 0))
    best.weights[better] = known[better]


def _sizes(reduced: Reduced, norm: Norm, weights: Block) -> Values:
    """Values of weights scaled to a margin of 1."""
    margin = _margin(reduced, weights)
    with np.errstate(all="ignore"):
        sizes = norm.value(weights) / margin
    return np.where((margin > 0) & np.isfinite(sizes) & (sizes > 0), sizes, 1.0)


def _margin(reduced: Reduced, weights: Block) -> Values:
    """The smallest margin, relative to what is asked."""
    asked = reduced.right > 0
    return np.min(
        reduced.rows.apply(weights) / np.where(asked, reduced.right, 1.0), axis=-1, where=asked, initial=np.inf
    )


def _guess(reduced: Reduced, norm: Norm, multipliers: RowVector) -> Values:
    """The value, if the weights A*(λ) had the same margin everywhere."""
    weights = reduced.rows.adjoint(multipliers)
    asked = reduced.right > 0
    margin = np.where(asked, reduced.rows.apply(weights), 0.0).sum(axis=-1)
    wanted = np.where(asked, reduced.right, 0.0).sum(axis=-1)
    with np.errstate(all="ignore"):
        sizes = norm.value(weights) * wanted / margin
    return np.where((margin > 0) & np.isfinite(sizes) & (sizes > 0), sizes, 1.0)


def _improve(
    best: InteriorPoint,
    reduced: Reduced,
    index: Int[np.ndarray, " some"],
    norm: Norm,
    sizes: Values,
    start: RowVector,
    settings: Settings,
    watch: "_Watch",
) -> None:
    """Solve the problems at ``index`` and write down what is better than what is known of them."""
    if len(index) == 0:
        return
    limit = MAX_STEPS if settings.max_steps is None else settings.max_steps - int(best.steps[index].max())
    if limit <= 0:
        return
    # the value becomes about 1
    right = np.where(reduced.right > 0, reduced.right / sizes[:, None], reduced.right)
    problems = Problems(reduced.rows, right, reduced.equality)
    cone: Cone = (NuclearCone if norm.kind == "nuclear" else SpectralCone)(reduced.rows.left.shape[-1])
    target = max(0.2 * settings.tol, FINEST_TARGET)
    found = interior_point(cone, problems, start, target, limit, watch)
    if norm.kind == "nuclear":
        found = _at_their_rank(problems, found, target)
    best.steps[index] += found.steps
    better = found.gap < best.gap[index]
    index = index[better]
    best.weights[index], best.multipliers[index] = found.weights[better], found.multipliers[better]
    best.gap[index] = found.gap[better]


def _at_their_rank(problems: Problems, found: InteriorPoint, target: float) -> InteriorPoint:
    """The weights without the singular values that an interior point keeps above 0, where the gap does not mind."""
    U, sigma, Vt = np.linalg.svd(found.weights, full_matrices=False)
    sigma = np.where(sigma > NEGLIGIBLE * sigma[:, :1], sigma, 0.0)
    weights = (U * sigma[:, None, :]) @ Vt
    gap, _ = measure(problems, weights, problems.rows.apply(weights), sigma.sum(axis=-1), found.multipliers, target)
    fine = gap <= np.maximum(found.gap, target)
    return found._replace(
        weights=np.where(fine[:, None, None], weights, found.weights), gap=np.where(fine, gap, found.gap)
    )
