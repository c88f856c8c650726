"""Softmax pooling. Its gradient keeps its relative accuracy, however saturated the softmax is."""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import LONGEST_WRITTEN_OUT, contract, over_entries, settle, total

Array = jax.Array

# The terms that one pass of a loop over a longer sum writes out: what it copies for them should fit in the cache.
_PART = 16


class Pooled(NamedTuple):
    """Pooled tokens, and the arrays for the backward pass; the trailing axis of each array holds the trials."""

    output: Array  # shape (n, Q, d, B), o = Σ_t a_t x_t
    winner: Array  # shape (n, Q, 1, B), the index of *, the token of largest logit, the lowest one on ties
    is_winner: Array  # shape (n, Q, T, B), whether a token is *, or one of the m tokens with its key
    shortfall: Array  # shape (n, Q, T, B), δ_t = s_t − s_* ≤ 0; −inf where the mask excludes the token
    weight: Array  # shape (n, Q, T, B), e_t = exp(δ_t), 0 for the winner
    share: Array  # shape (n, Q, 1, B), 1/S with S = m + Σ_{t≠*} e_t
    probability: Array  # shape (n, Q, 1, B), the winner's, m/S
    winning_token: Array  # shape (n, Q, d, B), x_*, or the first token with its key
    number: Array | None  # shape (n, Q, 1, B), m; None if no two keys are equal


def pool(logits: Array, tokens: Array, allowed: Array | None, copies: Array | None = None) -> Pooled:
    """Average the tokens by the softmax of their logits.

    ``logits``: shape (n, Q, T, B). ``tokens``: shape (n, T, d, B or 1). ``allowed``: shape (n, Q, T, B or 1), what each
    query may attend to; None allows all. A query that may attend to nothing pools its first token. ``copies``: shape
    (n, Q, T, B or 1), for each token the first one with an equal key; None if no two keys are equal.
    """
    logits, index, largest, winner, is_winner = winners(logits, allowed, copies)
    shortfall = logits - largest
    if allowed is not None:
        # −inf − (−inf) is NaN where nothing is allowed
        shortfall = jnp.where(allowed, shortfall, -jnp.inf)
    weight = settle(jnp.where(is_winner, 0.0, jnp.exp(shortfall)))
    hot = is_winner.astype(logits.dtype)
    number = None if copies is None else settle(total(hot, axis=2))
    total_weight = (1.0 if number is None else number) + total(weight, axis=2)
    share = probability = settle(1.0 / total_weight)
    output = contract("nqt,ntd->nqd", settle((weight + hot) * share), tokens)
    if number is not None:
        probability, hot = settle(number / total_weight), (index == winner).astype(logits.dtype)
    winning_token = contract("nqt,ntd->nqd", hot, tokens)
    return Pooled(output, winner, is_winner, shortfall, weight, share, probability, winning_token, number)


def winners(logits: Array, allowed: Array | None, copies: Array | None) -> tuple[Array, Array, Array, Array, Array]:
    """The logits, −∞ where not allowed; the numbers of the tokens; the largest logit; its token; and which are it.

    Of equal logits the lowest number counts, and tokens with equal keys are one. The arguments are those of
    :func:`pool`.
    """
    if allowed is not None:
        logits = settle(jnp.where(allowed, logits, -jnp.inf))
    T = logits.shape[2]
    index = jax.lax.broadcasted_iota(jnp.int32, (1, 1, T, 1), 2)
    largest = settle(jnp.max(logits, axis=2, keepdims=True))
    first = index if copies is None else copies
    winner = settle(jnp.min(jnp.where(logits == largest, first, T - 1), axis=2, keepdims=True))
    return logits, index, largest, winner, first == winner


