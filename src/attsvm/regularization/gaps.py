"""Functions of the gaps of logits, y_t = s_α − s_t, for stacks of problems, and one of them as a function of W."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from attsvm._utils.linear_algebra import diagonal_of
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.norms import Norm
from attsvm.regularization.barriers import BarrierMetric, Matrices, Values
from attsvm.regularization.margin_losses import DECAY, Scalar
from attsvm.regularization.trust_region import Curvature, Expansion


class GapSlopes(NamedTuple):
    """Value, gradient, and the second derivatives in the gaps."""

    value: Values
    gradient: Matrices  # in the weights
    curvature: Float[np.ndarray, "N nT nT"]


@dataclass(frozen=True, eq=False)
class Gaps(ABC):
    """A stack of functions F of the gaps of logits. ``reference``: the tokens α."""

    keys: Float[np.ndarray, "N n T k"]
    queries: Float[np.ndarray, "N n e"]
    reference: Int[np.ndarray, "N n"]

    @abstractmethod
    def __getitem__(self, index: Any) -> Self:
        """The functions at these places."""

    @property
    @abstractmethod
    def used(self) -> Bool[np.ndarray, "N n T"]:
        """The gaps that F depends on."""

    def rebased(self, weights: Matrices) -> Self:
        """Transform the functions monotonically, for the most accurate digits around the weights."""
        return self

    def two_sided(self) -> Self:
        """Let rebasing turn the functions over, for methods that follow one function at a time."""
        return self

    @property
    def is_alone(self) -> bool:
        """Whether no other attention head is in the functions."""
        return True

    @abstractmethod
    def value(self, weights: Matrices) -> Values:
        """The values; −∞ where they can only be computed after rebasing."""

    @abstractmethod
    def value_and_weight(self, weights: Matrices) -> tuple[Values, Float[np.ndarray, "N n T"]]:
        """The values, and q = −dF/dy, where the values are finite."""

    @abstractmethod
    def slopes(self, weights: Matrices) -> GapSlopes:
        """Values and derivatives, where the values are finite."""

    def gradient(self, weights: Matrices) -> Matrices:
        """The gradients, where the values are finite."""
        return -self.adjoint(self.value_and_weight(weights)[1])

    def safe_curvature(self, weights: Matrices) -> Float[np.ndarray, "N nT nT"]:
        """A positive semidefinite curvature near that of the slopes: diag(|q|) − qq'/Σ|q|."""
        q = self.value_and_weight(weights)[1].reshape(len(weights), -1)
        # by Cauchy and Schwarz, (Σ q x)² ≤ Σ|q| Σ|q| x²
        size = np.abs(q).sum(axis=-1)[:, None, None]
        safe = -q[:, :, None] * q[:, None] / np.where(size > 0, size, 1.0)
        diagonal_of(safe)[:] += np.abs(q)
        return np.asarray(safe)

    @cached_property
    def left(self) -> Float[np.ndarray, "N n T k"]:
        """k_α − k_t."""
        return np.asarray(np.take_along_axis(self.keys, self.reference[..., None, None], axis=2) - self.keys)

    @cached_property
    def moving(self) -> Bool[np.ndarray, "N n T"]:
        """The gaps in use that the weights can change."""
        return np.asarray(self.used & self.left.any(axis=-1))

    def gaps(self, weights: Matrices) -> Float[np.ndarray, "N n T"]:
        """y_t = (k_α − k_t)'W z: A of the weights."""
        return np.asarray((self.left @ (self.queries @ weights.mT)[..., None])[..., 0])

    def adjoint(self, x: Float[np.ndarray, "N n T"]) -> Matrices:
        """Σ x_it (k_α − k_t) z_i': the adjoint A*."""
        return np.asarray((x[:, :, None] @ self.left)[:, :, 0].mT @ self.queries)

    def gram(self, metric: BarrierMetric) -> Float[np.ndarray, "N nT nT"]:
        """A H⁻¹ A* for the Hessian H of a barrier."""
        return metric.gram(self.left, self.queries)

    def largest_gaps(self, norm: Norm) -> Values:
        """The largest gap of weights with N(W) = 1: N* of (k_α − k_t) z', a product of rank one."""
        left, right = norm.dual.values(self.left, 1), norm.dual.values(self.queries, 1)
        return np.asarray((left * right[..., None] * self.used).max(axis=(-2, -1)))

    def scaled(self, radii: Values) -> Self:
        """Substitute W = radius · U: the functions of U."""
        # k'(R U)z = (R k)'U z
        return replace(self, keys=self.keys * radii[:, None, None, None])

    def spanned(self, points: Float[np.ndarray, "K k e"]) -> Self:
        """Substitute W = Σ x_j D_j: the functions of x, shape (N, K, 1)."""
        # (k_α − k_t)'D_j z is the product of k_α − k_t with the image of z
        images = (points @ self.queries[:, :, None, :, None])[..., 0]  # D_j z
        ones = np.ones((*self.queries.shape[:2], 1))
        return replace(self, keys=self.keys @ images.mT, queries=ones)


