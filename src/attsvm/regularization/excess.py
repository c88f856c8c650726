"""How far a loss lies above that of a selection, in logarithms, with its derivatives in the attention weights.

At ‖W‖ = 1e4 times the value of the Att-SVM, the loss equals its infimum in every digit. The logarithm of its excess
over the loss of the selected tokens alone is a sum of terms without cancellation, and stays exact.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from attsvm._utils.linear_algebra import softmax
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.margin_losses import NODE_WEIGHTS, NODES, HeadFunction, LinearFunction, Scalar
from attsvm.regularization.trust_region import Curvature, Expansion

# smallest attention of the selected tokens for which the loss is compared to theirs alone
SATURATED = 0.999
KEPT = 1e-3
"""Smallest attention of a token that counts as kept."""
LOST = 1e-12
"""Largest attention of dropped tokens beside which several kept ones leave only rounding in the gradient."""

_HALVES = np.concatenate([(NODES + 1) / 4, (NODES + 3) / 4])
_WHOLE = (NODES + 1) / 2
# where one rule and two halves differ by more, the head has a kink between the two points
_SMOOTH = 1e-12


class _Parts(NamedTuple):
    """What value and derivatives share; c is the largest shortfall of a logit that counts."""

    value: float  # excess · exp(−log_scale)
    log_scale: float
    attention: np.ndarray  # (N, T)
    small: np.ndarray  # (N,): exp(c)
    shares: np.ndarray  # (N, T): attention · exp(−c) of the tokens other than the reference
    drop: np.ndarray  # (N,): (y h(x_α) − y h(o)) exp(−c)
    size: np.ndarray  # (N,): |ℓ'| exp(c − log_scale) / N


@dataclass(frozen=True, kw_only=True)
class Excess:
    """log(L(W) − L_α) of one problem under a fixed prediction head h, L_α the loss of the tokens α alone.

    The margins are m = y h(o). The margin that a query loses against its reference token is a function of D = x_α − o,
    a sum of small terms. It keeps its digits where h(x_α) and h(o) are equal to rounding.
    """

    # shape (N, T, d_k), keys for each of the N active queries, relative to the key of the reference token
    keys: np.ndarray
    queries: np.ndarray  # shape (N, d_q)
    allowed: np.ndarray  # shape (N, T); of tokens with equal keys the first one, with their mean
    offsets: np.ndarray  # shape (N, T), log m for m tokens with equal keys
    tokens: np.ndarray  # shape (N, T, d)
    labels: np.ndarray  # shape (N,)
    head: HeadFunction | LinearFunction = field(repr=False)
    scores: np.ndarray  # shape (N, T), y h(x_t) of each token; −inf where masked
    loss: Scalar
    reference: np.ndarray  # shape (N,), α
    above: bool = True  # whether L > L_α. If not, the value is −log(L_α − L), which also increases with L.

    @classmethod
    def of(cls, problem: Problem, head: HeadFunction | LinearFunction, loss: Scalar) -> "Excess":
        """For a problem without batch axes, over the loss of the tokens of largest y h(x).

        Raises ProblemError if the head is not a number at some token.
        """
        assert problem.labels is not None
        keys, queries, _, active = problem.canonical
        tokens = np.broadcast_to(problem.tokens[:, None], (*active.shape, *problem.tokens.shape[1:]))
        labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
        sequence, _ = np.nonzero(active)
        # scores and reference follow from the head
        excess = cls(
            keys=keys[sequence],
            queries=queries[active],
            allowed=problem.copies.distinct[active],
            offsets=np.log(np.broadcast_to(problem.copies.number, tokens.shape[:-1]))[active],
            tokens=problem.copies.mean(tokens, axes=1)[active],
            labels=labels[active],
            head=head,
            scores=np.zeros((len(sequence), problem.num_tokens)),
            loss=loss,
            reference=np.zeros(len(sequence), dtype=int),
        )
        return excess.under(head)

    def under(self, head: HeadFunction | LinearFunction) -> Self:
        """The same under another prediction head, over the loss of its optimal tokens.

        Raises ProblemError if the head is not a number at some token.
        """
        values = head.values(self.tokens.reshape(-1, self.tokens.shape[2])).reshape(self.allowed.shape)
        if not np.isfinite(values[self.allowed]).all():
            raise ProblemError(
                f"head: expected finite outputs at the tokens, got {values[self.allowed & ~np.isfinite(values)][0]}"
            )
        scores = np.where(self.allowed, self.labels[:, None] * values, -np.inf)
        return replace(self, head=head, scores=scores).over(np.argmax(scores, axis=1))

    def restricted(self, allowed: np.ndarray) -> Self:
        """The excess if each query attends to these tokens only, over the best of them."""
        scores = np.where(allowed, self.scores, -np.inf)
        return replace(self, allowed=allowed, scores=scores).over(np.argmax(scores, axis=1))

    @property
    def is_linear(self) -> bool:
        """Whether the prediction head is linear, so that the best mixture of tokens is a single one."""
        return isinstance(self.head, LinearFunction)

    @property
    def random_starts(self) -> int:
        """Branches from random weights of each size, besides those that start at zero and at the optimal tokens."""
        return 0 if self.is_linear else 1

    @cached_property
    def optimal(self) -> np.ndarray:
        """The tokens of least loss, shape (N,)."""
        return np.asarray(np.argmax(self.scores, axis=1))

    @cached_property
    def margins(self) -> np.ndarray:
        """The margins y h(x_α) of the reference tokens, shape (N,)."""
        return np.asarray(self.scores[np.arange(len(self.reference)), self.reference])

    @cached_property
    def away(self) -> np.ndarray:
        """x_α − x_t, shape (N, T, d); 0 where masked."""
        kept = self.tokens[np.arange(len(self.reference)), self.reference][:, None]
        return np.where(self.allowed[:, :, None], kept - self.tokens, 0.0)

    @cached_property
    def worse(self) -> np.ndarray:
        """Y ⟨∇h(x_α), x_α − x_t⟩, shape (N, T): under a linear head, how much lower the score of a token is."""
        slope = self.head.gradients(self.tokens[np.arange(len(self.reference)), self.reference])
        return np.asarray(self.labels[:, None] * (self.away @ slope[:, :, None])[..., 0])

    @cached_property
    def differs(self) -> np.ndarray:
        """The tokens that change the loss where they share the attention with the reference, shape (N, T)."""
        return np.asarray(self.worse != 0 if self.is_linear else self.away.any(axis=2))

    def kept(self, weights: np.ndarray) -> np.ndarray:
        """The tokens that are kept in the limit if these weights are far along the path; bool, shape (N, T).

        Under a linear head the token of largest logit alone, otherwise those with an attention above 1e-3.
        """
        logits = self.logits(weights)
        if self.is_linear:
            return np.asarray(np.argmax(logits, axis=1)[:, None] == np.arange(self.allowed.shape[1]))
        return np.asarray(softmax(logits) > KEPT)

    def same_values(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Whether two selections have the same margins."""
        index = np.arange(len(one))
        return bool((self.scores[index, one] == self.scores[index, other]).all())

    def is_rounding(self, weights: np.ndarray) -> bool:
        """Whether the gradient is rounding: several tokens balance while the attention of the others vanishes."""
        if self.is_linear:
            return False
        attention = softmax(self.logits(weights))
        kept = attention > KEPT
        dropped = attention[self.allowed & ~kept]
        return bool((kept.sum(axis=1) > 1).any() and dropped.size and dropped.max() < LOST)

    def pooled(self, weights: np.ndarray) -> np.ndarray:
        """y_i o_i, shape (N, d)."""
        attention = softmax(self.logits(weights))
        return np.asarray(self.labels[:, None] * (attention[:, None] @ self.tokens)[:, 0])

    def _parts(self, logits: np.ndarray) -> _Parts:
        attention, shortfall = softmax(logits), logits - logits.max(axis=1, keepdims=True)
        counted = self.allowed & self.differs
        # the largest term of each query is factored out; queries that do not change the loss have none
        moves = counted.any(axis=1)
        c = np.where(moves, np.max(np.where(counted, shortfall, -np.inf), axis=1), 0.0)
        small = np.exp(c)
        shares = np.exp(np.where(counted, shortfall - c[:, None], -np.inf)) * attention.max(axis=1)[:, None]
        drop = np.sum(shares * self.worse, axis=1) if self.is_linear else self._drop(shares, small)
        drops = small * drop
        log_mean, log_slope = self.loss.log_mean_slope(self.margins, drops), self.loss.log_slope(self.margins - drops)
        log_mean, log_slope = (np.where(moves, c + log, -np.inf) for log in (log_mean, log_slope))
        log_scale = float(max(np.max(log_mean), np.max(log_slope)))
        value = float(np.mean(np.exp(log_mean - log_scale) * drop))
        size = np.exp(log_slope - log_scale) / len(drop)
        return _Parts(value, log_scale, attention, small, shares, drop, size)

    def _shift(self, shares: np.ndarray) -> np.ndarray:
        """(x_α − o) exp(−c) = Σ shares_t (x_α − x_t), shape (N, d)."""
        return np.asarray((shares[:, None] @ self.away)[:, 0])

    def _drop(self, shares: np.ndarray, small: np.ndarray) -> np.ndarray:
        """(y h(x_α) − y h(o)) exp(−c), shape (N,): the integral of ∇h from o = x_α − exp(c)·shift to x_α."""
        shift, start = self._shift(shares), self.tokens[np.arange(len(self.reference)), self.reference]
        step = small[:, None] * shift
        nodes = np.concatenate([_WHOLE, _HALVES])
        points = start[:, None] - nodes[:, None] * step[:, None]
        slopes = self.head.gradients(points.reshape(-1, points.shape[2])).reshape(points.shape)
        along = self.labels[:, None] * (slopes @ shift[:, :, None])[..., 0]
        whole = along[:, : len(_WHOLE)] @ NODE_WEIGHTS / 2
        halves = along[:, len(_WHOLE) :] @ np.tile(NODE_WEIGHTS, 2) / 4
        kinked = ~(np.abs(whole - halves) <= _SMOOTH * np.max(np.abs(along), axis=1))
        if kinked.any():
            values = self.labels[kinked] * self.head.values(start - step)[kinked]
            halves[kinked] = (self.margins[kinked] - values) / small[kinked]
        return np.asarray(halves)

    def _derivatives(self, parts: _Parts) -> tuple[np.ndarray, np.ndarray]:
        """The gradient in the logits, (N, T), and the part of the Hessian that does not come from the softmax.

        Both are times exp(−log_scale).
        """
        attention, shares, size = parts.attention, parts.shares, parts.size
        bend = self.loss.bend(self.margins - parts.small * parts.drop) * parts.small
        # derivatives of the drop in the logits: a_t ⟨∇, (x_α − x_t) − (x_α − o)⟩ with ∇ = y ∇h(o)
        if not isinstance(self.head, HeadFunction):
            of_drop = shares * self.worse - attention * parts.drop[:, None]
            gradient = size[:, None] * of_drop
            return gradient, bend[:, None, None] * (gradient[:, :, None] * of_drop[:, None])
        shift = self._shift(shares)
        pooled = self.tokens[np.arange(len(shift)), self.reference] - parts.small[:, None] * shift
        slope = self.labels[:, None] * self.head.gradients(pooled)
        moved = shares[:, :, None] * self.away - attention[:, :, None] * shift[:, None]
        of_drop = (moved @ slope[:, :, None])[..., 0]
        gradient = size[:, None] * of_drop
        # and the second derivative of h between two tokens
        curved = self.labels[:, None, None] * self.head.hessians(pooled)
        of_head = (size * parts.small)[:, None, None] * (moved @ curved @ moved.mT)
        return gradient, bend[:, None, None] * (gradient[:, :, None] * of_drop[:, None]) - of_head

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
        """s_t − s_α + log m, shape (N, T); −inf where masked."""
        logits = (self.keys @ (self.queries @ weights.reshape(self.shape).T)[..., None])[..., 0]
        return np.where(self.allowed, logits + self.offsets, -np.inf)

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
        scaled, log_scale = self._parts(self.logits(weights))[:2]
        if np.isnan(scaled):
            return np.inf
        if self.above:
            return float(log_scale + np.log(scaled)) if scaled > 0 else -np.inf
        return float(-log_scale - np.log(-scaled)) if scaled < 0 else np.inf

    def expand(self, weights: np.ndarray) -> Expansion:
        """Value and derivatives in the entries of W. Where L = L_α the derivatives are those of the excess itself."""
        parts = self._parts(self.logits(weights))
        attention, log_scale = parts.attention, parts.log_scale
        gradient, curvature = self._derivatives(parts)
        scaled = abs(parts.value) or 1.0
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
