"""How far a loss lies above that of a selection, in logarithms, with its derivatives in the attention weights.

At ‖W‖ = 1e4 times the Att-SVM's value the loss is its infimum plus exp(−1e4): as a number it says nothing any more. Its
excess over the loss of the selected tokens alone, taken in logarithms, is a sum of terms without cancellation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_expit, logsumexp

from attsvm.errors import ProblemError
from attsvm.losses.losses import Loss
from attsvm.problem import Problem

# a logistic slope over an interval of this half-length is a polynomial of degree 31 to rounding
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_SHORT = 2.0
# least attention of the selected tokens with which the loss is compared to theirs alone
SATURATED = 0.999


class Curvature(NamedTuple):
    """A Hessian as J' C J."""

    rows: np.ndarray  # J, shape (m, d)
    core: np.ndarray  # C, shape (m, m)

    def dense(self) -> np.ndarray:
        """The Hessian, shape (d, d)."""
        return self.rows.T @ self.core @ self.rows

    def times(self, x: np.ndarray) -> np.ndarray:
        """Its product with a vector."""
        return self.rows.T @ (self.core @ (self.rows @ x))


class Expansion(NamedTuple):
    """Value, gradient and Hessian of a function of d numbers."""

    value: float
    gradient: np.ndarray  # (d,)
    curvature: Curvature


