"""The balls of attention weights that a path runs over, found by the type of their norm.

An ℓp ball is minimised over on the weights themselves, the nuclear ball through balanced factors W = K Q' with
‖K‖² + ‖Q‖² ≤ 2R. Those of ℓ∞ and of the spectral norm are in ``barrier_balls``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear
from attsvm.problem import Problem
from attsvm.regularization.kept_sets import Tail
from attsvm.regularization.trust_region import CircularCone, Curvature, Expansion, SmoothCone, SmoothFunction, minimise
from attsvm.svm import solve_svm

MAX_STEPS = 300
"""More than the default, since steps on factors and on flat spheres (p far from 2) may be short."""


class BallMinimum(NamedTuple):
    """A minimum in a ball."""

    weights: np.ndarray  # shape (d_k d_q,)
    objective: SmoothFunction  # the objective, rebased at the weights
    residual: float  # how far the weights are from stationary
    tail: Tail | None = None  # where the objective is the dropped tokens' part alone, in coordinates


@dataclass(frozen=True)
class WeightBall(ABC):
    """N(W) ≤ radius for matrices of one shape, inside a cone if there is one.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    A subclass provides :meth:`minimise`, and is registered for the type of its norm with ``ball_of.register``. The
    norm has ``steepest``, unless the subclass overrides :meth:`steepest`.

    Attributes
    ----------
    shape : (int, int)
        (d_k, d_q); d_q = 1 for a prompt.
    norm : Norm
    cone : CircularCone, optional

    See Also
    --------
    attsvm.regularization.ball_of : Finds one by the type of the norm.
    """

    shape: tuple[int, int]
    norm: Norm
    cone: CircularCone | None = None

    def steepest(self, gradient: np.ndarray) -> np.ndarray:
        """The flat weights of norm 1 along which a function with this gradient decreases fastest."""
        return np.asarray(-self.norm.steepest(gradient.reshape(self.shape)).reshape(-1))

    @abstractmethod
    def minimise(self, objective: SmoothFunction, start: np.ndarray, radius: float) -> BallMinimum:
        """A local minimum over the ball of this radius, from ``start``, which is first moved into it."""

    def minimise_tail(self, tail: Tail, start: np.ndarray, radius: float) -> BallMinimum | None:
        """The minimum of the dropped tokens' part of the loss; None if this ball does not split into both parts."""
        return None

    @property
    def power(self) -> float:
        """The power of the norm that is the natural penalty: 1, or that in which the norm is a sum."""
        return 1.0

    @property
    def random_starts(self) -> int:
        """Branches that start at random weights, for each of a few radii; 0 for a convex ball."""
        return 0

    def separators(self, problem: Problem, selected: np.ndarray) -> list[np.ndarray]:
        """Flat weights that select these tokens: starts at the largest radius, for a ball that is not convex."""
        return []

    @property
    def needs_dense_hessian(self) -> bool:
        """Whether Newton steps need the Hessian in all entries of the weights, not only along the logits."""
        return self.cone is not None

    def size(self, weights: np.ndarray) -> float:
        """N(W) of flat weights."""
        return float(self.norm.values(weights.reshape(self.shape)))

    def residual(self, objective: SmoothFunction, weights: np.ndarray, radius: float, pull: float = 0.0) -> float:
        """How far the weights are from stationary; 0 where stationary.

        On the sphere it is 1 − ⟨−G, W⟩/(N*(G) N(W)), inside the ball N*(G) N(W), where G is the gradient of the log
        excess, with the multiplier of the cone. At W = 0, the vertex of a cone, it is the fastest decrease into it.
        """
        gradient = objective.expand(weights).gradient
        # the vertex has no normal: what counts is whether the function decreases into the cone
        if self.cone is not None and not weights.any():
            return max(radius * self.cone.steepest(gradient), 0.0)
        if self.cone is not None and pull > 0:
            gradient = gradient + pull * self.cone.gradient(weights)
        steepest = float(self.norm.dual.values(gradient.reshape(self.shape)))
        # ⟨−G, W⟩ ≤ N*(G) N(W), with equality where −G is a multiple of a normal of the sphere at W
        inward = float(gradient @ weights)
        size = self.size(weights)
        if size >= radius * (1 - 1e-9) and inward < 0:
            return max(1 + inward / (steepest * size), 0.0)
        # inside the ball G vanishes at a stationary point; the product does not depend on the scale of W
        return steepest * size

    def _found(self, objective: SmoothFunction, weights: np.ndarray, radius: float, pull: float) -> BallMinimum:
        objective = objective.rebased(weights)
        return BallMinimum(weights, objective, self.residual(objective, weights, radius, pull))