def logit_gradient(
    pooled: Pooled, tokens: Array, output_gradient: Array, log_slope: Array, query_weight: Array
) -> tuple[Array, Array]:
    """Gradient with respect to the logits, and the logarithm of the factor taken out of it.

    With D_t = ⟨x_* − x_t, ∂L/∂o⟩ and r = Σ_{t≠*} e_t D_t / S the gradient is r/S for the winner and
    (e_t/S)(r − D_t) for the others. These are sums of small terms, while a_t(g_t − Σ_u a_u g_u) cancels to noise. To
    avoid underflow, a factor exp(c) is taken out of every e_t that multiplies, where c is the largest log|ℓ'| + δ_t of
    a trial over its tokens with D_t ≠ 0. If m tokens have the key of the winner, x_* is their mean in D_t, and each of
    them has the gradient r/S.

    ``tokens``: shape (n, T, d, B or 1). ``output_gradient``: shape (n, Q, d, B), ∂L/∂o of each query over its |ℓ'|.
    ``log_slope``: shape (n, Q, B), log|ℓ'|; −inf where it is zero. ``query_weight``: shape (n, Q, B or 1), the share of
    each query in the mean; 0 for padded queries.

    Returns ``gradient`` (shape (n, Q, T, B), the gradient times exp(−c)) and ``log_scale`` (shape (B,), c; 0 where the
    gradient is zero).
    """
    D = gap_products(pooled.winning_token, tokens, output_gradient)
    if pooled.number is not None:  # from the first of equal tokens to their mean
        D = settle(D - total(jnp.where(pooled.is_winner, D, 0.0), axis=2) / pooled.number)
    # Tokens with D = 0 contribute no term. Otherwise a duplicate of the winner would keep c at its δ = 0 while all
    # terms that move the weights underflow.
    silent = pooled.is_winner | (D == 0.0) | (query_weight[:, :, None] == 0.0)
    exponent = jnp.where(silent, -jnp.inf, pooled.shortfall + log_slope[:, :, None])
    largest = over_entries(jnp.maximum, exponent)
    log_scale = jnp.where(jnp.isneginf(largest), 0.0, largest)
    products = settle(jnp.exp(exponent - log_scale) * D)
    r = settle(total(products, axis=2) * pooled.share)
    share = query_weight[:, :, None] * pooled.share
    return settle(jnp.where(pooled.is_winner, r, pooled.weight * r - products) * share), log_scale


def log_attention(pooled: Pooled, tokens: Array, labels: Array) -> Array:
    """Compute log Σ a_t over the tokens that are the one-hot vector of the label of a query; −∞ if there is none.

    It is finite where the sum underflows. ``tokens``: shape (n, T, d, B or 1). ``labels``: shape (n, Q, B).
    """
    numbers = jax.lax.broadcasted_iota(jnp.int32, (1, 1, tokens.shape[2], 1), 2)
    hot = (numbers == labels[:, :, None]).astype(tokens.dtype)
    logs = jnp.where(contract("nqd,ntd->nqt", hot, tokens) > 0.5, pooled.shortfall, -jnp.inf)
    largest = jnp.max(logs, axis=2)
    near = jnp.where(jnp.isneginf(largest), 0.0, largest)
    return settle(near + jnp.log(jnp.sum(jnp.exp(logs - near[:, :, None]), axis=2)) + jnp.log(pooled.share[:, :, 0]))


def gap_products(points: Array, rows: Array, vectors: Array) -> Array:
    """⟨point − row, vector⟩ for each row: (n, Q, d, B), (n, T, d, B or 1) and (n, Q, d, B) to (n, Q, T, B).

    The difference is taken before the product: that of the products would lose what near rows differ by. The sum over d
    is written term by term, and in a loop over parts of a long one, so that no array (n, Q, T, d, B) is stored.
    """
    operands = points, rows, vectors

    def terms(points: Array, rows: Array, vectors: Array) -> Iterator[Array]:
        for k in range(points.shape[2]):
            yield (points[:, :, None, k] - rows[:, None, :, k]) * vectors[:, :, None, k]

    d = points.shape[2]
    if d <= LONGEST_WRITTEN_OUT:
        return settle(reduce(jax.lax.add, terms(*operands)))

    def with_part(i: Array, found: Array) -> Array:
        parts = (jax.lax.dynamic_slice_in_dim(x, i * _PART, _PART, 2) for x in operands)
        return reduce(jax.lax.add, terms(*parts), found)

    found = jnp.zeros((*points.shape[:2], rows.shape[1], points.shape[-1]), points.dtype)
    found = jax.lax.fori_loop(0, d // _PART, with_part, found)
    rest = (x[:, :, d - d % _PART :] for x in operands)
    return settle(reduce(jax.lax.add, terms(*rest), found))
