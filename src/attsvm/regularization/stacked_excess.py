"""The excess of the loss over that of a selection, in logarithms, for stacks of problems under linear heads.

``excess`` computes the same of one problem under any head. Here the derivatives are those of the gaps of logits,
y_t = s_α − s_t, and the rows (k_α − k_t) z' are never formed.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm._utils.linear_algebra import diagonal_of
from attsvm.problem import Problem
from attsvm.regularization.barriers import Metric
from attsvm.regularization.margin_losses import Scalar
from attsvm.selection import scores

CHANGE = 0.9, 10.0
"""From the optimal to the selected tokens: their least probability, and how many times what tokens of higher scores
decrease the loss tokens of lower scores increase it."""
KEEP = 0.7, 2.0
"""The same, to stay with them."""
LARGEST = 600.0


class Slopes(NamedTuple):
    """Value, gradient, and the second derivatives in the gaps."""

    value: Float[np.ndarray, " N"]
    gradient: Float[np.ndarray, "N k e"]  # in the weights
    curvature: Float[np.ndarray, "N nT nT"]


class Gaps:
    """Functions of the gaps of logits. A subclass provides the keys, queries and reference tokens."""

    keys: Float[np.ndarray, "N n T k"]
    queries: Float[np.ndarray, "N n e"]
    reference: Int[np.ndarray, "N n"]

    @cached_property
    def left(self) -> Float[np.ndarray, "N n T k"]:
        """k_α − k_t."""
        return np.asarray(np.take_along_axis(self.keys, self.reference[..., None, None], axis=2) - self.keys)

    def gaps(self, weights: Float[np.ndarray, "N k e"]) -> Float[np.ndarray, "N n T"]:
        """y_t = (k_α − k_t)'W z."""
        return np.asarray((self.left @ (self.queries @ weights.mT)[..., None])[..., 0])

    def adjoint(self, x: Float[np.ndarray, "N n T"]) -> Float[np.ndarray, "N k e"]:
        """Σ x_it (k_α − k_t) z_i'."""
        return np.asarray((x[:, :, None] @ self.left)[:, :, 0].mT @ self.queries)

    def gram(self, metric: Metric) -> Float[np.ndarray, "N nT nT"]:
        """A H⁻¹ A*, where A maps weights to gaps, and H is the Hessian of a barrier."""
        return metric.gram(self.left, self.queries)


