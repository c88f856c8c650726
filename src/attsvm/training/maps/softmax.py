"""The softmax a_t = exp(s_t) / Σ_u exp(s_u)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.shapes import Float
from attsvm.measures import attention_of
from attsvm.problem import Problem
from attsvm.training.maps.base import AttentionMap
from attsvm.training.maps.registry import MAPS
from attsvm.training.softmax import Pooled, logit_gradient, pool

Array = jax.Array


@dataclass(frozen=True)
class Softmax(AttentionMap):
    """The softmax, whose gradient keeps its relative accuracy however saturated it is."""

    name = "softmax"

    def attention(self, logits: Array, allowed: Array | None) -> Array:
        """exp(s_t) / Σ_u exp(s_u)."""
        return jax.nn.softmax(logits if allowed is None else jnp.where(allowed, logits, -jnp.inf), axis=2)

    def attention_of(self, problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
        return attention_of(problem, weights)

    def pool(self, logits: Array, tokens: Array, allowed: Array | None, copies: Array | None) -> Pooled:
        return pool(logits, tokens, allowed, copies)

    def logit_gradient(
        self, pooled: Pooled, tokens: Array, output_gradient: Array, log_slope: Array, query_weight: Array
    ) -> tuple[Array, Array]:
        return logit_gradient(pooled, tokens, output_gradient, log_slope, query_weight)


SOFTMAX = MAPS.register("softmax", Softmax())
