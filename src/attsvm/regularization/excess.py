"""How far a loss lies above that of a selection, in logarithms, with its derivatives in the attention weights.

At ‖W‖ = 1e4 times the value of the Att-SVM, the loss equals its infimum in every digit. The logarithm of its excess
over the loss of the selected tokens alone is a sum of terms without cancellation, and stays exact. :class:`Scalar` has
the losses of one margin in this form.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_expit, logsumexp

from attsvm._utils.linear_algebra import softmax
from attsvm.losses import OutputLoss
from attsvm.losses.exponential import EXPONENTIAL
from attsvm.losses.linear import LINEAR
from attsvm.losses.logistic import LOGISTIC
from attsvm.problem import Problem
from attsvm.regularization.trust_region import Curvature, Expansion

# a logistic slope over an interval of this half-length is a polynomial of degree 31, up to rounding
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_SHORT = 2.0


@dataclass(frozen=True)
class Scalar:
    """A decreasing loss ℓ(m) of the margin: NumPy functions, in logarithms."""

    value: Callable[[np.ndarray], np.ndarray]
    log_value: Callable[[np.ndarray], np.ndarray] | None
    log_slope: Callable[[np.ndarray], np.ndarray]
    bend: Callable[[np.ndarray], np.ndarray]  # −d log|ℓ'| / dm

    def log_mean_slope(self, margins: np.ndarray, drops: np.ndarray) -> np.ndarray:
        """Log of the mean of |ℓ'| between m − Δ and m: the excess ℓ(m − Δ) − ℓ(m) is Δ times that."""
        between = margins[:, None] - drops[:, None] * (1 + _NODES) / 2
        near = logsumexp(self.log_slope(between), b=_NODE_WEIGHTS / 2, axis=1)
        far = np.abs(drops) > _SHORT
        if not far.any():
            return np.asarray(near)
        near[far] = self._log_difference(margins[far] - drops[far], margins[far]) - np.log(np.abs(drops[far]))
        return np.asarray(near)

    def _log_difference(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        if self.log_value is None:
            return np.asarray(np.log(np.abs(self.value(one) - self.value(other))))
        one, other = self.log_value(one), self.log_value(other)
        larger = np.maximum(one, other)
        return np.asarray(larger + np.log(-np.expm1(np.minimum(one, other) - larger)))


def _log_logistic(margins: np.ndarray) -> np.ndarray:
    # log(log(1 + e^−m)) is −m to rounding once m > 37
    return np.where(margins > 37, -margins, np.log(np.logaddexp(0.0, -np.minimum(margins, 37))))


_EXACT: dict[OutputLoss, Scalar] = {
    LOGISTIC: Scalar(
        lambda m: np.logaddexp(0.0, -m), _log_logistic, lambda m: log_expit(-m), lambda m: np.exp(log_expit(m))
    ),
    EXPONENTIAL: Scalar(lambda m: np.exp(-m), np.negative, np.negative, np.ones_like),
    LINEAR: Scalar(np.negative, None, np.zeros_like, np.zeros_like),
}


def scalar_of(loss: OutputLoss) -> Scalar:
    """A loss of the margin in NumPy: in closed form for the built-in ones, otherwise through its JAX functions."""
    return _EXACT[loss] if loss in _EXACT else _through_jax(loss)


def _through_jax(loss: OutputLoss) -> Scalar:
    def of_margins(function: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[[np.ndarray], np.ndarray]:
        def numpy_function(margins: np.ndarray) -> np.ndarray:
            with jax.enable_x64(True):
                outputs = jnp.asarray(margins.reshape(-1, 1, 1))
                return np.asarray(function(outputs, jnp.ones_like(outputs)), dtype=np.float64).reshape(margins.shape)

        return numpy_function

    log_slope = of_margins(lambda outputs, labels: loss.slope(outputs, labels).log_slope)

    def bend(margins: np.ndarray) -> np.ndarray:
        return np.asarray((log_slope(margins - 1e-5) - log_slope(margins + 1e-5)) / 2e-5)

    return Scalar(of_margins(loss.values), None, log_slope, bend)


# smallest attention of the selected tokens for which the loss is compared to theirs alone
SATURATED = 0.999


class Scaled(NamedTuple):
    """The excess of each query and its derivatives in the logits, all times exp(−log_scale)."""

    value: float  # the mean over the queries
    log_scale: float
    attention: np.ndarray  # shape (N, T)
    gradient: np.ndarray  # shape (N, T), in the logits
    bend: np.ndarray  # shape (N, T, T), the part of the Hessian in the logits that does not come from the softmax


@dataclass(frozen=True, kw_only=True)
class Excess(ABC):
    """log(L(W) − L_α) of one problem under a fixed head, L_α the loss of the tokens α alone.

    A subclass is a kind of head.
    """

    # shape (N, T, d_k), keys for each of the N active queries, relative to the key of the reference token
    keys: np.ndarray
    queries: np.ndarray  # shape (N, d_q)
    allowed: np.ndarray  # shape (N, T)
    loss: Scalar
    reference: np.ndarray  # shape (N,), α
    above: bool = True  # whether L > L_α. If not, the value is −log(L_α − L), which also increases with L.

    random_starts: ClassVar[int] = 0
    """Branches from random weights of each size, besides those that start at zero and at the optimal tokens."""

    @property
    @abstractmethod
    def optimal(self) -> np.ndarray:
        """The tokens of least loss, shape (N,)."""

    @property
    @abstractmethod
    def margins(self) -> np.ndarray:
        """The margins of the reference tokens, shape (N,)."""

    @property
    @abstractmethod
    def differs(self) -> np.ndarray:
        """The tokens that change the loss where they share the attention with the reference, shape (N, T)."""

    @abstractmethod
    def kept(self, weights: np.ndarray) -> np.ndarray:
        """The tokens that are kept in the limit if these weights are far along the path; bool, shape (N, T)."""

    @abstractmethod
    def same_values(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Whether two selections have the same margins."""

    def is_rounding(self, weights: np.ndarray) -> bool:
        """Whether the gradient at these weights is rounding."""
        return False

    def _level(self, logits: np.ndarray) -> tuple[float, float]:
        """Value and scale of the excess, without its derivatives."""
        return self._scaled(logits)[:2]

    @abstractmethod
    def _scaled(self, logits: np.ndarray) -> Scaled:
        """The excess and its derivatives."""

    def over(self, reference: np.ndarray, above: bool = True) -> Self:
        """The excess over the loss of other tokens."""
        own = self.keys - self.keys[np.arange(len(reference)), reference][:, None]
        return replace(self, keys=own, reference=reference, above=above)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (d_k, d_q) of W."""
        return self.keys.shape[-1], self.queries.shape[-1]

    @cached_property
    def moving(self) -> np.ndarray:
        """The tokens whose logits can change relative to the reference, shape (N, T)."""
        return np.asarray(self.allowed & np.any(self.keys != 0, axis=2))

    @cached_property
    def rows(self) -> np.ndarray:
        """(k_t − k_α) z' of these tokens, flattened, shape (m, d_k d_q)."""
        query, token = np.nonzero(self.moving)
        return np.asarray((self.keys[query, token][:, :, None] * self.queries[query][:, None]).reshape(len(query), -1))

    @property
    def depends_on_attention(self) -> bool:
        """Whether the loss depends on W: some token with another score than the optimal one has another key."""
        differ = np.any(self.keys != 0, axis=2) & self.differs & np.any(self.queries != 0, axis=1)[:, None]
        return bool(differ.any())

    @property
    def infimum(self) -> float:
        """The loss L_α of the reference tokens."""
        return float(np.mean(self.loss.value(self.margins)))

    def order(self, weights: np.ndarray) -> tuple[int, float]:
        """(1, log(L − L_α)) or (−1, −log(L_α − L)), which sort like L."""
        value = replace(self, above=True).value(weights)
        return (1, value) if value > -np.inf else (-1, replace(self, above=False).value(weights))

    def loss_at(self, weights: np.ndarray) -> float:
        """Compute the loss L(W)."""
        side, value = self.order(weights)
        return self.infimum + side * float(np.exp(side * value))

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """s_t − s_α, shape (N, T); −inf where masked."""
        logits = (self.keys @ (self.queries @ weights.reshape(self.shape).T)[..., None])[..., 0]
        return np.where(self.allowed, logits, -np.inf)

    def rebased(self, weights: np.ndarray) -> Self:
        """The excess over the selected tokens if the softmax is nearly saturated, else over the optimal ones.

        Once the softmax is saturated only the first has an accurate gradient; the second is never singular.
        """
        logits = self.logits(weights)
        selected = np.argmax(logits, axis=1)
        if self.same_values(selected, self.optimal) or softmax(logits).max(axis=1).min() < SATURATED:
            selected = self.optimal
        above = self.above if (selected == self.reference).all() else True
        for sign in (above, not above):
            other = self
            if sign != self.above or (selected != self.reference).any():
                other = self.over(selected, sign)
            if np.isfinite(other.value(weights)):
                return other
        return self.over(self.optimal)

    def same_as(self, other: object) -> bool:
        """Whether the values of two such functions of one problem can be compared."""
        return (
            isinstance(other, Excess) and self.above == other.above and bool((self.reference == other.reference).all())
        )

    def selects_optimal(self, weights: np.ndarray) -> bool:
        """Whether each query selects a token of least loss."""
        return self.same_values(np.argmax(self.logits(weights), axis=1), self.optimal)

    def value(self, weights: np.ndarray) -> float:
        """log(L − L_α), or −log(L_α − L); −∞ or ∞ where L is on the other side of L_α, ∞ where L is not a number."""
        scaled, log_scale = self._level(self.logits(weights))
        if np.isnan(scaled):
            return np.inf
        if self.above:
            return float(log_scale + np.log(scaled)) if scaled > 0 else -np.inf
        return float(-log_scale - np.log(-scaled)) if scaled < 0 else np.inf

    def expand(self, weights: np.ndarray) -> Expansion:
        """Value and derivatives in the entries of W. Where L = L_α the derivatives are those of the excess itself."""
        signed, log_scale, attention, gradient, curvature = self._scaled(self.logits(weights))
        scaled = abs(signed) or 1.0
        gradient, curvature = gradient / scaled, curvature / scaled
        # per query, in its logits: diag(g) − g a' − a g' + the rest
        outer = gradient[:, :, None] * attention[:, None]
        blocks = curvature - outer - outer.mT
        index = np.arange(gradient.shape[1])
        blocks[:, index, index] += gradient
        sign = 1.0 if self.above else -1.0
        moving = self.moving
        flat = gradient[moving]
        core = np.zeros((*moving.shape, *moving.shape))
        query = np.arange(len(gradient))
        core[query, :, query] = blocks
        core = core[moving][:, moving] - sign * np.outer(flat, flat)
        return Expansion(sign * float(log_scale + np.log(scaled)), flat @ self.rows, Curvature(self.rows, core))


def active_queries(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each of the N active queries of a problem without batch axes: label, tokens, keys, query and mask."""
    assert problem.labels is not None
    keys, queries, allowed, active = problem.canonical
    labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
    sequence, _ = np.nonzero(active)
    return labels[active], problem.tokens[sequence], keys[sequence], queries[active], allowed[active]


@dataclass(frozen=True)
class Separation:
    """log Σ exp(s_t − s_α) over the dropped tokens: convex, and small where α is selected."""

    excess: Excess  # its reference tokens are to be selected

    @property
    def rows(self) -> np.ndarray:
        """(k_t − k_α) z', flattened, shape (m, d_k d_q)."""
        return self.excess.rows

    def rebased(self, weights: np.ndarray) -> "Separation":
        return self

    def value(self, weights: np.ndarray) -> float:
        return float(logsumexp(self.rows @ weights))

    def expand(self, weights: np.ndarray) -> Expansion:
        exponents = self.rows @ weights
        total = logsumexp(exponents)
        share = np.exp(exponents - total)
        core = np.diag(share) - np.outer(share, share)
        return Expansion(float(total), share @ self.rows, Curvature(self.rows, core))
