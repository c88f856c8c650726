"""Sparsemax and 1.5-entmax: attention that is exactly one-hot from a margin of 1, or 2, on.

The α-entmax is a_t = [(α − 1) s_t − τ]_+^p, p = 1/(α − 1), with τ such that the attention adds up to 1. With the base
u_t = a_t^(1/p), the winner * of the largest logit, its m tokens with equal keys, and the largest base c = m^(−1/p) that
it can have,

    u_* = c − δ,   u_t = r_t − δ,   r_t = c − (α − 1)(s_* − s_t),

where δ ≥ 0 is the root of f(δ) = Σ_t (r_t − δ)_+^p + m (c − δ)^p − 1 over the other tokens. Near one-hot attention r_t
and δ are small and computed without cancellation, so that small attention keeps its relative accuracy.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, settle, total
from attsvm.training.maps.base import AttentionMap, log_scale_of
from attsvm.training.maps.registry import MAPS
from attsvm.training.softmax import gap_products, winners

Array = jax.Array

MOST_PAIRS = 16
"""Up to so many tokens each is compared with each other; Newton's iterations take less time for more."""


class PooledByEntmax(NamedTuple):
    """Pooled tokens, and the derivatives w_t = a_t^(2 − α) = u_t^(p − 1) for the backward pass."""

    output: Array
    winner: Array
    probability: Array
    winning_token: Array  # shape (n, Q, d, B), x_*
    is_winner: Array  # shape (n, Q, T, B)
    weight: Array  # shape (n, Q, T, B), w_t / w_*; 0 for the winner
    share: Array  # shape (n, Q, 1, B), w_* / Σ w
    derivative: Array  # shape (n, Q, 1, B), w_*
    number: Array | None  # shape (n, Q, 1, B), m; None if no two keys are equal


class _Bases(NamedTuple):
    """The bases u of the tokens that are not the winner, and of the winner; and who it is."""

    others: Array  # shape (n, Q, T, B); 0 for the winner
    of_winner: Array  # shape (n, Q, 1, B)
    winner: Array
    is_winner: Array
    number: Array | None  # shape (n, Q, 1, B), m; None if no two keys are equal