@dataclass(frozen=True, eq=False)
class StackedExcess(Gaps):
    """log(L(W) − L_α), L_α the loss of the tokens α alone.

    Several attention heads are functions of their own, each ``beside`` the others, or ``joined`` to one of all weights.

    Attributes
    ----------
    keys : ndarray, shape (N, n, T, k)
    queries : ndarray, shape (N, n, e)
    allowed : bool ndarray, shape (N, n, T)
        Of tokens with equal keys the first one, with their mean.
    offsets : ndarray, shape (N, n, T)
        Log m for m tokens with equal keys.
    scores : ndarray, shape (N, n, T)
        y v'x, 0 where not allowed.
    share : ndarray, shape (N, n)
        Of each query in the mean: 1/n, and 0 for a query that is left out.
    reference : ndarray, shape (N, n)
        α.
    others : ndarray, shape (N, n)
        What other heads add to the margins.
    loss : Scalar
    heads : int
        H for a function of H joined heads, whose queries are one behind the other.
    """

    keys: np.ndarray
    queries: np.ndarray
    allowed: Bool[np.ndarray, "N n T"]
    offsets: Float[np.ndarray, "N n T"]
    scores: Float[np.ndarray, "N n T"]
    share: Float[np.ndarray, "N n"]
    reference: np.ndarray
    others: Float[np.ndarray, "N n"]
    loss: Scalar
    heads: int = 1

    @classmethod
    def of(cls, problem: Problem, loss: Scalar) -> "StackedExcess":
        """For a problem with labels ±1 and a head, its batch axes as one; over the optimal tokens.

        Of several attention heads, each one is alone.
        """
        keys, queries, _, active = problem.canonical
        offsets = np.log(np.broadcast_to(problem.copies.number, (*active.shape, problem.num_tokens)))
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
        return cls(
            flat(keys), flat(queries), allowed, flat(offsets), gamma, flat(share), best, np.zeros(best.shape), loss
        )

    def joined(self, heads: int) -> Self:
        """One function of the weights of H heads, the blocks of a block-diagonal matrix.

        ``heads``: H. The functions of one model follow each other.
        """

        def of_models(array: np.ndarray) -> np.ndarray:
            return array.reshape(len(array) // heads, -1, *array.shape[2:])

        own = ("allowed", "offsets", "scores", "share", "reference", "others")
        joined: dict[str, Any] = {name: of_models(getattr(self, name)) for name in own}
        joined |= {name: of_models(_in_own_block(getattr(self, name), heads)) for name in ("keys", "queries")}
        return replace(self, **joined, heads=heads)

    def beside(self, weights: np.ndarray, heads: int) -> Self:
        """The functions of each of H heads beside the others with these weights.

        ``heads``: H. The functions of one model follow each other.
        """
        own = (np.exp(self.log_attention(weights)) * self.scores).sum(axis=-1).reshape(-1, heads, self.scores.shape[1])
        others = own.sum(axis=1, keepdims=True) - own
        return replace(self, others=others.reshape(self.others.shape))

    def __getitem__(self, index: np.ndarray) -> Self:
        """The functions at these places."""
        own = ("keys", "queries", "allowed", "offsets", "scores", "share", "reference", "others")
        return replace(self, **{name: getattr(self, name)[index] for name in own})

    def scaled(self, radii: Float[np.ndarray, " N"]) -> Self:
        """The same as a function of W / radius."""
        return replace(self, keys=self.keys * radii[:, None, None, None])

    def over(self, reference: np.ndarray) -> Self:
        """The excess over the loss of other tokens."""
        return replace(self, reference=reference)

    @cached_property
    def optimal(self) -> np.ndarray:
        """The tokens of least loss, shape (N, n)."""
        return np.asarray(np.argmax(np.where(self.allowed, self.scores, -np.inf), axis=-1))

    @cached_property
    def own_scores(self) -> np.ndarray:
        """The scores of α, shape (N, n)."""
        return np.take_along_axis(self.scores, self.reference[..., None], axis=-1)[..., 0]

    @cached_property
    def margins(self) -> np.ndarray:
        """The margins of α, shape (N, n); those of joined heads are the same in each of them."""
        return np.asarray(self._over_heads(self.own_scores) + self.others)

    def _over_heads(self, x: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"]:
        """The sum over joined heads, in each of them."""
        if self.heads == 1:
            return x
        apart = x.reshape(len(x), self.heads, -1)
        return np.asarray(np.broadcast_to(apart.sum(axis=1, keepdims=True), apart.shape).reshape(x.shape))

    @cached_property
    def worse(self) -> np.ndarray:
        """How much lower the score of each token is than that of α, shape (N, n, T); 0 where not allowed."""
        return np.where(self.allowed, self.own_scores[..., None] - self.scores, 0.0)

    @property
    def offsets_from_own(self) -> np.ndarray:
        """How much larger the logarithm of each a_t is than that of a_α at W = 0, shape (N, n, T)."""
        return np.asarray(self.offsets - np.take_along_axis(self.offsets, self.reference[..., None], axis=-1))

    @property
    def infimum(self) -> np.ndarray:
        """L_α, shape (N,)."""
        return np.asarray((self.loss.value(self.margins) * self.share).sum(axis=-1) / self.heads)

    def log_attention(self, weights: np.ndarray) -> np.ndarray:
        """Log a_t, shape (N, n, T); −inf where not allowed."""
        logits = np.where(self.allowed, self.offsets - self.gaps(weights), -np.inf)
        largest = logits.max(axis=-1, keepdims=True)
        logits = logits - np.where(np.isfinite(largest), largest, 0.0)
        total = np.exp(logits).sum(axis=-1, keepdims=True)
        return np.asarray(logits - np.log(np.where(total > 0, total, 1.0)))

    def selected(self, weights: np.ndarray) -> np.ndarray:
        """The token of largest logit, shape (N, n)."""
        return np.asarray(np.argmax(self.log_attention(weights), axis=-1))

    def rebased(self, weights: np.ndarray) -> Self:
        """The excess over the selected tokens where the softmax is nearly saturated, else over the optimal ones.

        It stays over the tokens that it was over somewhat longer, since both have different central paths.
        """
        log_attention = self.log_attention(weights)
        selected = np.argmax(log_attention, axis=-1)
        stays = self._is_clear(log_attention, *KEEP)
        if stays.all():
            return self
        moves = self.over(selected)._is_clear(log_attention, *CHANGE)
        reference = np.where(moves[:, None], selected, self.optimal)
        reference = np.where(stays[:, None], self.reference, reference)
        return self if (reference == self.reference).all() else self.over(reference)

    def _is_clear(self, log_attention: np.ndarray, probability: float, dominance: float) -> np.ndarray:
        """Whether α has such a probability everywhere, and tokens of lower scores dominate in the excess."""
        of_reference = np.take_along_axis(log_attention, self.reference[..., None], axis=-1)[..., 0]
        saturated = (np.where(self.share > 0, of_reference, 0.0) > np.log(probability)).all(axis=-1)
        shift = np.max(np.where(self.worse != 0, log_attention, -np.inf), axis=(-2, -1), keepdims=True)
        small = _relative(log_attention, np.where(np.isfinite(shift), shift, 0.0)) * self.share[..., None]
        small *= np.exp(self.loss.log_slope(self.margins))[..., None]
        lower = (small * np.maximum(self.worse, 0.0)).sum(axis=(-2, -1))
        higher = (small * np.maximum(-self.worse, 0.0)).sum(axis=(-2, -1))
        return np.asarray(saturated & (lower > dominance * higher))

    def value(self, weights: np.ndarray) -> np.ndarray:
        """log(L − L_α), shape (N,); −∞ where the loss is not larger."""
        return self._parts(weights)[0]

    def _parts(self, weights: np.ndarray) -> tuple[np.ndarray, ...]:
        log_attention = self.log_attention(weights)
        counted = (self.worse != 0) & (self.share[..., None] > 0)
        # the largest attention that counts is factored out, so that nothing underflows
        shift = np.max(np.where(counted, log_attention, -np.inf), axis=(-2, -1), keepdims=True, initial=-1e300)
        small = np.where(counted, _relative(log_attention, shift), 0.0)
        drop = (small * self.worse).sum(axis=-1)  # Δ exp(−c)
        drops = np.exp(shift[..., 0]) * self._over_heads(drop)
        flat = self.loss.log_mean_slope(self.margins.ravel(), drops.ravel()).reshape(drop.shape)
        scale = np.max(np.where(self.share > 0, flat, -np.inf), axis=-1, keepdims=True)
        rise = (np.exp(flat - scale) * drop * self.share).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(rise > 0, np.log(rise) + shift[:, 0, 0] + scale[:, 0], -np.inf)
        return value, log_attention, shift, scale, rise, drops

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """The gradient in the weights."""
        return -self.adjoint(self.value_and_weight(weights)[1])

    def value_and_weight(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value, and q = −dF/dy, shape (N, n, T)."""
        value, q, *_ = self._derivatives(weights)
        return value, q

    def _derivatives(self, weights: np.ndarray) -> tuple[np.ndarray, ...]:
        value, log_attention, shift, scale, rise, drops = self._parts(weights)
        attention = np.exp(log_attention)
        # v_t = a_t (w_t − Δ) exp(−c), with w_t − Δ = Σ a_s (w_t − w_s), in which nothing cancels
        centred = (attention[..., None, :] @ (self.worse[..., :, None] - self.worse[..., None, :]).mT)[..., 0, :]
        slope = np.exp(self.loss.log_slope(self.margins - drops) - scale) * self.share
        others = np.arange(self.scores.shape[-1]) != self.reference[..., None]
        v = np.where(self.allowed & others, _relative(log_attention, shift) * centred, 0.0)
        # if all tokens of each query have the same score, the gradient is zero
        factor = np.divide(slope, rise[:, None], out=np.zeros_like(slope), where=rise[:, None] != 0)
        q = v * factor[..., None]
        return value, q, v, np.where(others, attention, 0.0), shift, drops

    def slopes(self, weights: np.ndarray) -> Slopes:
        """Value and derivatives."""
        value, q, v, a, shift, drops = self._derivatives(weights)
        # of one query: diag(q) − q a' − a q', b q v' between its heads, and over all queries − q q'
        bend = self.loss.bend(self.margins - drops) * np.exp(shift[..., 0])
        count, n, T = q.shape
        outer = q[..., :, None] * a[..., None, :]
        bent, own = bend[..., None] * q, -outer - outer.mT
        index = np.arange(T)
        own[..., index, index] += q
        flat = q.reshape(count, -1)
        curvature = -flat[:, :, None] * flat[:, None]
        blocks, rows = curvature.reshape(count, n, T, n, T), np.arange(n).reshape(self.heads, -1)
        for g, h in np.ndindex(self.heads, self.heads):
            between = bent[:, rows[g], :, None] * v[:, rows[h], None, :]
            blocks[:, rows[g], :, rows[h]] += (between + own[:, rows[g]] if g == h else between).swapaxes(0, 1)
        return Slopes(value, -self.adjoint(q), curvature)

    def safe_curvature(self, weights: np.ndarray) -> np.ndarray:
        """A positive semidefinite curvature, equal to that of the slopes where attention is saturated."""
        q = self.value_and_weight(weights)[1].reshape(len(weights), -1)
        size = np.abs(q).sum(axis=-1)[:, None, None]
        safe = -q[:, :, None] * q[:, None] / np.where(size > 0, size, 1.0)
        diagonal_of(safe)[:] += np.abs(q)
        return np.asarray(safe)


def _in_own_block(x: Float[np.ndarray, "NH *more k"], heads: int) -> Float[np.ndarray, "NH *more Hk"]:
    """Vectors of H heads, filled up with zeros for the other heads."""
    whole = np.zeros((len(x) // heads, heads, *x.shape[1:-1], heads, x.shape[-1]))
    for h in range(heads):
        whole[:, h, ..., h, :] = x[h::heads]
    return np.asarray(whole.reshape(*x.shape[:-1], -1))


def _relative(log_attention: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The attention over exp(shift); tokens that do not count are cut off where they would overflow."""
    return np.asarray(np.exp(np.minimum(log_attention - shift, LARGEST)))


@dataclass(frozen=True, eq=False)
class StackedLogSum(Gaps):
    """log Σ c_it exp(−y_it): convex. ``log_weight``: log c, −∞ where a token is left out."""

    keys: np.ndarray
    queries: np.ndarray
    reference: np.ndarray
    log_weight: Float[np.ndarray, "N n T"]

    def __getitem__(self, index: np.ndarray) -> Self:
        own = ("keys", "queries", "reference", "log_weight")
        return replace(self, **{name: getattr(self, name)[index] for name in own})

    def rebased(self, weights: np.ndarray) -> Self:
        """Itself."""
        return self

    def value(self, weights: np.ndarray) -> np.ndarray:
        exponent = self.log_weight - self.gaps(weights)
        largest = exponent.max(axis=(-2, -1))
        return np.asarray(largest + np.log(np.exp(exponent - largest[:, None, None]).sum(axis=(-2, -1))))

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """The terms over their sum, shape (N, n, T)."""
        return np.asarray(np.exp(self.log_weight - self.gaps(weights) - self.value(weights)[:, None, None]))

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """The gradient in the weights."""
        return -self.adjoint(self.shares(weights))

    def slopes(self, weights: np.ndarray) -> Slopes:
        """Value and derivatives."""
        q = self.shares(weights)
        flat = q.reshape(len(q), -1)
        curvature = -flat[:, :, None] * flat[:, None]
        diagonal_of(curvature)[:] += flat
        return Slopes(self.value(weights), -self.adjoint(q), curvature)

    def safe_curvature(self, weights: np.ndarray) -> np.ndarray:
        """The curvature, which is positive semidefinite."""
        return self.slopes(weights).curvature
