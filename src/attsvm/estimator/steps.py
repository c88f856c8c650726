"""Batches, and the gradient of prompt attention on one; compiled as a part of a step.

The time of a step grows with the tokens of its sequences, and not with the length of the longest one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.datasets.sequences import Sequences
from attsvm.losses import LOSSES

Array = jax.Array
Parameters = dict[str, Any]

FEWEST = 64
"""Smallest padded number of rows, tokens and sequences of a batch, so that small batches share a compiled step."""


class Batch(NamedTuple):
    """The sequences of a step, one after the other: the vector of each distinct token once, and the tokens."""

    rows: Any  # shape (R, d), vectors, centred and scaled; padded with zero rows
    places: Any  # shape (N,), rows of the tokens
    # shape (N,), sequences of the tokens, in increasing order; b for padding, which takes no part in sums and maxima
    owners: Any
    labels: Any  # shape (b,), ±1, or class numbers
    weights: Any  # shape (b,), divided by the number of sequences; zero for padding

    def total(self, of_tokens: Array) -> Array:
        """Sums over the tokens of each sequence, (N, ...) to (b, ...)."""
        return self._reduce(jax.ops.segment_sum, of_tokens)

    def largest(self, of_tokens: Array) -> tuple[Array, Array]:
        """The largest entry of each sequence, and the first of the N tokens that has it; both (b, ...)."""
        value = self._reduce(jax.ops.segment_max, of_tokens)
        tokens = jax.lax.broadcasted_iota(jnp.int32, of_tokens.shape, 0)
        last = len(self.owners) - 1
        first = self._reduce(jax.ops.segment_min, jnp.where(of_tokens == value[self.owners], tokens, last))
        # the minimum over no tokens is no token
        return value, jnp.minimum(first, last)

    def _reduce(self, operation: Callable[..., Array], of_tokens: Array) -> Array:
        return operation(of_tokens, self.owners, len(self.labels), indices_are_sorted=True)


def gather(
    sequences: Sequences,
    chosen: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: float | np.ndarray,
    usual: float,
) -> Batch:
    """Collect a batch. Sizes are rounded up, so that few different sizes are compiled.

    A batch has room for a tenth more than the ``usual`` number of tokens, or twice or four times as many, and so on: an
    epoch then computes less than four times its tokens, with one or two sizes where lengths vary little. Vectors of
    words that occur several times are gathered once: a batch of 256 reviews has 60,000 words, of which 10,000 are
    different.
    """
    part, dtype = sequences[chosen], sequences.table.dtype
    used, inverse = np.unique(part.ids, return_inverse=True)
    size, room = _rounded_up(len(part)), _rounded_up(1.1 * usual)
    while room < len(inverse):
        room *= 2
    filled = Batch(
        np.zeros((room if len(used) == len(inverse) else _rounded_up(len(used)), part.dim), dtype),
        np.zeros(room, np.int32),
        np.full(room, size, np.int32),
        np.ones(size, dtype),
        np.zeros(size, dtype),
    )
    filled.rows[: len(used)] = (part.table[used] - centre) / scale
    filled.places[: len(inverse)] = inverse
    filled.owners[: len(inverse)] = np.repeat(np.arange(len(part)), part.lengths)
    filled.labels[: len(part)] = labels[chosen]
    filled.weights[: len(part)] = weights[chosen] / len(part)
    return filled


def objective_gradient(parameters: Parameters, batch: Batch, alpha: Any) -> tuple[Array, Parameters]:
    """Weighted mean loss plus α/2 (‖p‖² + ‖V‖²), and its gradient.

    The head is linear, so it is enough to pool the scores V x_t of the tokens, and vectors occur in two matrix products
    only. The gradient keeps its relative accuracy when the softmax saturates. With the winner * of a sequence, the
    token of largest logit, e_t = exp(s_t − s_*) for the others, S = 1 + Σ e_t, D_t = ⟨V(x_* − x_t), ∂ℓ/∂o⟩ and
    r = Σ e_t D_t / S, it is r/S for the logit of the winner and (e_t/S)(r − D_t) for the others, sums of small terms.

    ``parameters``: ``p`` (d,), ``V`` (C, d), with C = 1 for two classes, ``b`` (C,).
    """
    p, V, b, owners = parameters["p"], parameters["V"], parameters["b"], batch.owners
    loss = LOSSES.find("logistic" if len(V) == 1 else "cross_entropy")
    with jax.default_matmul_precision("highest"):
        of_rows = batch.rows @ jnp.concatenate([p[:, None], V.T], axis=1)
        logits, values = of_rows[batch.places, 0], of_rows[batch.places, 1:]
        largest, winner = batch.largest(logits)
        is_winner = jnp.arange(len(logits)) == winner[owners]
        others = ~is_winner & (owners < len(batch.labels))
        weight = jnp.where(others, jnp.exp(logits - largest[owners]), 0.0)
        probability = 1.0 / (1.0 + batch.total(weight))
        attention = (weight + is_winner) * probability[owners]
        # the losses have an axis of queries after the sequences, and a last one of trials
        shape = (-1, 1, 1) if len(V) == 1 else (-1, 1, len(V), 1)
        outputs = (batch.total(attention[:, None] * values) + b).reshape(shape)
        labels, weights = batch.labels[:, None, None], batch.weights[:, None, None]
        direction, log_slope = loss.slope(outputs, labels)
        of_outputs = jnp.broadcast_to(direction, outputs.shape).reshape(-1, len(V))
        of_outputs = of_outputs * jnp.exp(log_slope[:, 0]) * batch.weights[:, None]
        gaps = values[winner[owners]] - values
        products = weight * (gaps * of_outputs[owners]).sum(axis=1)
        mean = probability * batch.total(products)
        of_logits = ((weight + is_winner) * mean[owners] - products) * probability[owners]
        of_tokens = jnp.column_stack([of_logits, attention[:, None] * of_outputs[owners]])
        of_rows = jnp.zeros_like(of_rows).at[batch.places].add(of_tokens)
        gradient = batch.rows.T @ of_rows
    value = jnp.sum(loss.values(outputs, labels) * weights) + 0.5 * alpha * (jnp.sum(p * p) + jnp.sum(V * V))
    return value, {"p": gradient[:, 0] + alpha * p, "V": gradient[:, 1:].T + alpha * V, "b": of_outputs.sum(axis=0)}


def _rounded_up(size: float) -> int:
    """To 64, 96, 128, 192, ...: a power of two, or one and a half."""
    power = FEWEST
    while power < size:
        power *= 2
    return 3 * power // 4 if FEWEST < size <= 3 * power // 4 else power
