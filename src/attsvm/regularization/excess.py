"""How far a loss lies above that of a selection, in logarithms, with its derivatives in the attention weights.

At ‖W‖ = 1e4 times the value of the Att-SVM, the loss equals its infimum in every digit. The logarithm of its excess
over the loss of the selected tokens alone is a sum of terms without cancellation, and stays exact.

:class:`Excess` is a stack of such functions. Its derivatives are those of the gaps of logits, y_t = s_α − s_t, so that
the rows (k_α − k_t) z' are formed where a method needs them only.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.gaps import Gaps, GapSlopes
from attsvm.regularization.margin_losses import NODE_WEIGHTS, NODES, HeadFunction, LinearFunction, Scalar
from attsvm.selection import scores

CHANGE = 0.9, 10.0
"""From the optimal to the selected tokens: their least probability, and how many times what tokens of higher scores
decrease the loss tokens of lower scores increase it."""
KEEP = 0.7, 2.0
"""Less than :data:`CHANGE`, to stay with the selected tokens: both have different central paths."""
SATURATED = 0.999
"""Smallest attention of the selected tokens for which a function on either side of α is compared to them."""
LEAST_RISE = 1e-150
"""Part of the slopes below which the excess counts as 0, because the squares of their ratio overflow."""

_HALVES = np.concatenate([(NODES + 1) / 4, (NODES + 3) / 4])  # of [0, 1/2] and [1/2, 1]
_WHOLE = (NODES + 1) / 2  # of [0, 1]
# where one rule and two halves differ by more, the head has a kink between the two points
_SMOOTH = 1e-12


@dataclass(frozen=True, eq=False)
class HeadOutputs:
    """The outputs y h(o) of one problem."""

    tokens: Float[np.ndarray, "n T d"]  # of tokens with equal keys their mean
    labels: Float[np.ndarray, " n"]
    head: HeadFunction | LinearFunction = field(repr=False)

    @property
    def is_linear(self) -> bool:
        """Whether the best mixture of tokens is a single one."""
        return isinstance(self.head, LinearFunction)

    def scores(self, allowed: Bool[np.ndarray, "n T"]) -> Float[np.ndarray, "n T"]:
        """Return y h(x_t) of the allowed tokens, and 0 of others; raise ProblemError if one is not a number."""
        values = self.head.values(self.tokens.reshape(-1, self.tokens.shape[2])).reshape(allowed.shape)
        if not np.isfinite(values[allowed]).all():
            raise ProblemError(
                f"head: expected finite outputs at the tokens, got {values[allowed & ~np.isfinite(values)][0]}"
            )
        return np.where(allowed, self.labels[:, None] * values, 0.0)

    def slopes(self, pooled: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return y ∇h(o)."""
        return np.asarray(self.labels[:, None] * self.head.gradients(pooled))

    def drop(self, end: Float[np.ndarray, "n d"], move: Float[np.ndarray, "n d"], scale: float) -> np.ndarray:
        """(y h(e) − y h(o))/scale, shape (n,): the integral of ∇h from o = e − scale · move to e.

        It keeps its digits where h(e) and h(o) are equal to rounding.
        """
        # ∫ y ∇h(e − t · step)'move dt over t in [0, 1], by one Gauss rule and by one on each half
        step = scale * move
        points = end[:, None] - np.concatenate([_WHOLE, _HALVES])[:, None] * step[:, None]
        slopes = self.head.gradients(points.reshape(-1, points.shape[2])).reshape(points.shape)
        along = self.labels[:, None] * (slopes @ move[:, :, None])[..., 0]
        whole = along[:, : len(_WHOLE)] @ NODE_WEIGHTS / 2
        halves = along[:, len(_WHOLE) :] @ np.tile(NODE_WEIGHTS, 2) / 4
        kinked = ~(np.abs(whole - halves) <= _SMOOTH * np.max(np.abs(along), axis=1))
        if kinked.any():
            # at a kink no rule is exact: the difference of both values, which has fewer digits
            values = self.head.values(end) - self.head.values(end - step)
            halves[kinked] = (self.labels * values)[kinked] / scale
        return np.asarray(halves)