@dataclass(frozen=True)
class Scalar:
    """A falling loss ℓ(m) of the margin as NumPy functions of it, in logarithms."""

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
            return near
        near[far] = self._log_difference(margins[far] - drops[far], margins[far]) - np.log(np.abs(drops[far]))
        return near

    def _log_difference(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        if self.log_value is None:
            return np.log(np.abs(self.value(one) - self.value(other)))
        one, other = self.log_value(one), self.log_value(other)
        larger = np.maximum(one, other)
        return larger + np.log(-np.expm1(np.minimum(one, other) - larger))


def _log_logistic(margins: np.ndarray) -> np.ndarray:
    # log(log(1 + e^−m)) is −m to rounding once m > 37
    return np.where(margins > 37, -margins, np.log(np.logaddexp(0.0, -np.minimum(margins, 37))))


SCALARS = {
    "logistic": Scalar(
        lambda m: np.logaddexp(0.0, -m), _log_logistic, lambda m: log_expit(-m), lambda m: np.exp(log_expit(m))
    ),
    "exponential": Scalar(lambda m: np.exp(-m), np.negative, np.negative, np.ones_like),
    "linear": Scalar(np.negative, None, np.zeros_like, np.zeros_like),
}
SCALARS["correlation"] = SCALARS["linear"]


def parse_scalar(loss: "str | Loss") -> Scalar:
    """Read a loss: a name, or a :class:`Loss`.

    Raises
    ------
    ProblemError
        If it is neither, or does not fit labels ±1.
    """
    if isinstance(loss, str) and loss in SCALARS:
        return SCALARS[loss]
    if not isinstance(loss, Loss):
        found = repr(loss) if isinstance(loss, str) else type(loss).__name__
        raise ProblemError(f"loss: {found} found, one of {', '.join(SCALARS)} or a Loss wanted")

    def in_float64(function: Callable[[jax.Array], jax.Array]) -> Callable[[np.ndarray], np.ndarray]:
        def numpy_function(margins: np.ndarray) -> np.ndarray:
            with jax.enable_x64(True):
                return np.asarray(function(jnp.asarray(margins)), dtype=np.float64)

        return numpy_function

    log_slope = in_float64(loss.log_slope)

    def bend(margins: np.ndarray) -> np.ndarray:
        return (log_slope(margins - 1e-5) - log_slope(margins + 1e-5)) / 2e-5

    return Scalar(in_float64(loss.value), None, log_slope, bend)


@dataclass(frozen=True)
class Excess:
    """log(L(W) − L_α) of one problem under a fixed linear head, L_α the loss of the tokens α alone.

    Attributes
    ----------
    keys : ndarray, shape (N, T, d_k)
        Of the N queries that count, relative to the key of the reference token.
    queries : ndarray, shape (N, d_q)
    allowed : bool ndarray, shape (N, T)
    values : ndarray, shape (N, T, d)
        y_i x_it: what the head reads.
    head : ndarray, shape (d,)
    loss : Scalar
    reference : int ndarray, shape (N,)
        α.
    above : bool
        Whether L > L_α. Where not, the value is −log(L_α − L): it grows with L as well.
    """

    keys: np.ndarray
    queries: np.ndarray
    allowed: np.ndarray
    values: np.ndarray
    head: np.ndarray
    loss: Scalar
    reference: np.ndarray
    above: bool = True

    @classmethod
    def of(cls, problem: Problem, head: np.ndarray, loss: Scalar) -> "Excess":
        """Of a problem without batch axes, over the loss of the head's optimal tokens."""
        assert problem.labels is not None
        keys, queries, allowed, active = problem.canonical
        labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
        sequence, _ = np.nonzero(active)
        values = labels[active][:, None, None] * problem.tokens[sequence]
        best = np.argmax(np.where(allowed[active], values @ head, -np.inf), axis=1)
        own = keys[sequence]
        own = own - own[np.arange(len(best)), best][:, None]
        return cls(own, queries[active], allowed[active], values, head, loss, best)

    def over(self, reference: np.ndarray, above: bool = True) -> "Excess":
        """The excess over the loss of other tokens."""
        own = self.keys - self.keys[np.arange(len(reference)), reference][:, None]
        return replace(self, keys=own, reference=reference, above=above)

    def under(self, head: np.ndarray) -> "Excess":
        """The same under another head, over the loss of its optimal tokens."""
        other = replace(self, head=head)
        return other.over(other.optimal)

    @cached_property
    def optimal(self) -> np.ndarray:
        """The tokens of least loss, shape (N,)."""
        return np.argmax(np.where(self.allowed, self.values @ self.head, -np.inf), axis=1)

    @cached_property
    def worse(self) -> np.ndarray:
        """d_t = γ_α − γ_t, shape (N, T); 0 where masked. Negative where a token is better than the reference."""
        kept = self.values[np.arange(len(self.reference)), self.reference][:, None]
        return np.where(self.allowed, (kept - self.values) @ self.head, 0.0)

    @cached_property
    def margins(self) -> np.ndarray:
        """γ_α, shape (N,)."""
        return self.values[np.arange(len(self.reference)), self.reference] @ self.head

    @property
    def shape(self) -> tuple[int, int]:
        """(d_k, d_q)."""
        return self.keys.shape[-1], self.queries.shape[-1]

    @cached_property
    def moving(self) -> np.ndarray:
        """The tokens whose logits can move against the reference's, shape (N, T)."""
        return self.allowed & np.any(self.keys != 0, axis=2)

    @cached_property
    def rows(self) -> np.ndarray:
        """(k_t − k_α) z' of these tokens, flattened, shape (m, d_k d_q)."""
        query, token = np.nonzero(self.moving)
        return (self.keys[query, token][:, :, None] * self.queries[query][:, None]).reshape(len(query), -1)

    @property
    def depends_on_attention(self) -> bool:
        """Whether any weights can move the loss: a token of another score than the optimal one has another key."""
        differ = np.any(self.keys != 0, axis=2) & (self.worse != 0) & np.any(self.queries != 0, axis=1)[:, None]
        return bool(differ.any())

    @property
    def infimum(self) -> float:
        """L_α."""
        return float(np.mean(self.loss.value(self.margins)))

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """s_t − s_α, shape (N, T); −inf where masked."""
        logits = (self.keys @ (self.queries @ weights.reshape(self.shape).T)[..., None])[..., 0]
        return np.where(self.allowed, logits, -np.inf)

    def rebased(self, weights: np.ndarray) -> "Excess":
        """The excess over the selected tokens where little else is attended to, else over the optimal ones.

        Only the first has a gradient with digits once the softmax is saturated; the second is never singular.
        """
        logits = self.logits(weights)
        selected = np.argmax(logits, axis=1)
        if self._same_values(selected, self.optimal) or _softmax(logits)[0].max(axis=1).min() < SATURATED:
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
        """Whether the values of two such functions of one problem compare."""
        return (
            isinstance(other, Excess) and self.above == other.above and bool((self.reference == other.reference).all())
        )

    def _same_values(self, one: np.ndarray, other: np.ndarray) -> bool:
        index = np.arange(len(one))
        return bool((self.worse[index, one] == self.worse[index, other]).all())

    def selects_optimal(self, weights: np.ndarray) -> bool:
        """Whether each query selects a token of least loss."""
        return self._same_values(np.argmax(self.logits(weights), axis=1), self.optimal)

    def pooled(self, weights: np.ndarray) -> np.ndarray:
        """y_i o_i, shape (N, d)."""
        attention, _ = _softmax(self.logits(weights))
        return (attention[:, None] @ self.values)[:, 0]

    def value(self, weights: np.ndarray) -> float:
        """log(L − L_α), or −log(L_α − L); −∞ or ∞ where L is on the other side of L_α."""
        scaled, log_scale = self._scaled(self.logits(weights))[:2]
        if self.above:
            return float(log_scale + np.log(scaled)) if scaled > 0 else -np.inf
        return float(-log_scale - np.log(-scaled)) if scaled < 0 else np.inf

    def expand(self, weights: np.ndarray) -> Expansion:
        """Value and derivatives in the entries of W, where L is on its side of L_α."""
        signed, log_scale, attention, gradient, curvature = self._scaled(self.logits(weights))
        scaled = abs(signed)
        gradient, curvature = gradient / scaled, curvature / scaled
        # of each query, in its logits: diag(g) − g a' − a g' + (bend of the loss) ∇Δ ∇Δ'
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

    def _scaled(self, logits: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
        """Excess·exp(−C), C, the attention, and the excess' gradient and bend in the logits, both times exp(−C)."""
        d = self.worse
        attention, shortfall = _softmax(logits)
        counted = self.allowed & (d != 0)
        # the largest term of each query that moves anything, taken out; a query that moves nothing has none
        moves = counted.any(axis=1)
        c = np.where(moves, np.max(np.where(counted, shortfall, -np.inf), axis=1), 0.0)
        winner = attention.max(axis=1)  # 1/S
        terms = np.exp(np.where(counted, shortfall - c[:, None], -np.inf)) * d * winner[:, None]
        drop = terms.sum(axis=1)
        drops = np.exp(c) * drop
        log_mean, log_slope = self.loss.log_mean_slope(self.margins, drops), self.loss.log_slope(self.margins - drops)
        log_mean, log_slope = (np.where(moves, c + log, -np.inf) for log in (log_mean, log_slope))
        log_scale = max(np.max(log_mean), np.max(log_slope))
        share = 1.0 / len(drop)
        scaled = share * float(np.sum(np.exp(log_mean - log_scale) * drop))
        of_drop = terms - attention * drop[:, None]
        size = share * np.exp(log_slope - log_scale)
        gradient = size[:, None] * of_drop
        bend = self.loss.bend(self.margins - drops) * np.exp(c)
        return (
            scaled,
            float(log_scale),
            attention,
            gradient,
            bend[:, None, None] * (gradient[:, :, None] * of_drop[:, None]),
        )


@dataclass(frozen=True)
class HeadLoss:
    """log L of the head v, under a fixed attention: q_i = y_i o_i, shape (N, d)."""

    pooled: np.ndarray
    loss: Scalar

    def value(self, head: np.ndarray) -> float:
        """Log L."""
        assert self.loss.log_value is not None
        return float(logsumexp(self.loss.log_value(self.pooled @ head)) - np.log(len(self.pooled)))

    def rebased(self, head: np.ndarray) -> "HeadLoss":
        """Itself."""
        return self

    def expand(self, head: np.ndarray) -> Expansion:
        """Value and derivatives in v."""
        assert self.loss.log_value is not None
        margins = self.pooled @ head
        log_values = self.loss.log_value(margins)
        total = logsumexp(log_values)
        slope = np.exp(self.loss.log_slope(margins) - total)
        core = np.diag(slope * self.loss.bend(margins)) - np.outer(slope, slope)
        return Expansion(float(total - np.log(len(margins))), -slope @ self.pooled, Curvature(self.pooled, core))


@dataclass(frozen=True)
class Separation:
    """log Σ exp(s_t − s_α) over the dropped tokens: convex, and small where α is selected.

    Parameters
    ----------
    excess : Excess
        Whose reference tokens are to be selected.
    """

    excess: Excess

    @property
    def rows(self) -> np.ndarray:
        """(k_t − k_α) z', flattened, shape (m, d_k d_q)."""
        return self.excess.rows

    def rebased(self, weights: np.ndarray) -> "Separation":
        """Itself."""
        return self

    def value(self, weights: np.ndarray) -> float:
        """The value."""
        return float(logsumexp(self.rows @ weights))

    def expand(self, weights: np.ndarray) -> Expansion:
        """Value and derivatives in the entries of W."""
        exponents = self.rows @ weights
        total = logsumexp(exponents)
        share = np.exp(exponents - total)
        core = np.diag(share) - np.outer(share, share)
        return Expansion(float(total), share @ self.rows, Curvature(self.rows, core))


def _softmax(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shortfall = logits - logits.max(axis=1, keepdims=True)
    weight = np.exp(shortfall)
    return weight / weight.sum(axis=1, keepdims=True), shortfall