@dataclass(frozen=True)
class Entmax(AttentionMap):
    """The α-entmax for p = 1/(α − 1) = 1, the sparsemax, or p = 2, the 1.5-entmax.

    Martins and Astudillo (2016), *From Softmax to Sparsemax*; Peters, Niculae and Martins (2019), *Sparse
    Sequence-to-Sequence Models*, with the Jacobian diag(w) − ww'/Σw, w_t = a_t^(2 − α). The threshold is found without
    sorting: Michelot's iterations (1986) are those of Newton for p = 1.
    """

    power: int

    @property
    def name(self) -> str:  # type: ignore[override]  # of the object, by its power
        return "sparsemax" if self.power == 1 else f"entmax{1 + 1 / self.power:g}"

    @property
    def one_hot_margin(self) -> float:  # type: ignore[override]
        """1/(α − 1)."""
        return float(self.power)

    def attention(self, logits: Array, allowed: Array | None) -> Array:
        """[(α − 1) s_t − τ]_+^p."""
        bases = self._bases(logits, allowed, None)
        return jnp.where(bases.is_winner, bases.of_winner, bases.others) ** self.power

    def pool(self, logits: Array, tokens: Array, allowed: Array | None, copies: Array | None) -> PooledByEntmax:
        others, of_winner, winner, is_winner, number = self._bases(logits, allowed, copies)
        attention = settle(jnp.where(is_winner, of_winner, others) ** self.power)
        probability = of_winner**self.power * (1.0 if number is None else number)
        index = jax.lax.broadcasted_iota(jnp.int32, (1, 1, logits.shape[2], 1), 2)
        winning_token = contract("nqt,ntd->nqd", (index == winner).astype(logits.dtype), tokens)
        derivative = settle(of_winner ** (self.power - 1))
        # in the type of the logits: JAX makes doubles of two numbers of Python
        weight = (others > 0).astype(others.dtype) if self.power == 1 else others * settle(1.0 / of_winner)
        weight = settle(weight)
        share = settle(1.0 / ((1.0 if number is None else number) + total(weight, axis=2)))
        output = contract("nqt,ntd->nqd", attention, tokens)
        return PooledByEntmax(output, winner, probability, winning_token, is_winner, weight, share, derivative, number)

    def logit_gradient(
        self, pooled: PooledByEntmax, tokens: Array, output_gradient: Array, log_slope: Array, query_weight: Array
    ) -> tuple[Array, Array]:
        # ∂L/∂s_t = w_t (g_t − Σ w g/Σ w), with g relative to that of the winner: D_t = g_* − g_t. A query is at most
        # |ℓ'| w_t for its largest w_t with D_t ≠ 0, and the largest of these of a trial is taken out
        D = gap_products(pooled.winning_token, tokens, output_gradient)
        if pooled.number is not None:  # from the first of equal tokens to their mean
            D = settle(D - total(jnp.where(pooled.is_winner, D, 0.0), axis=2) / pooled.number)
        products = settle(pooled.weight * D)
        moves = (D != 0.0) & (query_weight[:, :, None] > 0.0)
        largest = settle(jnp.max(jnp.where(moves, pooled.weight, 0.0), axis=2))
        log_scale = log_scale_of(jnp.log(largest * pooled.derivative[:, :, 0]) + log_slope)
        # of a query that does not move the exponential may overflow
        factor = jnp.where(largest > 0, query_weight * jnp.exp(log_slope - log_scale), 0.0)[:, :, None]
        r = settle(total(products, axis=2) * pooled.share)
        changes = jnp.where(pooled.is_winner, r, pooled.weight * r - products)
        return settle(changes * settle(factor * pooled.derivative)), log_scale

    def _bases(self, logits: Array, allowed: Array | None, copies: Array | None) -> _Bases:
        logits, _, largest, winner, is_winner = winners(logits, allowed, copies)
        number = None if copies is None else settle(total(is_winner.astype(logits.dtype), axis=2))
        m = jnp.ones_like(largest) if number is None else number
        most = m ** (-1.0 / self.power)
        gaps = (largest - logits) / self.power
        # −inf − (−inf) is NaN where nothing is allowed
        out = is_winner if allowed is None else is_winner | ~allowed
        r = settle(jnp.where(out, 0.0, jnp.maximum(most - gaps, 0.0)))
        low = self._by_pairs(r, m) if r.shape[2] <= MOST_PAIRS else self._by_newton(r, m)
        delta = self._root(r, r > low, m)
        return _Bases(settle(jnp.maximum(r - delta, 0.0)), settle(most - delta), winner, is_winner, number)

    def _root(self, r: Array, support: Array, m: Array) -> Array:
        """δ if the support is that of the attention; otherwise, for p = 1, a lower bound, and for p = 2 an upper one.

        For p = 1 it is R₁/(m + k), with k tokens in the support and R_j = Σ r^j over them; for p = 2 the smaller root
        of (m + k) δ² − 2 (√m + R₁) δ + R₂.
        """
        kept = jnp.where(support, r, 0.0)
        size, first = m + total(support.astype(r.dtype), axis=2), total(kept, axis=2)
        if self.power == 1:
            return settle(first / size)
        half, second = jnp.sqrt(m) + first, total(kept * kept, axis=2)
        return settle(second / (half + jnp.sqrt(jnp.maximum(half * half - size * second, 0.0))))

    def _by_pairs(self, r: Array, m: Array) -> Array:
        """The largest r_t outside of the support: those with f(r_t) ≥ 0, as f decreases."""
        T = r.shape[2]
        above = [jnp.maximum(r[:, :, u : u + 1] - r, 0.0) ** self.power for u in range(T)]
        excess = sum(above[1:], above[0])
        own = m * r if self.power == 1 else (2.0 * jnp.sqrt(m) - m * r) * r
        return settle(jnp.max(jnp.where(excess >= own, r, 0.0), axis=2, keepdims=True))

    def _by_newton(self, r: Array, m: Array) -> Array:
        """A lower bound of δ above every r_t outside of the support, by Newton's steps from 0, as f is convex."""

        def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            low, _ = carry
            above = jnp.where(r > low, r - low, 0.0)
            first = total(above, axis=2)
            if self.power == 1:
                # the step ends at the root for its own support
                new = low + (first - m * low) / (m + total((r > low).astype(r.dtype), axis=2))
                bound = new
            else:
                second = total(above * above, axis=2)
                new = low + 0.5 * (second - (2.0 * jnp.sqrt(m) - m * low) * low) / (first + jnp.sqrt(m) - m * low)
                bound = self._root(r, r > low, m)
            new = settle(jnp.maximum(new, low))
            # the support is known once no token lies between the lower and the upper bound of δ
            between = jnp.any((r > low) & (r <= bound), axis=2, keepdims=True) & (new > low)
            return jnp.where(between, new, low), jnp.any(between)

        found: tuple[Array, Array] = jax.lax.while_loop(
            lambda carry: carry[1], step, (jnp.zeros_like(m), jnp.array(True))
        )
        return settle(found[0])


SPARSEMAX = MAPS.register("sparsemax", Entmax(1))
ENTMAX = MAPS.register("entmax1.5", Entmax(2))