@dataclass(frozen=True, eq=False)
class LogSum(Gaps):
    """log Σ c_it ℓ(y_it), convex for ℓ(y) = exp(−y). ``log_weight``: log c, −∞ where a token is left out."""

    log_weight: Float[np.ndarray, "N n T"]
    loss: Scalar = DECAY

    @classmethod
    def from_rows(
        cls, rows: Float[np.ndarray, "m d"], log_weight: np.ndarray | float = 0.0, loss: Scalar = DECAY
    ) -> "Flat[LogSum]":
        """Log Σ c ℓ(⟨row, x⟩) as a function of d numbers."""
        # α has the key 0 and no weight, and the others the key −row, so that y = (k_α − k_t)'x = ⟨row, x⟩
        keys = np.concatenate([np.zeros((1, rows.shape[1])), -rows])[None, None]
        log_weight = np.append(-np.inf, np.broadcast_to(log_weight, len(rows)))[None, None]
        return Flat(cls(keys, np.ones((1, 1, 1)), np.zeros((1, 1), dtype=int), log_weight, loss))

    def __getitem__(self, index: Any) -> Self:
        own = ("keys", "queries", "reference", "log_weight")
        return replace(self, **{name: getattr(self, name)[index] for name in own})

    @property
    def used(self) -> np.ndarray:
        return self.log_weight > -np.inf

    def value(self, weights: np.ndarray) -> np.ndarray:
        return self._value(self.gaps(weights))

    def _value(self, gaps: np.ndarray) -> np.ndarray:
        assert self.loss.log_value is not None
        exponent = self.log_weight + self.loss.log_value(gaps)
        largest = exponent.max(axis=(-2, -1))
        return np.asarray(largest + np.log(np.exp(exponent - largest[:, None, None]).sum(axis=(-2, -1))))

    def value_and_weight(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value, and the terms c |ℓ'| over the sum."""
        gaps = self.gaps(weights)
        value = self._value(gaps)
        return value, np.exp(self.log_weight + self.loss.log_slope(gaps) - value[:, None, None])

    def slopes(self, weights: np.ndarray) -> GapSlopes:
        value, q = self.value_and_weight(weights)
        # ∂²F/∂y² = diag(b q) − q q' with b = −d log|ℓ'|/dy
        flat = q.reshape(len(q), -1)
        curvature = -flat[:, :, None] * flat[:, None]
        diagonal_of(curvature)[:] += (q * self.loss.bend(self.gaps(weights))).reshape(flat.shape)
        return GapSlopes(value, -self.adjoint(q), curvature)


G = TypeVar("G", bound=Gaps)


@dataclass(frozen=True, eq=False)
class Flat(Generic[G]):
    """One function of gaps as a function of the numbers of W, row by row: an objective of ``trust_region``."""

    stack: G  # of one function

    def matrix(self, x: np.ndarray) -> Matrices:
        """W, shape (1, k, e)."""
        return x.reshape(1, self.stack.keys.shape[-1], self.stack.queries.shape[-1])

    @cached_property
    def places(self) -> np.ndarray:
        """The gaps that move, shape (m,)."""
        return np.flatnonzero(self.stack.moving[0])

    @cached_property
    def rows(self) -> np.ndarray:
        """(k_t − k_α) z' of the gaps that move, shape (m, k e)."""
        stack, (query, token) = self.stack, np.nonzero(self.stack.moving[0])
        outer = -stack.left[0, query, token, :, None] * stack.queries[0, query, None]
        return np.asarray(outer.reshape(len(query), -1))

    def value(self, x: np.ndarray) -> float:
        """The value; −∞ where it can only be computed after rebasing."""
        return float(self.stack.value(self.matrix(x))[0])

    def expand(self, x: np.ndarray) -> Expansion:
        """Value and derivatives."""
        value, gradient, curvature = self.stack.slopes(self.matrix(x))
        # only gaps that move have rows; their sign cancels in J'CJ
        core = curvature[0].take(self.places, axis=0).take(self.places, axis=1)
        return Expansion(float(value[0]), gradient.reshape(-1), Curvature(self.rows, core))

    def rebased(self, x: np.ndarray) -> Self:
        """Transform the function monotonically, for the most accurate digits around x."""
        stack = self.stack.rebased(self.matrix(x))
        return self if stack is self.stack else replace(self, stack=stack)