@singledispatch
def ball_of(norm: Norm, shape: tuple[int, int], cone: CircularCone | None = None) -> WeightBall:
    """The ball of a norm, found by the type of the norm.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    norm : Norm
    shape : (int, int)
        Of the weights, (d_k, d_q).
    cone : CircularCone, optional

    Returns
    -------
    WeightBall

    Raises
    ------
    ProblemError
        If no ball is registered for norms of this type.

    See Also
    --------
    attsvm.regularization.WeightBall
    attsvm.regularization_path

    Examples
    --------
    >>> from attsvm.norms import Lp
    >>> from attsvm.regularization import ball_of
    >>> ball_of(Lp(2), (5, 1)).shape
    (5, 1)
    """
    raise no_ball(norm)


def no_ball(norm: Norm) -> ProblemError:
    """The error for a norm without a ball."""
    types = ", ".join(sorted(kind.__name__ for kind in ball_of.registry if kind is not object))
    return ProblemError(
        f"norm: expected a norm with regularisation paths ({types}; p of Lp with p > 1), got {norm.name}"
    )


@dataclass(frozen=True)
class LpBall(WeightBall):
    """The matrices with ‖W‖_p ≤ radius."""

    norm: Lp

    @property
    def needs_dense_hessian(self) -> bool:
        """In a cone, and for p > 2, where the sphere is flat at zero entries."""
        return self.cone is not None or self.norm.p > 2

    @property
    def power(self) -> float:
        """Return p: ‖W‖_p^p is a sum over the entries."""
        return self.norm.p

    def minimise(self, objective: SmoothFunction, start: np.ndarray, radius: float) -> BallMinimum:
        """A local minimum, on the weights themselves."""
        minimum = minimise(objective, start, radius, self.norm.p, cone=self.cone, max_steps=MAX_STEPS)
        return self._found(objective, minimum.x, radius, minimum.pull)

    def minimise_tail(self, tail: Tail, start: np.ndarray, radius: float) -> BallMinimum | None:
        """The minimum, for the round ball (p = 2): across the fixed part it is a ball again."""
        # ‖fixed + across x‖² = ‖fixed‖² + ‖x‖², because the columns of across are orthonormal, and orthogonal to fixed
        left = radius**2 - float(tail.fixed @ tail.fixed)
        if self.norm.p != 2 or self.cone is not None or left <= 0:
            return None
        minimum = minimise(tail.dropped, tail.across.T @ start, float(np.sqrt(left)), max_steps=MAX_STEPS)
        residual = max(minimum.residual, tail.residual)
        return BallMinimum(tail.fixed + tail.across @ minimum.x, tail.dropped, residual, tail)


MOST_COLUMNS = 12
"""Minimisations at one radius, each with one column more; a path that starts near its minimum needs few."""
NEW_COLUMN = 1e-3
"""The part of the radius that a new column gets, so that it starts near the minimum without it."""
RANDOM_STARTS = 4
"""Starts at each size of the logits, where the rank is restricted."""
ROUNDING = 1e-12
"""A residual below it is rounding, so that no column is added."""
NEGLIGIBLE = 1e-7
"""A singular value below this part of the largest one needs no column, and a rotation below it moves nothing."""


