"""Batches of sequences.

The time of a step grows with the tokens of its sequences, and not with the length of the longest one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.datasets import Sequences

Array = jax.Array
Parameters = dict[str, Any]

FEWEST = 64
"""Smallest padded number of rows, tokens and sequences of a batch, so that small batches share a compiled step."""


class TrainingBatch(NamedTuple):
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
) -> TrainingBatch:
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
    filled = TrainingBatch(
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


def _rounded_up(size: float) -> int:
    """To 64, 96, 128, 192, ...: a power of two, or one and a half."""
    power = FEWEST
    while power < size:
        power *= 2
    return 3 * power // 4 if FEWEST < size <= 3 * power // 4 else power
