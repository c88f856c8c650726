"""The gradient of the parameters of a prediction head, with its scale taken out."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import over_all, over_entries, settle
from attsvm.training.attention.base import Parameters

Array = jax.Array


class _HeadGradient(NamedTuple):
    gradient: Parameters  # times exp(−log_scale)
    log_scale: Array  # (B,)
    largest: Array  # (B,): the largest entry of the gradient


class _QuerySearch(NamedTuple):
    log_slope: Array  # (n, Q, B): −inf for queries that have been tried
    best: _HeadGradient


def head_gradient(
    pull: Callable[[Array], Parameters], log_slope: Array, query_weight: Array
) -> tuple[Parameters, Array]:
    """Gradient with respect to the head's parameters, and the logarithm of the factor taken out of it.

    The factor is the largest |ℓ'| of the queries. A query may have the largest |ℓ'| and yet not move the head, for
    instance where no hidden unit is active. If the gradient underflows next to that factor, it is computed again from
    the queries of smaller |ℓ'|, until it is large enough or no query is left.

    ``pull``: from the factor of each query, shape (n, Q, B), to the gradient. ``log_slope``: shape (n, Q, B), log|ℓ'|;
    −inf where it is zero. ``query_weight``: shape (n, Q, B or 1), the share of each query in the mean; 0 for padded
    queries.

    Returns ``gradient`` (the gradient times exp(−c)) and ``log_scale`` (shape (B,), c; 0 where no query has a slope).
    """
    limits = np.finfo(log_slope.dtype)
    # gradients below lose digits to the end of the floats
    smallest = float(limits.tiny / limits.eps)

    def scaled(log_slope: Array) -> _HeadGradient:
        largest = over_entries(jnp.maximum, log_slope)
        log_scale = jnp.where(jnp.isneginf(largest), 0.0, largest)
        gradient = pull(settle(jnp.exp(log_slope - log_scale) * query_weight))
        return _HeadGradient(gradient, log_scale, over_all(jnp.maximum, gradient, jnp.abs))

    def lost(search: _QuerySearch) -> Array:
        left = over_entries(jnp.maximum, search.log_slope) > -jnp.inf
        return left & (search.best.largest < smallest)

    def next_queries(search: _QuerySearch) -> _QuerySearch:
        # the upper half of the range of floats; what is below it may have underflowed by the queries' own gradients
        tried = search.log_slope > over_entries(jnp.maximum, search.log_slope) + 0.5 * np.log(smallest)
        log_slope = jnp.where(tried, -jnp.inf, search.log_slope)
        new, old = scaled(log_slope), search.best
        larger = new.log_scale + jnp.log(new.largest) > old.log_scale + jnp.log(old.largest)
        better = lost(search) & larger
        return _QuerySearch(log_slope, jax.tree.map(lambda x, y: jnp.where(better, x, y), new, old))

    log_slope = jnp.where(query_weight > 0, log_slope, -jnp.inf)
    start = _QuerySearch(log_slope, scaled(log_slope))
    best = jax.lax.while_loop(lambda search: jnp.any(lost(search)), next_queries, start).best
    return best.gradient, best.log_scale
