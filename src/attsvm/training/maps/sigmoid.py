"""The sigmoid of each logit, a_t = 1/(1 + exp(−s_t)), which does not add up to 1."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, settle
from attsvm.training.maps.base import AttentionMap, PooledByMap, attended, log_scale_of
from attsvm.training.maps.registry import MAPS

Array = jax.Array


@dataclass(frozen=True)
class Sigmoid(AttentionMap):
    """The sigmoid: tokens do not compete, and each is kept or dropped by the sign of its logit.

    Ramapuram, Danieli, Dhekane et al. (2025), *Theory, Analysis, and Best Practices for Sigmoid Self-Attention*, have
    it with an offset of the logits, which is 0 here.
    """

    name = "sigmoid"
    by_sign = True

    def attention(self, logits: Array, allowed: Array | None) -> Array:
        """1/(1 + exp(−s_t))."""
        found = jax.nn.sigmoid(logits)
        return found if allowed is None else jnp.where(allowed, found, 0.0)

    def pool(self, logits: Array, tokens: Array, allowed: Array | None, copies: Array | None) -> PooledByMap:
        attention = settle(self.attention(logits, allowed))
        # a'(s) = a (1 − a) = e^−|s| / (1 + e^−|s|)², whose logarithm stays finite where it underflows
        size = jnp.abs(logits)
        log_derivative = settle(2.0 * jnp.log(jax.nn.sigmoid(size)) - size)
        if allowed is not None:
            log_derivative = jnp.where(allowed, log_derivative, -jnp.inf)
        return attended(attention, logits, tokens, allowed, None, log_derivative)

    def logit_gradient(
        self, pooled: PooledByMap, tokens: Array, output_gradient: Array, log_slope: Array, query_weight: Array
    ) -> tuple[Array, Array]:
        # ∂L/∂s_t = |ℓ'| a'(s_t) ⟨x_t, ∂L/∂o⟩, where the largest |ℓ'| a' of a trial is taken out
        products = contract("nqd,ntd->nqt", output_gradient, tokens)
        silent = (products == 0.0) | (query_weight[:, :, None] == 0.0)
        exponent = jnp.where(silent, -jnp.inf, pooled.of_map + log_slope[:, :, None])
        log_scale = log_scale_of(exponent)
        return settle(jnp.exp(exponent - log_scale) * products * query_weight[:, :, None]), log_scale


MAPS.register("sigmoid", Sigmoid())
