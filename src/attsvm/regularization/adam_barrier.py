"""Where AdamW ends whose ε is not negligible beside the gradient: minima of the loss plus a barrier of ℓ∞.

With g = ∇L, steps g/(|g| + ε) in each entry and decay λ balance where λw = −g/(|g| + ε). That is g + ε λw/(1 − λ|w|) =
0, the stationary points of L(w) + (ε/λ) Σ [−λ|w| − log(1 − λ|w|)].
"""

import numpy as np

from attsvm._utils.linear_algebra import diagonal_of
from attsvm._utils.shapes import Float
from attsvm.norms import Lp
from attsvm.regularization.barrier_balls import start_inside
from attsvm.regularization.barriers import Barrier, Gauge, GaugeSlopes, Matrices, Values
from attsvm.regularization.excess import Excess
from attsvm.regularization.head_balls import block_diagonal, diagonal_blocks
from attsvm.regularization.interior_point import Minima, line_search, longest_step, newton_move
from attsvm.svm import PrimalIteration

MAX_STEPS = 300
"""More than Newton steps take as a rule; the residual shows where they are not enough."""
RESIDUAL = 1e-9
"""Below it, rounding of the loss decides where ε is small."""
ALONG = np.geomspace(1e-4, 1.0, 60)
"""Parts of the start among which the search begins at the best one."""


class Epsilon(Gauge):
    """h(u) = Σ [−|u| − log(1 − |u|)], u = λw."""

    order = np.inf

    def complexity(self, number: int) -> float:
        return 2.0 * number

    def slopes(self, s: Float[np.ndarray, "N m"]) -> GaugeSlopes:
        size = np.abs(s)
        slack = 1 - size
        value = -(size + np.log1p(-size)).sum(axis=-1)
        return GaugeSlopes(value, s / slack, 1 / slack**2, np.zeros_like(s), np.zeros(len(s)))


BARRIER = Barrier(Epsilon(), False, Lp(np.inf))
"""The barrier of |u| < 1."""


def adam_points(excess: Excess, radii: Values, epsilon: float, start: Matrices, *, heads: int = 1) -> Minima:
    """Stationary points of training with AdamW's ε and decay 1/R; the gap is the largest |u + g/(|g| + ε)| of an entry.

    ``start``: moved into the ball. ``heads``: H; the functions and weights of one model follow each other.
    """
    # the objective is divided by ε/λ: the loss has the factor λ/ε = 1/(Rε), and the barrier 1
    whole, scale, factor = block_diagonal(start, heads), radii[:, None, None], 1 / (radii * epsilon)
    excess = excess.joined(heads).scaled(radii)
    excess = excess.with_reference(excess.optimal)
    u = _best_along(excess, start_inside(BARRIER.norm, whole, radii) / scale, factor)
    found = _AdamWPoints(excess, u, factor).run(u, RESIDUAL, MAX_STEPS)
    return Minima(diagonal_blocks(found.weights * scale, heads), found.gap, found.steps)


class _AdamWPoints(PrimalIteration):
    """Newton steps on the loss over ε/λ plus the barrier, both at u."""

    def __init__(self, excess: Excess, u: Matrices, factor: Values) -> None:
        self.excess, self.u, self.factor = excess, u, factor

    def measure(self) -> tuple[np.ndarray, np.ndarray, bool]:
        value, self.q = self.excess.value_and_weight(self.u)
        self.pull = self.factor * np.exp(value)  # of the terms of the loss, over ε/λ
        # this is g/ε, because ∂/∂u = R ∂/∂W and λR = 1; hence g/(|g| + ε) = gradient/(|gradient| + 1)
        self.gradient = -self.excess.adjoint(self.q) * self.pull[:, None, None]
        return self.u, np.abs(self.u + self.gradient / (np.abs(self.gradient) + 1)).max(axis=(-2, -1)), True

    def select(self, going: np.ndarray) -> None:
        self.excess, self.u, self.factor = self.excess[going], self.u[going], self.factor[going]
        self.q, self.pull, self.gradient = self.q[going], self.pull[going], self.gradient[going]

    def advance(self) -> None:
        """Make a Newton step with a line search."""
        excess, u, factor, flat = self.excess, self.u, self.factor, self.q.reshape(len(self.q), -1)
        # ∇E + ∇φ = 0 for E = (λ/ε) L, the objective over ε/λ
        metric, slopes = BARRIER.metric(u), excess.slopes(u)
        target = self.gradient + metric.gradient
        # ∇²E = E (∇² log E + q q'), and without the softmax's own curvature E diag(q)
        curvature = self.pull[:, None, None] * (slopes.curvature + flat[:, :, None] * flat[:, None])
        safe = np.zeros_like(curvature)
        diagonal_of(safe)[:] = self.pull[:, None] * np.abs(flat)
        grams, one = excess.gram(metric), np.ones(len(u))
        move = newton_move(excess, curvature, metric, grams, one, target)
        uphill = ~((target * move).sum(axis=(-2, -1)) < 0)
        if uphill.any():
            other = newton_move(excess, safe, metric, grams, one, target)
            move = np.where(uphill[:, None, None], other, move)
        slope = (target * move).sum(axis=(-2, -1))
        length = longest_step(BARRIER, u, move, BARRIER.norm.values(u))
        before = factor * np.exp(slopes.value) + metric.value

        def after(left: np.ndarray, trial: Matrices) -> Values:
            return _objective(excess[left], trial, factor[left])

        # rounding of the loss, which is not small beside ε where it stays above its infimum
        self.u = line_search(after, u, move, length, before, slope, 1e-12 * (1 + np.abs(before)))[0]


def _objective(excess: Excess, u: Matrices, factor: Values) -> Values:
    return np.asarray(factor * np.exp(excess.value(u)) + BARRIER.value(u))


def _best_along(excess: Excess, start: Matrices, factor: Values) -> Matrices:
    """The best point between zero and the start: where the attention is too saturated, only the barrier is left."""
    values = np.stack([_objective(excess, t * start, factor) for t in ALONG])
    return np.asarray(ALONG[np.argmin(values, axis=0)][:, None, None] * start)
