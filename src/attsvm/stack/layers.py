"""The tokens that the layers of a stack see, forwards, with the trials in the trailing axis of each array.

Tokens are kept as two summands: what they are where every softmax is saturated, and the rest. Several positions may
select the same tokens. They are then equal in the limit, and their difference is that of the rests, which does not
cancel.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import added, contract, contractions, over_entries, settle, total
from attsvm.training import gap_products, pool

Array = jax.Array

EQUAL = 256
"""Sums of the same tokens in another order differ by fewer roundings of the largest entry of all tokens."""


class LayerTokens(NamedTuple):
    """Tokens as limit + rest."""

    limit: Array  # (n, T, d, B): sums of input tokens
    rest: Array | None  # (n, T, d, B), of the order of exp(−margin); None for input tokens, where it is zero
    whole: Array  # (n, T, d, B): the sum

    @classmethod
    def of(cls, limit: Array, rest: Array) -> Self:
        return cls(limit, rest, added(limit, rest))


class Attended(NamedTuple):
    """One attention layer; the trailing axis holds the attention heads of each trial."""

    tokens: LayerTokens  # (n, T, d, B)
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

    def output(self) -> Array:
        """The pooled tokens, shape (n, Q, d, B)."""
        return self.rest_of_output(self.winning)

    def rest_of_output(self, plus: Array | None = None) -> Array:
        """The pooled tokens without their limit, which is that of x_*, plus an array of this shape: (n, Q, d, B)."""
        shares = self.weight * self.probability
        products = [self._gap_sum(shares)]
        if self.tokens.rest is not None:
            # Σ_t a_t (rest of x_t) with the softmax a, of which the sum over the gaps of the rests has all but x_*
            softmax = settle(jnp.where(self.is_winner, self.probability, shares))
            products.append(("nqt,ntd->nqd", softmax, self.tokens.rest))
        return contractions(*products, plus=plus)

    def gap_sums(self, factors: Array) -> Array:
        """Σ_t factor_t (x_t − x_*) of each query: (n, Q, T, B), 0 for the winner, to (n, Q, d, B)."""
        if self.tokens.rest is None:
            return contractions(self._gap_sum(factors))
        return contractions(self._gap_sum(factors), ("nqt,ntd->nqd", self._with_winner(factors), self.tokens.rest))

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
        return x if self.is_equal is None else jnp.where(self.is_equal, 0.0, x)

    def _gap_sum(self, factors: Array) -> tuple[str, Array, Array]:
        """Σ_t factor_t (limit of x_t − x_*), as a contraction."""
        return "nqt,ntd->nqd", self._with_winner(self._apart(factors)), self.tokens.limit

    def _with_winner(self, factors: Array) -> Array:
        """The factors, and for the winner minus their sum."""
        return settle(jnp.where(self.is_winner, -total(factors, axis=2), factors))


def attend(weights: Array, tokens: LayerTokens, queries: Array, allowed: Array | None) -> Attended:
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
        None if tokens.rest is None else _equal(pooled.is_winner, tokens.limit),
        over_entries(jnp.maximum, jnp.abs(counted)),
    )


def _equal(is_winner: Array, rows: Array) -> Array:
    """Whether rows (n, T, d, B) are equal to that of the winner up to rounding, shape (n, Q, T, B).

    Their components along one generic vector are compared.
    """
    d = rows.shape[2]
    generic = jnp.asarray(np.random.default_rng(0).standard_normal(d), rows.dtype)[:, None]
    of_rows = contract("ntd,d->nt", rows, generic)[:, None]
    of_winner = total(jnp.where(is_winner, of_rows, 0.0), axis=2)
    tolerance = EQUAL * jnp.finfo(rows.dtype).eps * d**0.5 * over_entries(jnp.maximum, jnp.abs(rows))
    return settle(jnp.abs(of_winner - of_rows) <= tolerance)