@dataclass(frozen=True)
class NuclearBall(WeightBall):
    """‖W‖_* ≤ radius, and the rank of W at most ``rank`` if it is given."""

    rank: int | None = None

    @property
    def random_starts(self) -> int:
        """Some if the rank is restricted: other local minima may attract a branch."""
        return 0 if self.rank is None else RANDOM_STARTS

    def separators(self, problem: Problem, selected: np.ndarray) -> list[np.ndarray]:
        """The Att-SVM of these tokens, if the rank is restricted."""
        if self.rank is None:
            return []
        solution = solve_svm(problem, selected, self.norm, rank=self.rank)
        # a margin of 0 or less: no weights of this rank that separate the tokens were found
        return [solution.direction.reshape(-1)] if solution.margin > 0 else []

    def minimise(self, objective: SmoothFunction, start: np.ndarray, radius: float) -> BallMinimum:
        """A local minimum through factors.

        The factors have as many columns as W has singular values; a column is added as long as the minimum decreases
        and the rank allows it.
        """
        best: BallMinimum | None = None
        most = min(self.shape) if self.rank is None else self.rank
        for _ in range(MOST_COLUMNS):
            chart = _FactorChart.of(self.shape, start, most)
            minimum = minimise(
                _OfFactors(objective, chart),
                chart.lift(start),
                # ‖(K, Q)‖² ≤ 2R
                float(np.sqrt(2 * radius)),
                cone=None if self.cone is None else _ConeOfFactors(self.cone, chart),
                symmetries=chart.rotations,
                # the singular values of the gradient, which decide, have errors of the order of its square root
                tol=1e-24,
                max_steps=MAX_STEPS,
            )
            # the residual in W compares with ‖G‖_op, which sees the directions that the present columns lack
            found = self._found(objective, chart.product(minimum.x), radius, minimum.pull)
            if chart.rank == self.rank:  # no column can be added, so that a minimum over the factors is one
                return found._replace(residual=min(found.residual, minimum.residual))
            if best is not None and found.residual >= best.residual:
                return best
            best = found
            if found.residual <= ROUNDING:
                return best
            # a column along the steepest direction, which leaves the nuclear sphere's face of the present rank
            gradient = found.objective.expand(found.weights).gradient
            start = (1 - NEW_COLUMN) * found.weights + NEW_COLUMN * radius * self.steepest(gradient)
        assert best is not None
        return best


@ball_of.register
def _(norm: Nuclear, shape: tuple[int, int], cone: CircularCone | None = None) -> NuclearBall:
    return NuclearBall(shape, norm, cone)


@dataclass(frozen=True)
class _FactorChart:
    """W = K Q' with factors of ``rank`` columns; ‖K‖² + ‖Q‖² = 2 N(W) where they are balanced."""

    shape: tuple[int, int]
    rank: int

    @classmethod
    def of(cls, shape: tuple[int, int], weights: np.ndarray, most: int) -> "_FactorChart":
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
        # balanced: K = U √S, Q = V √S
        root = np.sqrt(singular)
        return np.concatenate([(left * root).reshape(-1), (right.T * root).reshape(-1)])

    def rotations(self, x: np.ndarray) -> np.ndarray:
        """The directions (K A, Q A), A antisymmetric, along which K Q' does not change."""
        K, Q = self.split(x)
        m = self.rank
        # (KA)Q' + K(QA)' = K(A + A')Q' = 0
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
        # ⟨G, dK Q' + K dQ'⟩ = ⟨GQ, dK⟩ + ⟨G'K, dQ⟩
        return np.concatenate([(G @ Q).reshape(-1), (G.T @ K).reshape(-1)])

    def pull_curvature(self, x: np.ndarray, gradient: np.ndarray, curvature: Curvature) -> Curvature:
        """J' C J with dW = dK Q' + K dQ', plus the curvature of the product itself."""
        K, Q = self.split(x)
        rows = curvature.rows.reshape(-1, *self.shape)
        count = len(rows)
        pulled = np.concatenate([(rows @ Q).reshape(count, -1), (rows.mT @ K).reshape(count, -1)], axis=1)
        # J' C J, and ⟨G, dK dQ'⟩ between K and Q
        hessian = pulled.T @ curvature.core @ pulled
        cross = np.einsum("ke,jl->kjel", gradient.reshape(self.shape), np.eye(self.rank)).reshape(K.size, Q.size)
        hessian[: K.size, K.size :] += cross
        hessian[K.size :, : K.size] += cross.T
        return Curvature(np.eye(len(x)), hessian)


@dataclass(frozen=True)
class _OfFactors:
    """A function of W, as a function of the factors."""

    base: SmoothFunction
    chart: _FactorChart

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

    base: SmoothCone
    chart: _FactorChart

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
