"""How far a loss lies above that of a selection, in logarithms, with its derivatives in the attention weights.

At ‖W‖ = 1e4 times the value of the Att-SVM, the loss equals its infimum in every digit. The logarithm of its excess
over the loss of the selected tokens alone is a sum of terms without cancellation, and stays exact.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from attsvm.problem import Problem
from attsvm.regularization.objectives import Curvature, Expansion
from attsvm.regularization.scalar import Scalar
from attsvm.softmax import softmax

# smallest attention of the selected tokens for which the loss is compared to theirs alone
SATURATED = 0.999


@dataclass(frozen=True)
class Excess:
    """log(L(W) − L_α) of one problem under a fixed linear head, L_α the loss of the tokens α alone.

    Attributes
    ----------
    keys : ndarray, shape (N, T, d_k)
        Keys for each of the N active queries, relative to the key of the reference token.
    queries : ndarray, shape (N, d_q)
    allowed : bool ndarray, shape (N, T)
    values : ndarray, shape (N, T, d)
        y_i x_it, the input of the head.
    head : ndarray, shape (d,)
    loss : Scalar
    reference : int ndarray, shape (N,)
        α.
    above : bool
        Whether L > L_α. If not, the value is −log(L_α − L), which also increases with L.
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
        """For a problem without batch axes, over the loss of the head's optimal tokens."""
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
        return np.asarray(np.argmax(np.where(self.allowed, self.values @ self.head, -np.inf), axis=1))

    @cached_property
    def worse(self) -> np.ndarray:
        """d_t = γ_α − γ_t, shape (N, T); 0 where masked. Negative where a token is better than the reference."""
        kept = self.values[np.arange(len(self.reference)), self.reference][:, None]
        return np.where(self.allowed, (kept - self.values) @ self.head, 0.0)

    @cached_property
    def margins(self) -> np.ndarray:
        """γ_α, shape (N,)."""
        return np.asarray(self.values[np.arange(len(self.reference)), self.reference] @ self.head)

    @property
    def shape(self) -> tuple[int, int]:
        """(d_k, d_q)."""
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
        """The excess over the selected tokens if the softmax is nearly saturated, else over the optimal ones.

        Once the softmax is saturated only the first has an accurate gradient; the second is never singular.
        """
        logits = self.logits(weights)
        selected = np.argmax(logits, axis=1)
        if self._same_values(selected, self.optimal) or softmax(logits).max(axis=1).min() < SATURATED:
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

    def _same_values(self, one: np.ndarray, other: np.ndarray) -> bool:
        index = np.arange(len(one))
        return bool((self.worse[index, one] == self.worse[index, other]).all())

    def selects_optimal(self, weights: np.ndarray) -> bool:
        """Whether each query selects a token of least loss."""
        return self._same_values(np.argmax(self.logits(weights), axis=1), self.optimal)

    def pooled(self, weights: np.ndarray) -> np.ndarray:
        """y_i o_i, shape (N, d)."""
        attention = softmax(self.logits(weights))
        return np.asarray((attention[:, None] @ self.values)[:, 0])

    def value(self, weights: np.ndarray) -> float:
        """log(L − L_α), or −log(L_α − L); −∞ or ∞ where L is on the other side of L_α."""
        scaled, log_scale = self._scaled(self.logits(weights))[:2]
        if self.above:
            return float(log_scale + np.log(scaled)) if scaled > 0 else -np.inf
        return float(-log_scale - np.log(-scaled)) if scaled < 0 else np.inf

    def expand(self, weights: np.ndarray) -> Expansion:
        """Value and derivatives in the entries of W, where the value is finite."""
        signed, log_scale, attention, gradient, curvature = self._scaled(self.logits(weights))
        scaled = abs(signed)
        gradient, curvature = gradient / scaled, curvature / scaled
        # per query, in its logits: diag(g) − g a' − a g' + (bend of the loss) ∇Δ ∇Δ'
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
        attention, shortfall = softmax(logits), logits - logits.max(axis=1, keepdims=True)
        counted = self.allowed & (d != 0)
        # the largest term of each query is factored out; queries that do not change the loss have none
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
    """log L as a function of the head v, for fixed attention: ``pooled`` are y_i o_i, shape (N, d)."""

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
        Its reference tokens are to be selected.
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
