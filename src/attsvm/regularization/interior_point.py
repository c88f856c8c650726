"""Minimise the logarithm of an excess over the unit ball of a norm: an interior-point method for stacks of problems.

The minimisers W(μ) of F + μφ, φ the barrier, are the central path, which is nearly linear in μ at its end. A Newton
step uses the Hessian at the present μ and the gradient at a smaller one, so that it follows the path and corrects at
once. With the Hessian A*CA of F, C in the gaps of logits, and φ'' inverted in closed form, a step takes equations in as
many unknowns as there are gaps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm._utils.linear_algebra import diagonal_of
from attsvm._utils.shapes import Bool
from attsvm.norms import Norm
from attsvm.regularization.barriers import Barrier, BarrierMetric, Matrices, Values
from attsvm.regularization.gaps import Gaps, GapSlopes
from attsvm.svm import PrimalIteration

MAX_STEPS = 200
"""More than the central path takes; beside a saddle, the search starts again every :data:`CAUTIOUS` steps."""
CAUTIOUS = 40
"""From this step on, every second one uses the curvature that is positive semidefinite."""
AGAIN = 0.9
"""A problem that does not improve in so many steps starts again at this part of the weights."""
CLOSED = 1e-3
"""Below this gap, the point on the sphere along the weights is tried, too."""
INSIDE = 0.9
"""A step goes at most this part of the way to the sphere."""
HALVINGS = 40
"""A step of 2⁻⁴⁰ of its length is rounding."""
NEAR, CLOSE = 0.98, 0.9
"""The chord is followed this part of its way, and the length of a step is known well enough to this part."""

FIRST = 0.02, 0.2
"""Bounds of the relative gap on the central path at the first μ."""
LEAST = 0.1
"""Least part of the μ that belongs to the present gap: below it, steps beside the sphere are too short."""
NEAREST = 0.5, 2.0
"""Bounds of the μ in the Hessian over the present one."""


class Minima(NamedTuple):
    """Where the minimisation ended, for each problem."""

    weights: Matrices  # of norm at most 1
    gap: Values  # 1 + ⟨G, W⟩/N*(G)
    steps: np.ndarray


class _BarrierIterate(NamedTuple):
    """Where each problem is."""

    weights: Matrices
    slopes: GapSlopes
    size: Values  # N(W)
    dual: Values  # N*(G)
    gap: Values

    @classmethod
    def at(cls, objective: Gaps, weights: Matrices, norm: Norm) -> "_BarrierIterate":
        slopes = objective.slopes(weights)
        dual = norm.dual.values(slopes.gradient)
        return cls(weights, slopes, norm.values(weights), dual, _gap(weights, slopes.gradient, dual))

    def only(self, index: np.ndarray) -> "_BarrierIterate":
        slopes = GapSlopes(*(part[index] for part in self.slopes))
        return _BarrierIterate(self.weights[index], slopes, self.size[index], self.dual[index], self.gap[index])


def minimise_stack(
    objective: Gaps, start: Matrices, barrier: Barrier, tol: float, max_steps: int = MAX_STEPS
) -> Minima:
    """Find local minima, from starts inside the unit ball, to a relative Frank-Wolfe gap of ``tol``."""
    found = _BarrierPath(objective, start, barrier).run(start, tol, max_steps - 1)
    return Minima(found.weights, found.gap, found.steps)


class _BarrierPath(PrimalIteration):
    """The weights and the μ of each problem that still runs; NaN before the first μ."""

    def __init__(self, objective: Gaps, start: Matrices, barrier: Barrier) -> None:
        self.objective, self.weights, self.barrier, self.step = objective, start, barrier, 0
        self.mu = np.full(len(start), np.nan)
        self.least, self.known = np.full((2, len(start)), np.inf)  # the least gap, now and CAUTIOUS steps ago

    def measure(self) -> tuple[np.ndarray, np.ndarray, bool]:
        self._rebase()
        point, gap = _closed(self.objective, self.now, self.barrier)
        self.least = np.fmin(self.least, gap)
        return point, gap, True

    def _rebase(self) -> None:
        self.objective = self.objective.rebased(self.weights)
        self.now = _BarrierIterate.at(self.objective, self.weights, self.barrier.norm)

    def select(self, going: np.ndarray) -> None:
        self.objective, self.now, self.mu = self.objective[going], self.now.only(going), self.mu[going]
        self.weights, self.least, self.known = self.weights[going], self.least[going], self.known[going]

    def advance(self) -> None:
        step, now = self.step, self.now
        if step and step % CAUTIOUS == 0:
            # beside a saddle, steps along the sphere are short: start again inside of it, with a large μ
            stuck = self.least > 0.5 * self.known
            self.known = self.least
            self.weights = np.where(stuck[:, None, None], AGAIN * now.weights, now.weights)
            self.mu = np.where(stuck, np.nan, self.mu)
            self._rebase()
        cautious = step >= CAUTIOUS and step % 2 == 1
        self.weights, self.mu = _step(self.objective, self.now, self.barrier, self.mu, cautious=cautious)
        self.step += 1


def relative_gap(norm: Norm, weights: Matrices, gradient: Matrices) -> Values:
    """1 + ⟨G, W⟩/N*(G) for weights in the unit ball; 0 where G is, and NaN where it is not finite."""
    return _gap(weights, gradient, norm.dual.values(gradient))


def _gap(weights: Matrices, gradient: Matrices, dual: Values) -> Values:
    # the largest ⟨G, W − V⟩ over N(V) ≤ 1, the Frank-Wolfe gap, is ⟨G, W⟩ + N*(G)
    inner = (gradient * weights).sum(axis=(-2, -1))
    return np.where(dual == 0, 0.0, np.maximum(1 + inner / np.where(dual == 0, 1.0, dual), 0.0))


def _closed(objective: Gaps, now: _BarrierIterate, barrier: Barrier) -> tuple[Matrices, Values]:
    """The point on the sphere along the weights and its gap, or the weights where theirs is smaller."""
    near = (now.gap < CLOSED) & (now.size > 0)
    if not near.any():
        return now.weights, now.gap
    outer = now.weights / np.where(near, now.size, 1.0)[:, None, None]
    other = relative_gap(barrier.norm, outer, objective.rebased(outer).gradient(outer))
    use = near & (other < now.gap)
    return np.where(use[:, None, None], outer, now.weights), np.where(use, other, now.gap)


def _step(
    objective: Gaps, now: _BarrierIterate, barrier: Barrier, mu: Values, *, cautious: bool
) -> tuple[Matrices, Values]:
    """The next weights and μ; NaN for the first μ."""
    weights, slopes = now.weights, now.slopes
    gradient, metric = slopes.gradient, barrier.metric(weights)
    # in the metric of the barrier, ‖∇F + μ∇φ‖/μ is the distance from the central path
    pulled, pushed = metric.solve(gradient), metric.solve(metric.gradient)
    a, b, c = (
        (one * other).sum(axis=(-2, -1))
        for one, other in ((gradient, pulled), (gradient, pushed), (metric.gradient, pushed))
    )
    # the μ for which the weights are nearest to the central path
    nearest = np.where(b < 0, -a / np.where(b < 0, b, -1.0), np.sqrt(np.maximum(a, 0.0)))
    # μ over this is about the relative gap on the central path
    unit_gap = now.dual / barrier.complexity(weights.shape[-2:])
    first = np.maximum(np.clip(nearest, FIRST[0] * unit_gap, FIRST[1] * unit_gap), np.finfo(float).tiny)
    # the gradient where attention is saturated may be much smaller than that of the tokens that are selected later
    least = LEAST * np.minimum(now.gap, FIRST[1]) * unit_gap
    mu = np.where(np.isnan(mu), first, np.maximum(mu, least))
    # ‖∇F/μ + ∇φ‖ in the metric: near the path the next μ is much smaller, far from it the step only centres
    away = np.sqrt(np.maximum(a / mu**2 + 2 * b / mu + c, 0.0))
    aim = mu * np.select([away < 0.1, away < 0.5, away < 1], [0.01, 0.1, 0.5], 1.0)

    target = gradient + aim[:, None, None] * metric.gradient
    grams = objective.gram(metric)
    # too near to the sphere, a step with the Hessian of the present μ is too short; too far from it, too long
    scale = np.where(b < 0, np.clip(nearest, NEAREST[0] * mu, NEAREST[1] * mu), mu)
    move = newton_move(objective, slopes.curvature, metric, grams, scale, target)
    slope = (target * move).sum(axis=(-2, -1))
    unsafe = ~(slope < 0) | cautious
    if unsafe.any():
        safe = newton_move(objective, objective.safe_curvature(weights), metric, grams, scale, target)
        move = np.where(unsafe[:, None, None], safe, move)
        slope = (target * move).sum(axis=(-2, -1))
    length = longest_step(barrier, weights, move, now.size)
    value = slopes.value + aim * metric.value
    rounding = 1e-13 * (1 + np.abs(value))

    def new_value(left: np.ndarray, trial: Matrices) -> Values:
        some = objective if len(left) == len(weights) else objective[left]
        return np.asarray(some.value(trial) + aim[left] * barrier.value(trial))

    found, length = line_search(new_value, weights, move, length, value, slope, rounding)
    # a shorter step goes only this part of the way to the smaller μ
    return found, aim + (1 - length) * (mu - aim)


def line_search(
    value: Callable[[np.ndarray, Matrices], Values],
    weights: Matrices,
    move: Matrices,
    length: Values,
    before: Values,
    slope: Values,
    rounding: Values,
) -> tuple[Matrices, Values]:
    """Halve the lengths of steps until the values decrease enough; the weights and lengths, 0 where they do not.

    ``value``: of the problems at some places, at their weights. ``before``, ``slope``: the values at the weights and
    their slopes along the moves.
    """
    found, left = weights.copy(), np.arange(len(weights))
    for _ in range(HALVINGS):
        trial = weights[left] + length[left, None, None] * move[left]
        # Armijo's condition, up to rounding
        enough = value(left, trial) <= before[left] + 1e-4 * length[left] * slope[left] + rounding[left]
        found[left[enough]] = trial[enough]
        left = left[~enough]
        if not len(left):
            break
        length[left] *= 0.5
    length[left] = 0.0
    return found, length


def newton_move(
    objective: Gaps, curvature: np.ndarray, metric: BarrierMetric, grams: np.ndarray, mu: Values, target: Matrices
) -> Matrices:
    """−(A*CA + P)⁻¹ T = −P⁻¹(T − A*x) for P = μφ'', where (I + C A P⁻¹ A*) x = C A P⁻¹ T; zero where that fails."""
    scale = 1 / mu[:, None, None]
    of_target = objective.gaps(scale * metric.solve(target))
    # I + C A P⁻¹ A*: as many unknowns as gaps, not as entries of W
    matrix = curvature @ (grams * scale)
    diagonal_of(matrix)[:] += 1
    right = curvature @ of_target.reshape(len(mu), -1, 1)
    x = solve_each(matrix, right).reshape(of_target.shape)
    move = -scale * metric.solve(target - objective.adjoint(x))
    return np.where(np.isfinite(move).all(axis=(-2, -1), keepdims=True), move, 0.0)


def solve_each(matrices: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solutions of linear equations; NaN where a matrix is singular."""
    try:
        return np.linalg.solve(matrices, right)
    except np.linalg.LinAlgError:
        fine: Bool[np.ndarray, " N"] = np.linalg.slogdet(matrices)[0] != 0
        found = np.full(right.shape, np.nan)
        found[fine] = np.linalg.solve(matrices[fine], right[fine])
        return found


def longest_step(barrier: Barrier, weights: Matrices, move: Matrices, size: Values) -> Values:
    """1, or nearly the length at which a step reaches the sphere, from weights of this size."""
    low, high = np.zeros(len(weights)), np.ones(len(weights))
    inner, outer = size.copy(), barrier.norm.values(weights + move)
    left = np.flatnonzero(outer >= 1)
    low[outer < 1] = 1.0
    for _ in range(HALVINGS):
        if not len(left):
            break
        # N(W + tD) is convex in t, so the chord from a point inside to one outside meets the sphere inside the ball
        chord = low[left] + NEAR * (high[left] - low[left]) * (1 - inner[left]) / (outer[left] - inner[left])
        middle = np.maximum(chord, 0.5 * (low[left] + high[left]))
        size = barrier.norm.values(weights[left] + middle[:, None, None] * move[left])
        inside = size < 1
        low[left], inner[left] = np.where(inside, middle, low[left]), np.where(inside, size, inner[left])
        high[left], outer[left] = np.where(inside, high[left], middle), np.where(inside, outer[left], size)
        left = left[low[left] < CLOSE * high[left]]
    return np.where(low < 1, INSIDE * low, 1.0)
