"""The nuclear ball, through balanced factors W = K Q' with ‖K‖² + ‖Q‖² ≤ 2R."""

from dataclasses import dataclass

import numpy as np

from attsvm.norms import Nuclear
from attsvm.problem import Problem
from attsvm.regularization.cones import CircularCone, Cone
from attsvm.regularization.objectives import Curvature, Expansion, Objective
from attsvm.regularization.trust_region import minimise
from attsvm.regularization.weight_ball import MAX_STEPS, Found, WeightBall, ball_of
from attsvm.svm import solve_svm

MOST_COLUMNS = 12
NEW_COLUMN = 1e-3
RANDOM_STARTS = 4
ROUNDING = 1e-12
NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class NuclearBall(WeightBall):
    """‖W‖_* ≤ radius, and the rank of W at most ``rank`` if it is given."""

    rank: int | None = None

    def steepest(self, gradient: np.ndarray) -> np.ndarray:
        """−u v' of the largest singular value."""
        left, _, right = np.linalg.svd(gradient.reshape(self.shape), full_matrices=False)
        return -np.outer(left[:, 0], right[0]).reshape(-1)

    @property
    def random_starts(self) -> int:
        """Some if the rank is restricted: other local minima may attract a branch."""
        return 0 if self.rank is None else RANDOM_STARTS

    def separators(self, problem: Problem, selected: np.ndarray) -> list[np.ndarray]:
        """The Att-SVM of these tokens, if the rank is restricted."""
        if self.rank is None:
            return []
        solution = solve_svm(problem, selected, self.norm, rank=self.rank)
        return [solution.direction.reshape(-1)] if solution.margin > 0 else []

    def minimise(self, objective: Objective, start: np.ndarray, radius: float) -> Found:
        """A local minimum through factors.

        The factors have as many columns as W has singular values; a column is added as long as the minimum decreases
        and the rank allows it.
        """
        best: Found | None = None
        most = min(self.shape) if self.rank is None else self.rank
        for _ in range(MOST_COLUMNS):
            chart = _Factors.of(self.shape, start, most)
            minimum = minimise(
                _OfFactors(objective, chart),
                chart.lift(start),
                float(np.sqrt(2 * radius)),
                cone=None if self.cone is None else _ConeOfFactors(self.cone, chart),
                symmetries=chart.rotations,
                # the singular values of the gradient, which decide, have errors of the order of its square root
                tol=1e-24,
                max_steps=MAX_STEPS,
            )
            found = self._found(objective, chart.product(minimum.x), radius, minimum.pull)
            if chart.rank == self.rank:  # no column can be added, so that a minimum over the factors is one
                return found._replace(residual=min(found.residual, minimum.residual))
            if best is not None and found.residual >= best.residual:
                return best
            best = found
            if found.residual <= ROUNDING:
                return best
            gradient = found.objective.expand(found.weights).gradient
            start = (1 - NEW_COLUMN) * found.weights + NEW_COLUMN * radius * self.steepest(gradient)
        assert best is not None
        return best


@ball_of.register
def _(norm: Nuclear, shape: tuple[int, int], cone: CircularCone | None = None) -> NuclearBall:
    return NuclearBall(shape, norm, cone)


@dataclass(frozen=True)
class _Factors:
    """W = K Q' with factors of ``rank`` columns; ‖K‖² + ‖Q‖² = 2 N(W) where they are balanced."""

    shape: tuple[int, int]
    rank: int

    @classmethod
    def of(cls, shape: tuple[int, int], weights: np.ndarray, most: int) -> "_Factors":
        """Factors with as many columns as the weights have singular values above 1e-7 of the largest, or ``most``."""
        singular = np.linalg.svd(weights.reshape(shape), compute_uv=False)
        return cls(shape, min(max(1, int(np.sum(singular > NEGLIGIBLE * singular[0]))), most))

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cut = self.shape[0] * self.rank
        return x[:cut].reshape(-1, self.rank), x[cut:].reshape(-1, self.rank)

    def product(self, x: np.ndarray) -> np.ndarray:
        K, Q = self.split(x)
        return np.asarray((K @ Q.T).reshape(-1))

    def lift(self, weights: np.ndarray) -> np.ndarray:
        left, singular, right = np.linalg.svd(weights.reshape(self.shape), full_matrices=False)
        left, singular, right = left[:, : self.rank], singular[: self.rank], right[: self.rank]
        root = np.sqrt(singular)
        return np.concatenate([(left * root).reshape(-1), (right.T * root).reshape(-1)])

    def rotations(self, x: np.ndarray) -> np.ndarray:
        """The directions (K A, Q A), A antisymmetric, along which K Q' does not change."""
        K, Q = self.split(x)
        m = self.rank
        one, other = np.triu_indices(m, 1)
        turns = np.zeros((len(one), m, m))
        turns[np.arange(len(one)), one, other] = 1
        turns -= turns.mT
        turned = np.concatenate([K @ turns, Q @ turns], axis=1).reshape(len(one), len(x))
        length = np.linalg.norm(turned, axis=1)
        return np.asarray(turned[length > NEGLIGIBLE * np.linalg.norm(x)])

    def pull_gradient(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        K, Q = self.split(x)
        G = gradient.reshape(self.shape)
        return np.concatenate([(G @ Q).reshape(-1), (G.T @ K).reshape(-1)])

    def pull_curvature(self, x: np.ndarray, gradient: np.ndarray, curvature: Curvature) -> Curvature:
        """J' C J with dW = dK Q' + K dQ', plus the curvature of the product itself."""
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
    """A function of W, as a function of the factors."""

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
    """A cone of W, as a cone of the factors."""

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
