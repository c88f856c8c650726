"""The base class of maps from logits to attention, whose gradient is taken as it is written."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import contract, over_entries, settle
from attsvm._utils.shapes import Float
from attsvm.measures import token_logits
from attsvm.problem import Problem

Array = jax.Array


class PooledByMap(NamedTuple):
    """Pooled tokens, and what the backward pass needs; the trailing axis of each array holds the trials."""

    output: Array  # shape (n, Q, d, B), o = Σ_t a_t x_t
    winner: Array  # shape (n, Q, 1, B), the index of the token of largest logit, the lowest one on ties
    probability: Array  # shape (n, Q, 1, B), its attention
    of_map: Any  # what the gradient of this map reads


class AttentionMap(ABC):
    """A map from the logits of a query to its attention.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    A subclass defines ``name`` and ``attention``, which JAX differentiates as it is written; its gradient can then
    underflow. The maps of attsvm override ``pool`` and ``logit_gradient`` in place of that. Equal maps share their
    compiled training, so a subclass defines equality and a hash, for instance as a frozen dataclass.

    See Also
    --------
    attsvm.train : Trains with a map.
    attsvm.training.MAPS : The maps that are known by name.

    Examples
    --------
    >>> from attsvm.training import MAPS
    >>> sparsemax = MAPS.find("sparsemax")
    >>> sparsemax.one_hot_margin
    1.0
    """

    name: ClassVar[str]

    one_hot_margin: float = math.inf
    """The lead of a logit over all others from which on the attention is exactly one-hot; ∞ if it never is."""

    by_sign: bool = False
    """Whether each token is kept or dropped by the sign of its own logit, not by comparison with other tokens."""

    @abstractmethod
    def attention(self, logits: Array, allowed: Array | None) -> Array:
        """The attention, shape (n, Q, T, B); 0 where a token is not allowed.

        ``logits``: shape (n, Q, T, B). ``allowed``: shape (n, Q, T, B or 1), what each query may attend to; None allows
        all.
        """

    def attention_of(self, problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
        """The attention under weights, with the Q axis written out; 0 for tokens that the masks exclude."""
        logits = token_logits(problem, weights)
        allowed = np.broadcast_to(problem.canonical.allowed, logits.shape)
        last = (x.reshape(-1, 1, x.shape[-1], 1) for x in (logits, allowed))
        with jax.enable_x64(True):
            found = np.asarray(self.attention(*map(jnp.asarray, last))).reshape(logits.shape)
        return np.where(allowed, found, 0.0)

    def pool(self, logits: Array, tokens: Array, allowed: Array | None, copies: Array | None) -> Any:
        """The mean of the tokens under the attention, with ``output``, ``winner`` and ``probability``.

        ``tokens``: shape (n, T, d, B or 1). ``copies``: shape (n, Q, T, B or 1), for each token the first one with an
        equal key; None if no two keys are equal.
        """
        attention, pull = jax.vjp(lambda s: self.attention(s, allowed), logits)
        return attended(settle(attention), logits, tokens, allowed, copies, pull)

    def logit_gradient(
        self, pooled: Any, tokens: Array, output_gradient: Array, log_slope: Array, query_weight: Array
    ) -> tuple[Array, Array]:
        """The gradient with respect to the logits, and the logarithm of the factor taken out of it.

        ``output_gradient``: shape (n, Q, d, B), ∂L/∂o of each query over its |ℓ'|. ``log_slope``: shape (n, Q, B),
        log|ℓ'|; −∞ where it is zero. ``query_weight``: shape (n, Q, B or 1), the share of each query in the mean.

        Returns ``gradient`` (shape (n, Q, T, B), times exp(−c)) and ``log_scale`` (shape (B,), c).
        """
        log_scale = log_scale_of(jnp.where(query_weight > 0, log_slope, -jnp.inf))
        factor = query_weight * jnp.exp(log_slope - log_scale)
        of_attention = contract("nqd,ntd->nqt", output_gradient, tokens) * factor[:, :, None]
        pull: Callable[[Array], tuple[Array]] = pooled.of_map
        return settle(pull(of_attention)[0]), log_scale


def attended(
    attention: Array, logits: Array, tokens: Array, allowed: Array | None, copies: Array | None, of_map: Any
) -> PooledByMap:
    """Pool the tokens by the attention, and find the token of largest logit and the attention on its key."""
    logits = logits if allowed is None else settle(jnp.where(allowed, logits, -jnp.inf))
    T = logits.shape[2]
    index = jax.lax.broadcasted_iota(jnp.int32, (1, 1, T, 1), 2)
    first = index if copies is None else copies
    largest = jnp.max(logits, axis=2, keepdims=True)
    winner = settle(jnp.min(jnp.where(logits == largest, first, T - 1), axis=2, keepdims=True))
    probability = settle(jnp.sum(jnp.where(first == winner, attention, 0.0), axis=2, keepdims=True))
    return PooledByMap(contract("nqt,ntd->nqd", attention, tokens), winner, probability, of_map)


def log_scale_of(exponent: Array) -> Array:
    """The largest exponent of each trial, shape (B,); 0 where all are −∞."""
    largest = over_entries(jnp.maximum, exponent)
    return settle(jnp.where(jnp.isneginf(largest), 0.0, largest))
