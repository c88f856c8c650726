"""The logarithm of the loss above its infimum, for a fixed linear head: a sum of terms without cancellation."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import settle
from attsvm.errors import ProblemError
from attsvm.losses import Outputs
from attsvm.training.attention.base import Parameters, ProblemData
from attsvm.training.maps.softmax import SOFTMAX
from attsvm.training.objective import Objective
from attsvm.training.softmax import pool

Array = jax.Array

# lists of floats: numbers of NumPy would make doubles of the arrays of a run in float32
_NODES, _NODE_WEIGHTS = (x.tolist() for x in np.polynomial.legendre.leggauss(8))


def check_excess(objective: Objective) -> None:
    """Check that the loss is lowest at the optimal tokens of a linear head.

    Raises ProblemError if it is not.
    """
    reason = {
        "a fixed linear head": objective.head.name != "linear" or bool(objective.head_names),
        "a loss of the margin": objective.loss.takes != Outputs.MARGIN,
        "no penalty": objective.penalized,
        "one attention head": objective.heads.number is not None,
        "softmax attention": objective.map != SOFTMAX,
        "one layer": objective.several_layers,
    }
    for expected, missing in reason.items():
        if missing:
            raise ProblemError(
                f"optimizer: expected {expected} for one that divides by the excess of the loss, because its infimum "
                "is not known otherwise"
            )


def log_excess(objective: Objective, trained: Parameters, fixed: Parameters, data: ProblemData) -> Array:
    """log(L − L*), shape (B,), with L* the mean loss of the optimal tokens; −inf where all attention is on them.

    With margins m_t = y⟨v, x_t⟩ and their maximum m_*, the pooled token has the margin m_* − Δ, where
    Δ = Σ_t a_t (m_* − m_t), and its excess is Δ times the mean of |ℓ'| from there to m_*.
    """
    of_attention, of_head = objective.split(trained, fixed)
    pooled = pool(objective.attention.logits(of_attention, data), data.tokens, data.allowed, data.copies)
    margins = data.labels[:, :, None] * objective.head.outputs(of_head, data.tokens)[:, None]
    if data.copies is not None:
        margins = _mean_of_copies(margins, data.copies)
    if data.allowed is not None:
        margins = jnp.where(data.allowed, margins, -jnp.inf)
    best = jnp.max(margins, axis=2, keepdims=True)
    behind = best - margins
    counted = (behind > 0) & jnp.isfinite(behind)
    log_attention = jnp.where(pooled.is_winner, 0.0, pooled.shortfall) + jnp.log(pooled.share)
    terms = jnp.where(counted, log_attention + jnp.log(jnp.where(counted, behind, 1.0)), -jnp.inf)
    log_drop = jax.nn.logsumexp(terms, axis=2)
    best, drop = jnp.where(data.query_weight > 0, best[:, :, 0], 0.0), jnp.exp(log_drop)
    slopes = [
        math.log(weight / 2) + objective.loss.slope(data.labels * (best - (node + 1) / 2 * drop), data.labels).log_slope
        for node, weight in zip(_NODES, _NODE_WEIGHTS, strict=True)
    ]
    log_mean = jax.nn.logsumexp(jnp.stack(slopes), axis=0)
    counts = data.query_weight > 0
    share = jnp.where(counts, jnp.log(jnp.where(counts, data.query_weight, 1.0)), -jnp.inf)
    return jax.nn.logsumexp(share + log_mean + log_drop, axis=(0, 1))


def _mean_of_copies(margins: Array, copies: Array) -> Array:
    """The mean margin of tokens with equal keys, exact where their margins are equal."""
    margins = jnp.broadcast_to(margins, jnp.broadcast_shapes(margins.shape, copies.shape))
    first = jnp.take_along_axis(margins, jnp.broadcast_to(copies, margins.shape), axis=2)
    equal = copies[:, :, :, None] == copies[:, :, None]
    above = jnp.sum(jnp.where(equal, (margins - first)[:, :, None], 0.0), axis=3)
    return settle(first + above / jnp.sum(equal, axis=3))