class _Parts(NamedTuple):
    """Hold what value and derivatives share, for a largest attention exp(c) of the tokens that count."""

    log_attention: Float[np.ndarray, "N n T"]
    shift: Float[np.ndarray, "N 1 1"]  # c
    small: Float[np.ndarray, "N n T"]  # attention · exp(−c) of the tokens that count
    drop: Float[np.ndarray, "N n"]  # Δ exp(−c), Δ = y h(x_α) − y h(o) of each head
    drops: Float[np.ndarray, "N n"]  # Δ, the sum over joined heads
    scale: Float[np.ndarray, "N 1"]
    rise: Float[np.ndarray, " N"]  # (L − L_α) exp(−c − scale)


@dataclass(frozen=True, eq=False)
class Excess(Gaps):
    """log(L(W) − L_α), L_α the loss of the tokens α alone.

    Several attention heads are functions of their own, each beside fixed others, or ``joined`` to one of all weights.

    Attributes
    ----------
    keys : ndarray, shape (N, n, T, k)
    queries : ndarray, shape (N, n, e)
    reference : ndarray, shape (N, n)
        α.
    allowed : bool ndarray, shape (N, n, T)
        Of tokens with equal keys the first one, with their mean.
    offsets : ndarray, shape (N, n, T)
        Log m for m tokens with equal keys.
    scores : ndarray, shape (N, n, T)
        y h(x), 0 where not allowed.
    share : ndarray, shape (N, n)
        Of each query in the mean: 1/n, and 0 for a query that is left out.
    others : ndarray, shape (N, n)
        What other heads add to the margins.
    loss : Scalar
    heads : int
        H for a function of H joined heads, whose queries are one behind the other.
    outputs : HeadOutputs, optional
        Of a nonlinear prediction head, or where it changes; then N = 1.
    either_side : bool
        Whether rebasing may end on the other side of L_α; only for N = 1.
    above : bool
        Whether L > L_α. If not, the value is −log(L_α − L), which also increases with L.
    """

    allowed: Bool[np.ndarray, "N n T"]
    offsets: Float[np.ndarray, "N n T"]
    scores: Float[np.ndarray, "N n T"]
    share: Float[np.ndarray, "N n"]
    others: Float[np.ndarray, "N n"]
    loss: Scalar
    heads: int = 1
    outputs: HeadOutputs | None = None
    either_side: bool = False
    above: bool = True

    @classmethod
    def of(cls, problem: Problem, loss: Scalar, gamma: np.ndarray | None = None) -> Self:
        """For a problem with labels ±1, its batch axes as one; over the optimal tokens.

        Of several attention heads, each one is alone. ``gamma``: the scores; by default those of the problem's head.
        """
        keys, queries, _, active = problem.canonical
        # m equal keys have m equal logits s, whose attention together is that of one logit s + log m
        offsets = np.log(np.broadcast_to(problem.copies.number, (*active.shape, problem.num_tokens)))
        if gamma is None:
            gamma = scores(problem)
            gamma = gamma if problem.has_query_axis else gamma[..., None, :]
        keys = np.broadcast_to(keys[..., None, :, :], (*active.shape, *keys.shape[-2:]))
        share = active / active.sum(axis=(-2, -1), keepdims=True)

        def flat(array: np.ndarray) -> np.ndarray:
            own = array.shape[active.ndim :]
            array = np.broadcast_to(array, (*problem.batch_shape, *array.shape[-2 - len(own) :]))
            return np.ascontiguousarray(array.reshape(math.prod(problem.batch_shape), -1, *own))

        allowed = flat(problem.copies.distinct)
        gamma = np.where(allowed, flat(gamma), 0.0)
        best = np.argmax(np.where(allowed, gamma, -np.inf), axis=-1)
        arrays = flat(keys), flat(queries), best, allowed, flat(offsets), gamma, flat(share), np.zeros(best.shape)
        return cls(*arrays, loss)

    def joined(self, heads: int) -> Self:
        """One function of the weights of H heads, the blocks of a block-diagonal matrix.

        ``heads``: H. The functions of one model follow each other.
        """

        def join(array: np.ndarray) -> np.ndarray:
            return array.reshape(len(array) // heads, -1, *array.shape[2:])

        if heads == 1:
            return self
        own = ("allowed", "offsets", "scores", "share", "reference", "others")
        joined: dict[str, Any] = {name: join(getattr(self, name)) for name in own}
        # k and z are zero outside of the block of their head, so that k'Wz is that of the block
        joined |= {name: join(_block_vectors(getattr(self, name), heads)) for name in ("keys", "queries")}
        return replace(self, **joined, heads=heads)

    def fix_other_heads(self, weights: np.ndarray, heads: int) -> Self:
        """The functions of each of H heads beside the others with these weights.

        ``heads``: H. The functions of one model follow each other.
        """
        # f_i = Σ_h Σ_t a_iht γ_iht: what the other heads add is constant for this one
        own = (np.exp(self.log_attention(weights)) * self.scores).sum(axis=-1).reshape(-1, heads, self.scores.shape[1])
        others = own.sum(axis=1, keepdims=True) - own
        return replace(self, others=others.reshape(self.others.shape))

    def __getitem__(self, index: Any) -> Self:
        """The functions at these places, or those of some queries for an index of both axes."""
        own = ("keys", "queries", "allowed", "offsets", "scores", "share", "reference", "others")
        return replace(self, **{name: getattr(self, name)[index] for name in own})

    def with_reference(self, reference: np.ndarray, above: bool = True) -> Self:
        """The excess over the loss of other tokens."""
        return replace(self, reference=reference, above=above)

    def two_sided(self) -> Self:
        """The excess over the optimal tokens where rebasing may end on the other side of L_α."""
        return replace(self.with_reference(self.optimal), either_side=True)

    @property
    def is_alone(self) -> bool:
        """Whether no other attention head adds to the margins."""
        return self.heads == 1 and not self.others.any()

    @property
    def is_linear(self) -> bool:
        """Whether the prediction head is linear."""
        return self.outputs is None or self.outputs.is_linear

    @cached_property
    def optimal(self) -> np.ndarray:
        """The tokens of least loss, shape (N, n)."""
        return np.asarray(np.argmax(np.where(self.allowed, self.scores, -np.inf), axis=-1))

    def scores_of(self, selected: np.ndarray) -> np.ndarray:
        """The scores of these tokens, shape (N, n)."""
        return np.take_along_axis(self.scores, selected[..., None], axis=-1)[..., 0]

    @cached_property
    def margins(self) -> np.ndarray:
        """The margins of α, shape (N, n); those of joined heads are the same in each of them."""
        return np.asarray(self._sum_heads(self.scores_of(self.reference)) + self.others)

    def _sum_heads(self, x: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"]:
        """The sum over joined heads, in each of them."""
        if self.heads == 1:
            return x
        apart = x.reshape(len(x), self.heads, -1)
        return np.asarray(np.broadcast_to(apart.sum(axis=1, keepdims=True), apart.shape).reshape(x.shape))

    @cached_property
    def worse(self) -> np.ndarray:
        """How much lower the score of each token is than that of α, shape (N, n, T); 0 where not allowed."""
        return np.where(self.allowed, self.scores_of(self.reference)[..., None] - self.scores, 0.0)

    @cached_property
    def own_tokens(self) -> np.ndarray:
        """x_α, shape (n, d)."""
        assert self.outputs is not None
        return np.asarray(self.outputs.tokens[np.arange(self.reference.shape[1]), self.reference[0]])

    @cached_property
    def differences(self) -> np.ndarray:
        """x_α − x_t, shape (n, T, d); 0 where not allowed."""
        assert self.outputs is not None
        return np.where(self.allowed[0, :, :, None], self.own_tokens[:, None] - self.outputs.tokens, 0.0)

    @cached_property
    def used(self) -> np.ndarray:
        """The tokens that are in the sum, shape (N, n, T)."""
        return np.asarray(self.allowed & (self.share > 0)[..., None])

    @cached_property
    def differs(self) -> np.ndarray:
        """The tokens that change the loss where they share the attention with α, shape (N, n, T)."""
        changes = np.asarray(self.worse != 0) if self.is_linear else np.asarray(self.differences.any(axis=2))[None]
        return np.asarray(self.used & changes)

    @cached_property
    def but_own(self) -> np.ndarray:
        """All tokens but α, shape (N, n, T)."""
        return np.asarray(np.arange(self.scores.shape[-1]) != self.reference[..., None])

    @property
    def offsets_from_own(self) -> np.ndarray:
        """How much larger the logarithm of each a_t is than that of a_α at W = 0, shape (N, n, T)."""
        return np.asarray(self.offsets - np.take_along_axis(self.offsets, self.reference[..., None], axis=-1))

    @property
    def infimum(self) -> np.ndarray:
        """L_α, shape (N,)."""
        # joined heads have equal margins and shares, so that the sum has L_α once for each head
        return np.asarray((self.loss.value(self.margins) * self.share).sum(axis=-1) / self.heads)

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """s_t − s_α + log m, shape (N, n, T); −inf where not allowed."""
        return np.where(self.allowed, self.offsets - self.gaps(weights), -np.inf)

    def log_attention(self, weights: np.ndarray) -> np.ndarray:
        """Log a_t, shape (N, n, T); −inf where not allowed."""
        logits = self.logits(weights)
        largest = logits.max(axis=-1, keepdims=True)
        logits = logits - np.where(np.isfinite(largest), largest, 0.0)
        # log a_t = s_t − log Σ exp(s), where the largest s is 0 now; without an allowed token all stay −∞
        total = np.exp(logits).sum(axis=-1, keepdims=True)
        return np.asarray(logits - np.log(np.where(total > 0, total, 1.0)))

    def selected(self, weights: np.ndarray) -> np.ndarray:
        """The token of largest logit, shape (N, n)."""
        return np.asarray(np.argmax(self.log_attention(weights), axis=-1))

    def rebased(self, weights: np.ndarray) -> Self:
        """The excess over the selected tokens where the softmax is nearly saturated, else over the optimal ones.

        Once the softmax is saturated only the first has an accurate gradient; the second is never singular. A function
        that has to stay above L_α also stays over the tokens that it was over somewhat longer.
        """
        log_attention = self.log_attention(weights)
        selected = np.argmax(log_attention, axis=-1)
        if self.either_side:
            return self._rebased_on_either_side(weights, log_attention, selected)
        stays = self._is_clear(log_attention, *KEEP)
        if stays.all():
            return self
        moves = self.with_reference(selected)._is_clear(log_attention, *CHANGE)
        reference = np.where(moves[:, None], selected, self.optimal)
        reference = np.where(stays[:, None], self.reference, reference)
        return self if (reference == self.reference).all() else self.with_reference(reference)

    def _rebased_on_either_side(self, weights: np.ndarray, log_attention: np.ndarray, selected: np.ndarray) -> Self:
        # only a saturated softmax on other than the optimal tokens needs a reference of its own
        least = np.where(self.share > 0, log_attention.max(axis=-1), 0.0).min()
        if least < np.log(SATURATED) or (self.scores_of(selected) == self.scores_of(self.optimal)).all():
            selected = self.optimal
        same = bool((selected == self.reference).all())
        first = self.above if same else True
        # log(L − L_α) is finite above L_α, −log(L_α − L) below it: the present side first
        for above in (first, not first):
            other = self if same and above == self.above else self.with_reference(selected, above)
            if np.isfinite(other.value(weights)).all():
                return other
        return self.with_reference(self.optimal)

    def _is_clear(self, log_attention: np.ndarray, probability: float, dominance: float) -> np.ndarray:
        """Whether α has such a probability everywhere, and tokens of lower scores dominate in the excess."""
        of_reference = np.take_along_axis(log_attention, self.reference[..., None], axis=-1)[..., 0]
        saturated = (np.where(self.share > 0, of_reference, 0.0) > np.log(probability)).all(axis=-1)
        # to first order L − L_α = Σ share_i |ℓ'(m_i)| a_it (γ_iα − γ_it), whose negative terms have higher scores
        counted = self.worse != 0
        shift = np.max(np.where(counted, log_attention, -np.inf), axis=(-2, -1), keepdims=True)
        shift = np.where(np.isfinite(shift), shift, 0.0)
        small = np.exp(np.where(counted, log_attention - shift, -np.inf)) * self.share[..., None]
        small *= np.exp(self.loss.log_slope(self.margins))[..., None]
        lower = (small * np.maximum(self.worse, 0.0)).sum(axis=(-2, -1))
        higher = (small * np.maximum(-self.worse, 0.0)).sum(axis=(-2, -1))
        return np.asarray(saturated & (lower > dominance * higher))

    def value(self, weights: np.ndarray) -> np.ndarray:
        """log(L − L_α), shape (N,), or −log(L_α − L).

        −∞ or ∞ where L is on the other side of L_α; ∞ where L is not a number.
        """
        return self._value(self._parts(weights))

    def _value(self, parts: _Parts) -> np.ndarray:
        side = 1.0 if self.above else -1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            value = side * (np.log(side * parts.rise) + parts.shift[:, 0, 0] + parts.scale[:, 0])
        return np.where(side * parts.rise > 0, value, np.where(np.isnan(parts.rise), np.inf, -side * np.inf))

    def _parts(self, weights: np.ndarray) -> _Parts:
        log_attention, counted = self.log_attention(weights), self.differs
        # the largest attention that counts is factored out, so that nothing underflows
        shift = np.max(np.where(counted, log_attention, -np.inf), axis=(-2, -1), keepdims=True, initial=-1e300)
        small = np.exp(np.where(counted, log_attention - shift, -np.inf))
        if self.is_linear:
            # Δ exp(−c) = Σ a_t exp(−c) (γ_α − γ_t)
            drop = (small * self.worse).sum(axis=-1)
        else:
            assert self.outputs is not None
            drop = self.outputs.drop(self.own_tokens, self._move(small), float(np.exp(shift[0, 0, 0])))[None]
        drops = np.exp(shift[..., 0]) * self._sum_heads(drop)
        # ℓ(m − Δ) − ℓ(m) is Δ times the mean of |ℓ'| between both
        flat = self.loss.log_mean_slope(self.margins.ravel(), drops.ravel()).reshape(drop.shape)
        scale = np.max(np.where(self.share > 0, flat, -np.inf), axis=-1, keepdims=True)
        # L − L_α = Σ share_i (mean |ℓ'|)_i Δ_i, without exp(c + scale)
        rise = (np.exp(flat - scale) * drop * self.share).sum(axis=-1)
        return _Parts(log_attention, shift, small, drop, drops, scale, rise)

    def _move(self, small: np.ndarray) -> np.ndarray:
        """(x_α − o) exp(−c) = Σ small_t (x_α − x_t), shape (n, d), of a nonlinear head."""
        return np.asarray((small[0][:, None] @ self.differences)[:, 0])

    def value_and_weight(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value, and q = −dF/dy, shape (N, n, T)."""
        parts = self._parts(weights)
        return self._value(parts), self._weights_of_gaps(parts)[0]

    def _weights_of_gaps(self, parts: _Parts) -> tuple[np.ndarray, ...]:
        """Return q, v = −dΔ/dy exp(−c) and a, shape (N, n, T), and dF/dΔ exp(c) of each query."""
        attention, worse, drop = np.exp(parts.log_attention), self.worse, parts.drop
        if not self.is_linear:  # to first order around o
            assert self.outputs is not None
            slope = self.outputs.slopes(self.own_tokens - np.exp(parts.shift[0, 0]) * self._move(parts.small))
            worse = (self.differences @ slope[:, :, None])[None, ..., 0]
            drop = (parts.small * worse).sum(axis=-1)
        # v_t = a_t (w_t − Δ) exp(−c), with w_t − Δ = Σ a_s (w_t − w_s), in which nothing cancels
        centred = (attention[..., None, :] @ (worse[..., :, None] - worse[..., None, :]).mT)[..., 0, :]
        # small lacks the tokens with w_t = 0, for which v_t = −a_t Δ exp(−c)
        v = np.where(self.differs, parts.small * centred, -attention * drop[..., None]) * self.but_own
        # dF/dΔ exp(c), where dF/dΔ = |ℓ'(m − Δ)| share/|L − L_α| on both sides of L_α
        size = np.exp(self.loss.log_slope(self.margins - parts.drops) - parts.scale) * self.share
        # where L = L_α up to numbers whose inverse overflows, the derivatives are those of the excess itself
        least = np.maximum(LEAST_RISE * np.abs(v * size[..., None]).max(axis=(-2, -1)), np.finfo(float).tiny)
        size /= np.where(np.abs(parts.rise) > least, np.abs(parts.rise), 1.0)[:, None]
        return v * size[..., None], v, attention * self.but_own, size

    def slopes(self, weights: np.ndarray) -> GapSlopes:
        """Value and derivatives."""
        parts = self._parts(weights)
        q, v, a, size = self._weights_of_gaps(parts)
        count, T = len(q), q.shape[-1]
        # of one query: diag(q) − q a' − a q'
        outer = q[..., :, None] * a[..., None, :]
        own = -outer - outer.mT
        np.einsum("naii->nai", own)[:] += q
        if not self.is_linear:
            own -= self._bend_of_head(parts, size)
        # and b q v' between its heads
        bend = self.loss.bend(self.margins - parts.drops) * np.exp(parts.shift[..., 0])
        bent, v = ((x.reshape(count, self.heads, -1, T)) for x in (bend[..., None] * q, v))
        between = bent[:, :, None, :, :, None] * v[:, None, :, :, None, :]
        np.einsum("nggjab->ngjab", between)[:] += own.reshape(*v.shape, T)
        # over all queries ∓ q q'
        flat = q.reshape(count, -1)
        curvature = (-flat if self.above else flat)[:, :, None] * flat[:, None]
        blocks = curvature.reshape(count, *v.shape[1:], *v.shape[1:])
        np.einsum("ngjahjb->nghjab", blocks)[:] += between
        return GapSlopes(self._value(parts), -self.adjoint(q), curvature)

    def _bend_of_head(self, parts: _Parts, size: np.ndarray) -> np.ndarray:
        """The part of the second derivatives of h, shape (1, n, T, T)."""
        assert self.outputs is not None
        assert isinstance(self.outputs.head, HeadFunction)
        move, largest = self._move(parts.small), np.exp(parts.shift[0, 0, 0])
        # its row t is do/dy_t exp(−c) = a_t (o − x_t) exp(−c)
        moved = (
            parts.small[0, :, :, None] * self.differences - np.exp(parts.log_attention[0, :, :, None]) * move[:, None]
        )
        curved = self.outputs.labels[:, None, None] * self.outputs.head.hessians(self.own_tokens - largest * move)
        return np.asarray((size[0] * largest)[:, None, None] * (moved @ curved @ moved.mT))[None]


def _block_vectors(x: Float[np.ndarray, "NH *more k"], heads: int) -> Float[np.ndarray, "NH *more Hk"]:
    """Vectors of H heads, filled up with zeros for the other heads."""
    whole = np.zeros((len(x) // heads, heads, *x.shape[1:-1], heads, x.shape[-1]))
    for h in range(heads):
        whole[:, h, ..., h, :] = x[h::heads]
    return np.asarray(whole.reshape(*x.shape[:-1], -1))
