"""The ball of attention weights that a path runs over: entrywise in W or p, nuclear through balanced factors."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attsvm.norms import Lp, Norm, Nuclear
from attsvm.regularization.ball import CircularCone, Cone, Objective, minimise
from attsvm.regularization.excess import Curvature, Expansion

MAX_STEPS = 300
MOST_COLUMNS = 12
NEW_COLUMN = 1e-3
ROUNDING = 1e-12
NEGLIGIBLE = 1e-7


class Found(NamedTuple):
    """A minimum in a ball: flat weights, the objective around it, and how stationary it is."""

    weights: np.ndarray
    objective: Objective
    residual: float


@dataclass(frozen=True)
class WeightBall:
    """N(W) ≤ radius, in or out of a cone, over matrices of a shape (d_k, d_q); for a prompt d_q = 1.

    Attributes
    ----------
    shape : (int, int)
    norm : Norm
        ℓp with 1 < p < ∞, or nuclear.
    cone : CircularCone, optional
    """

    shape: tuple[int, int]
    norm: Norm
    cone: CircularCone | None = None

    def steepest(self, gradient: np.ndarray) -> np.ndarray:
        """The flat weights of norm 1 along which a function of that gradient falls fastest."""
        if isinstance(self.norm, Nuclear):
            left, _, right = np.linalg.svd(gradient.reshape(self.shape), full_matrices=False)
            return -np.outer(left[:, 0], right[0]).reshape(-1)
        scaled = gradient / np.max(np.abs(gradient))
        assert isinstance(self.norm, Lp)
        direction = -np.sign(scaled) * np.abs(scaled) ** (1 / (self.norm.p - 1))
        return direction / self.size(direction)

    def size(self, weights: np.ndarray) -> float:
        """N(W) of flat weights."""
        return float(self.norm.values(weights.reshape(self.shape)))

    def minimise(self, objective: Objective, start: np.ndarray, radius: float) -> Found:
        """A local minimum over the ball of that radius, from ``start`` brought into it."""
        if isinstance(self.norm, Nuclear):
            return self._by_factors(objective, start, radius)
        assert isinstance(self.norm, Lp)
        minimum = minimise(objective, start, radius, self.norm.p, self.cone, max_steps=MAX_STEPS)
        return self._found(objective, minimum.x, radius, minimum.pull)

    def _by_factors(self, objective: Objective, start: np.ndarray, radius: float) -> Found:
        """Through factors of as few columns as W has singular values, and one more wherever that descends."""
        best: Found | None = None
        for _ in range(MOST_COLUMNS):
            chart = _Factors.of(self.shape, start)
            cone = None if self.cone is None else _ConeOfFactors(self.cone, chart)
            minimum = minimise(
                _OfFactors(objective, chart),
                chart.lift(start),
                float(np.sqrt(2 * radius)),
                cone=cone,
                symmetries=chart.rotations,
                # the gradient's singular values, which decide, err like the square root of this
                tol=1e-24,
                max_steps=MAX_STEPS,
            )
            found = self._found(objective, chart.product(minimum.x), radius, minimum.pull)
            if best is not None and found.residual >= best.residual:
                return best
            best = found
            if found.residual <= ROUNDING:
                return best
            gradient = found.objective.expand(found.weights).gradient
            start = (1 - NEW_COLUMN) * found.weights + NEW_COLUMN * radius * self.steepest(gradient)
        assert best is not None
        return best

    def _found(self, objective: Objective, weights: np.ndarray, radius: float, pull: float) -> Found:
        objective = objective.rebased(weights)
        return Found(weights, objective, self.residual(objective, weights, radius, pull))

    def residual(self, objective: Objective, weights: np.ndarray, radius: float, pull: float = 0.0) -> float:
        """How far from stationary, 0 where stationary.

        On the sphere 1 − ⟨−G, W⟩/(N*(G) N(W)); inside the ball N*(G) N(W); G is the gradient of the log excess, with
        the cone's multiplier in it. At W = 0, the vertex of a cone, how fast the loss falls into it.
        """
        gradient = objective.expand(weights).gradient
        if self.cone is not None and not weights.any():
            return max(radius * self.cone.steepest(gradient), 0.0)
        if self.cone is not None and pull > 0:
            gradient = gradient + pull * self.cone.gradient(weights)
        steepest = float(self.norm.dual.values(gradient.reshape(self.shape)))
        inward = float(gradient @ weights)
        size = self.size(weights)
        if size >= radius * (1 - 1e-9) and inward < 0:
            return max(1 + inward / (steepest * size), 0.0)
        return steepest * size


@dataclass(frozen=True)
class _Factors:
    """W = K Q' with factors of ``rank`` columns; ‖K‖² + ‖Q‖² = 2 N(W) where they are balanced."""

    shape: tuple[int, int]
    rank: int

    @classmethod
    def of(cls, shape: tuple[int, int], weights: np.ndarray) -> "_Factors":
        """With as many columns as the weights have singular values to speak of."""
        singular = np.linalg.svd(weights.reshape(shape), compute_uv=False)
        return cls(shape, max(1, int(np.sum(singular > NEGLIGIBLE * singular[0]))))

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cut = self.shape[0] * self.rank
        return x[:cut].reshape(-1, self.rank), x[cut:].reshape(-1, self.rank)

    def product(self, x: np.ndarray) -> np.ndarray:
        K, Q = self.split(x)
        return (K @ Q.T).reshape(-1)

    def lift(self, weights: np.ndarray) -> np.ndarray:
        left, singular, right = np.linalg.svd(weights.reshape(self.shape), full_matrices=False)
        left, singular, right = left[:, : self.rank], singular[: self.rank], right[: self.rank]
        root = np.sqrt(singular)
        return np.concatenate([(left * root).reshape(-1), (right.T * root).reshape(-1)])

    def rotations(self, x: np.ndarray) -> np.ndarray:
        """The directions (K A, Q A), A antisymmetric, along which K Q' stays what it is."""
        K, Q = self.split(x)
        m = self.rank
        one, other = np.triu_indices(m, 1)
        turns = np.zeros((len(one), m, m))
        turns[np.arange(len(one)), one, other] = 1
        turns -= turns.mT
        turned = np.concatenate([K @ turns, Q @ turns], axis=1).reshape(len(one), len(x))
        length = np.linalg.norm(turned, axis=1)
        return turned[length > NEGLIGIBLE * np.linalg.norm(x)]

    def pull_gradient(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        K, Q = self.split(x)
        G = gradient.reshape(self.shape)
        return np.concatenate([(G @ Q).reshape(-1), (G.T @ K).reshape(-1)])

    def pull_curvature(self, x: np.ndarray, gradient: np.ndarray, curvature: Curvature) -> Curvature:
        """J' C J through dW = dK Q' + K dQ', and what the product itself bends."""
        K, Q = self.split(x)
        rows = curvature.rows.reshape(-1, *self.shape)
        count = len(rows)
        pulled = np.concatenate([(rows @ Q).reshape(count, -1), (rows.mT @ K).reshape(count, -1)], axis=1)
        hessian = pulled.T @ curvature.core @ pulled
        cross = np.einsum("ke,jl->kjel", gradient.reshape(self.shape), np.eye(self.rank)).reshape(K.size, Q.size)
        hessian[: K.size, K.size :] += cross
        hessian[K.size :, : K.size] += cross.T
        return Curvature(np.eye(len(x)), hessian)


@dataclass(frozen=True)
class _OfFactors:
    """A function of W as one of its factors."""

    base: Objective
    chart: _Factors

    def value(self, x: np.ndarray) -> float:
        return self.base.value(self.chart.product(x))

    def expand(self, x: np.ndarray) -> Expansion:
        value, gradient, curvature = self.base.expand(self.chart.product(x))
        return Expansion(
            value, self.chart.pull_gradient(x, gradient), self.chart.pull_curvature(x, gradient, curvature)
        )

    def rebased(self, x: np.ndarray) -> "_OfFactors":
        base = self.base.rebased(self.chart.product(x))
        return self if base is self.base else _OfFactors(base, self.chart)


@dataclass(frozen=True)
class _ConeOfFactors:
    """A cone of W as one of its factors."""

    base: Cone
    chart: _Factors

    def slack(self, x: np.ndarray) -> float:
        return self.base.slack(self.chart.product(x))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.chart.pull_gradient(x, self.base.gradient(self.chart.product(x)))

    def hessian(self, x: np.ndarray) -> np.ndarray:
        weights = self.chart.product(x)
        of_weights = Curvature(np.eye(len(weights)), self.base.hessian(weights))
        return self.chart.pull_curvature(x, self.base.gradient(weights), of_weights).dense()

    def restore(self, x: np.ndarray) -> np.ndarray:
        return self.chart.lift(self.base.restore(self.chart.product(x)))
