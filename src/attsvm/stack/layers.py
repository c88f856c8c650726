"""The tokens that the layers of a stack see, forwards, with the trials in the trailing axis of each array.

Tokens are kept as two summands: what they are where every softmax is saturated, and the rest. Tokens that become equal
in the limit have equal first summands, bit by bit, so their difference is that of the rests and does not cancel.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, over_entries, settle
from attsvm.training.softmax import gap_products, pool

Array = jax.Array

EQUAL = 1e-12
"""Sums of the same tokens in another order differ by less, relative to the largest entry of all tokens."""


class Tokens(NamedTuple):
    """Tokens as limit + rest."""

    limit: Array  # (n, T, d, B): sums of input tokens
    rest: Array | None  # (n, T, d, B), of the order of exp(−margin); None for input tokens, where it is zero

    @property
    def whole(self) -> Array:
        return self.limit if self.rest is None else settle(self.limit + self.rest)


class Attended(NamedTuple):
    """One attention layer; the trailing axis holds the attention heads of each trial."""

    tokens: Tokens  # (n, T, d, B)
    queries: Array  # (n, Q, d_q, B)
    weights: Array  # (d, d_q, B), W
    images: Array  # (n, Q, d, B), W z
    winner: Array  # (n, Q, 1, B): the index of *, the token of largest logit
    is_winner: Array  # (n, Q, T, B)
    shortfall: Array  # (n, Q, T, B), δ_t = s_t − s_* ≤ 0
    weight: Array  # (n, Q, T, B), e_t = exp(δ_t), 0 for the winner
    probability: Array  # (n, Q, 1, B), the winner's, 1/S
    winning: Tokens  # (n, Q, d, B), x_*
    largest_logit: Array  # (B,)

    def output(self) -> Tokens:
        """The pooled tokens x_* + Σ_t (e_t/S)(x_t − x_*), shape (n, Q, d, B); the rest is the sum and that of x_*."""
        rest = weighted_gaps(settle(self.weight * self.probability), self.winning, self.tokens)
        return Tokens(self.winning.limit, rest if self.winning.rest is None else settle(self.winning.rest + rest))

    def gap_products(self, vectors: Array) -> Array:
        """⟨x_* − x_t, vector⟩ of each query, shape (n, Q, T, B)."""
        found = gap_products(self.winning.limit, self.tokens.limit, vectors)
        if self.winning.rest is None or self.tokens.rest is None:
            return found
        return settle(found + gap_products(self.winning.rest, self.tokens.rest, vectors))


def attend(weights: Array, tokens: Tokens, queries: Array, allowed: Array | None) -> Attended:
    """Attend with the logits x_t'Wz. ``allowed``: shape (n, Q, T, B or 1); None allows all."""
    images = contract("ke,nqe->nqk", weights, queries)
    logits = contract("ntk,nqk->nqt", tokens.whole, images)
    pooled = pool(logits, tokens.limit, allowed)
    rest = None if tokens.rest is None else contract("nqt,ntd->nqd", pooled.is_winner.astype(logits.dtype), tokens.rest)
    counted = logits if allowed is None else jnp.where(allowed, logits, 0.0)
    return Attended(
        tokens,
        queries,
        weights,
        images,
        pooled.winner,
        pooled.is_winner,
        pooled.shortfall,
        pooled.weight,
        pooled.probability,
        Tokens(pooled.winning_token, rest),
        over_entries(jnp.maximum, jnp.abs(counted)),
    )


def weighted_gaps(factors: Array, points: Tokens, rows: Tokens) -> Array:
    """Σ_t factor_qt (row_t − point_q): (n, Q, T, B), (n, Q, d, B) and (n, T, d, B) to (n, Q, d, B).

    The differences are taken before the sum, so that equal tokens add no rounding errors.
    """

    def of(points: Array, rows: Array) -> Array:
        T = rows.shape[1]
        return reduce(jnp.add, (factors[:, :, t, None] * (rows[:, None, t] - points) for t in range(T)))

    found = of(points.limit, rows.limit)
    if points.rest is not None and rows.rest is not None:
        found = found + of(points.rest, rows.rest)
    return settle(found)


def merged(limit: Array) -> Array:
    """Tokens (n, T, d, B) in which those that are equal up to rounding are the same bit by bit."""
    T, d = limit.shape[1:3]
    tolerance = EQUAL * over_entries(jnp.maximum, jnp.abs(limit))
    near = reduce(
        jnp.logical_and,
        (jnp.abs(limit[:, :, None, k] - limit[:, None, :, k]) <= tolerance for k in range(d)),
    )
    index = jax.lax.broadcasted_iota(jnp.int32, (1, 1, T, 1), 2)
    first = settle(jnp.min(jnp.where(near, index, T - 1), axis=2, keepdims=True))
    return contract("nts,nsd->ntd", (index == first).astype(limit.dtype), limit)
