"""The tokens that the layers of a stack see, forwards, with the trials in the trailing axis of each array.

Tokens are kept as two summands: what they are where every softmax is saturated, and the rest. Several positions may
select the same tokens. They are then equal in the limit, and their difference is that of the rests, which does not
cancel.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import contract, over_entries, settle, total
from attsvm.training.softmax import gap_products, pool

Array = jax.Array

EQUAL = 256
"""Sums of the same tokens in another order differ by fewer roundings of the largest entry of all tokens."""


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
    winning: Array  # (n, Q, d, B), the limit of x_*
    is_equal: Array | None  # (n, Q, T, B): whether the limit of a token is that of x_*; None for input tokens
    largest_logit: Array  # (B,)

    def output(self) -> Tokens:
        """The pooled tokens, shape (n, Q, d, B): the limit is that of x_*."""
        shares = settle(self.weight * self.probability)
        rest = self.gap_sums(shares)
        if self.tokens.rest is not None:
            # Σ_t a_t (rest of x_t), of which the sum over the gaps has all but the rest of x_*
            rest = settle(rest + self._of_winner(self.tokens.rest))
        return Tokens(self.winning, rest)

    def gap_sums(self, factors: Array) -> Array:
        """Σ_t factor_t (x_t − x_*) of each query: (n, Q, T, B), 0 for the winner, to (n, Q, d, B)."""
        found = contract("nqt,ntd->nqd", self._with_winner(self._apart(factors)), self.tokens.limit)
        if self.tokens.rest is None:
            return found
        return settle(found + contract("nqt,ntd->nqd", self._with_winner(factors), self.tokens.rest))

    def gap_products(self, vectors: Array) -> Array:
        """⟨x_* − x_t, vector⟩ of each query, shape (n, Q, T, B)."""
        found = self._apart(gap_products(self.winning, self.tokens.limit, vectors))
        if self.tokens.rest is None:
            return found
        of_rest = contract("ntd,nqd->nqt", self.tokens.rest, vectors)
        of_winner = total(jnp.where(self.is_winner, of_rest, 0.0), axis=2)
        return settle(found + (of_winner - of_rest))

    def _apart(self, x: Array) -> Array:
        """Zero for tokens that are equal in the limit, whose difference would be one of rounding errors."""
        return x if self.is_equal is None else settle(jnp.where(self.is_equal, 0.0, x))

    def _with_winner(self, factors: Array) -> Array:
        """The factors, and for the winner minus their sum."""
        return settle(jnp.where(self.is_winner, -total(factors, axis=2), factors))

    def _of_winner(self, of_tokens: Array) -> Array:
        return contract("nqt,ntd->nqd", self.is_winner.astype(of_tokens.dtype), of_tokens)


def attend(weights: Array, tokens: Tokens, queries: Array, allowed: Array | None) -> Attended:
    """Attend with the logits x_t'Wz. ``allowed``: shape (n, Q, T, B or 1); None allows all."""
    images = contract("ke,nqe->nqk", weights, queries)
    logits = contract("ntk,nqk->nqt", tokens.whole, images)
    pooled = pool(logits, tokens.limit, allowed)
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
        pooled.winning_token,
        None if tokens.rest is None else _equal(pooled.winning_token, tokens.limit),
        over_entries(jnp.maximum, jnp.abs(counted)),
    )


def _equal(points: Array, rows: Array) -> Array:
    """Whether rows (n, T, d, B) are equal to points (n, Q, d, B) up to rounding, shape (n, Q, T, B).

    Their components along one generic vector are compared.
    """
    d = rows.shape[2]
    generic = jnp.asarray(np.random.default_rng(0).standard_normal(d), rows.dtype)[:, None]
    of_points, of_rows = contract("nqd,d->nq", points, generic), contract("ntd,d->nt", rows, generic)
    tolerance = EQUAL * jnp.finfo(rows.dtype).eps * d**0.5 * over_entries(jnp.maximum, jnp.abs(rows))
    return settle(jnp.abs(of_points[:, :, None] - of_rows[:, None]) <= tolerance)
