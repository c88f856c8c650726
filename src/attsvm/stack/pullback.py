"""The gradient of a stack, layer by layer from the last one. It keeps its relative accuracy in every layer.

Each position has a gradient exp(γ) u of its own scale: that of a token that is not selected is of the order of
exp(−margin), and one common factor for all positions would make the small ones underflow.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, contractions, over_entries, settle, total
from attsvm.stack.layers import Attended

Array = jax.Array

LOG_2 = 0.6931471805599453


class Sloped(NamedTuple):
    """Gradients with respect to vectors, exp(log) · direction."""

    direction: Array  # (n, T, d, B)
    log: Array  # (n, T, B); −inf for a zero gradient


class OfLayer(NamedTuple):
    """The gradient of one layer."""

    weights: Array  # (d, d_q, B), times exp(−log_scale)
    log_scale: Array  # (B,); 0 where the gradient is zero
    tokens: Sloped  # with respect to the tokens as values, as keys, and as queries if they are the layer's


def pull_back(layer: Attended, output: Sloped, kept: Sloped | None, *, of_queries: bool) -> OfLayer:
    """The gradient from that of the layer's output, exp(γ_q) u_q for each query q.

    With D_t = ⟨x_* − x_t, u⟩, r = Σ_{t≠*} e_t D_t / S, the gradient with respect to the logits is exp(γ) times r/S for
    the winner and (e_t/S)(r − D_t) for the others. These sums have no cancellation.

    ``output``: direction (n, Q, d, B), log (n, Q, B). ``kept``: a gradient that is added to that of the tokens.
    ``of_queries``: whether the tokens are the queries.
    """
    u, gamma, probability = output.direction, output.log[:, :, None], layer.probability
    D = layer.gap_products(u)
    # exp(ρ) is about the largest e_t |D_t| of a query: the size of its part of the gradient of the weights
    counted = ~layer.is_winner & (D != 0.0)
    exponent = jnp.where(counted, layer.shortfall + _log_size(D), -jnp.inf)
    rho = settle(jnp.max(exponent, axis=2, keepdims=True))
    # e_t D_t exp(−ρ)
    products = settle(jnp.where(counted, jnp.exp(layer.shortfall - _finite(rho)) * D, 0.0))
    r = settle(total(products, axis=2) * probability)  # times exp(−ρ)
    # Σ_t g_t (x_t − x_*), because the g_t of a query add up to zero
    pulled = layer.gap_sums(settle((layer.weight * r - products) * probability))
    size = settle(gamma + rho)
    log_scale = over_entries(jnp.maximum, size)
    log_scale = _finite(log_scale)
    of_weights = contract("nqk,nqe->ke", settle(jnp.exp(size - log_scale) * pulled), layer.queries)

    # a token has the scale of the largest part of its gradient; Σ_q a_t u + g_t W z has the scale of the query that
    # weighs the token most, because a_t and g_t are of the order of exp(γ + δ_t)
    others = [] if kept is None else [kept]
    if of_queries:
        others.append(Sloped(contract("ke,nqk->nqe", layer.weights, pulled), size[:, :, 0]))
    reach = settle(gamma + jnp.where(layer.is_winner, 0.0, layer.shortfall))
    log = settle(reduce(jnp.maximum, (part.log for part in others), jnp.max(reach, axis=1)))  # (n, T, B)
    share = settle(jnp.exp(reach - _finite(log)[:, None]) * probability)
    slope = r * jnp.exp(rho)
    as_key = settle(share * jnp.where(layer.is_winner, slope, slope - D))
    plus = _scaled_sum(others, log) if others else None
    of_tokens = contractions(("nqt,nqd->ntd", share, u), ("nqt,nqd->ntd", as_key, layer.images), plus=plus)
    return OfLayer(of_weights, log_scale, Sloped(of_tokens, log))


def summed(parts: list[Sloped]) -> Sloped:
    """The sum of gradients, on the scale of the largest one at each position."""
    if len(parts) == 1:
        return parts[0]
    log = settle(reduce(jnp.maximum, (part.log for part in parts)))
    return Sloped(settle(_scaled_sum(parts, log)), log)


def _scaled_sum(parts: list[Sloped], log: Array) -> Array:
    """The sum of gradients times exp(−log)."""
    terms = (settle(jnp.exp(part.log - _finite(log)))[:, :, None] * part.direction for part in parts)
    return reduce(jnp.add, terms)


def _finite(log: Array) -> Array:
    """0 in place of −inf, which would be subtracted from −inf."""
    return jnp.where(jnp.isneginf(log), 0.0, log)


def _log_size(x: Array) -> Array:
    """log|x| of normal numbers, rounded down to a power of two; its exponent is read from the bits."""
    if x.dtype != jnp.float64:
        return jnp.log(jnp.abs(x))
    upper = (jax.lax.bitcast_convert_type(x, jnp.int64) >> 32).astype(jnp.int32)
    return (((upper >> 20) & 0x7FF) - 1023).astype(x.dtype) * LOG_2
