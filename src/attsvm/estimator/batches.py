"""Batches of sequences.

The time of a step grows with the tokens of its sequences, and not with the length of the longest one. The memory of a
batch is bounded, so that bags of any size are trained on a few at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.datasets import Sequences, in_blocks

Array = jax.Array
Parameters = dict[str, Any]

FEWEST = 64
"""Smallest padded number of rows, tokens and sequences of a batch, so that small batches share a compiled step."""

BYTES = 1 << 25
"""Bytes of the vectors of a batch, 32 MiB; batches of large sequences have fewer of them, but at least one."""

CELLS = 1 << 22
"""Tokens of a batch times numbers per token; batches of many tokens have fewer sequences."""

PART = 1 << 16
"""Numbers of the vectors in one part of a sum over them, which stay in the cache of a core."""


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

    def pull_back(self, of_rows: Array) -> Array:
        """Σ_r x_r g_r' of numbers g for each row, (R, k) to (d, k).

        Many rows are summed in parts: XLA's product with a transposed matrix takes six times as long on a CPU.
        """
        size, dim = self.rows.shape
        if size * dim <= 16 * PART:
            return jnp.asarray(self.rows.T @ of_rows)
        parts = 1
        while size % (2 * parts) == 0 and size * dim > parts * PART:
            parts *= 2

        def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            return total + part[1].T @ part[0], None

        split = self.rows.reshape(parts, -1, dim), of_rows.reshape(parts, size // parts, -1)
        return jax.lax.scan(add, jnp.zeros((of_rows.shape[1], dim), of_rows.dtype), split)[0].T

    def _reduce(self, operation: Callable[..., Array], of_tokens: Array) -> Array:
        return operation(of_tokens, self.owners, len(self.labels), indices_are_sorted=True)


def batches(
    sequences: Sequences, numbers: int, batch_size: int, most: int | None, generator: np.random.RandomState
) -> list[np.ndarray]:
    """Sequences of each batch of an epoch, in a new order.

    ``numbers``: how many are computed for each token. ``most``: tokens of a sequence in a step.
    """
    order, fits = generator.permutation(len(sequences)), Room(sequences, most)
    # equal parts: a last batch of a few sequences would take as long a step as the others
    parts = -(-len(order) // batch_size)
    size = -(-len(order) // parts)
    found, begin = [], 0
    while begin < len(order):
        chosen = order[begin : begin + size]
        chosen = chosen[: max(1, int((numbers * np.cumsum(fits.lengths[chosen]) <= CELLS).sum()))]
        found.append(fits.first(chosen))
        begin += len(found[-1])
    return found


class Room:
    """How many sequences a batch of :data:`BYTES` has room for; ``most``: tokens of a sequence that are used."""

    def __init__(self, sequences: Sequences, most: int | None = None) -> None:
        self.sequences = sequences
        self.lengths = sequences.lengths if most is None else np.minimum(sequences.lengths, most)
        self.rows = BYTES // (sequences.dim * sequences.table.dtype.itemsize)
        self._shared: bool | None = None

    def first(self, chosen: np.ndarray) -> np.ndarray:
        """The first of some sequences that a batch has room for, at least one. Vectors that several have count once."""
        rows = np.cumsum(self.lengths[chosen])
        if rows[-1] <= self.rows:
            return chosen
        if self._shared is None:
            self._shared = bool(np.bincount(self.sequences.ids).max() > 1)
        if self._shared:
            part = self.sequences[chosen]
            first = np.unique(part.ids, return_index=True)[1]
            rows = np.cumsum(np.bincount(np.searchsorted(part.offsets, first, "right") - 1, minlength=len(part)))
        return chosen[: max(1, int((rows <= self.rows).sum()))]


def sampled(sequences: Sequences, most: int | None, generator: np.random.RandomState) -> Sequences:
    """Sequences with at most so many of their tokens, drawn without replacement."""
    if most is None or (sequences.lengths <= most).all():
        return sequences
    kept = [
        begin + (np.arange(size) if size <= most else np.sort(generator.choice(size, most, replace=False)))
        for begin, size in zip(sequences.offsets[:-1], sequences.lengths, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(tokens) for tokens in kept])])
    return Sequences(sequences.table, sequences.ids[np.concatenate(kept)], offsets)


def gather(
    part: Sequences,
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
    dtype = part.table.dtype
    used, inverse = np.unique(part.ids, return_inverse=True)
    size, room = _rounded_up(len(part)), _rounded_up(1.1 * usual)
    while room < len(inverse):
        room *= 2
    if len(used) * part.dim * dtype.itemsize > BYTES // 2:  # twice the vectors may not fit into the memory
        room = min(room, max(_rounded_up(1.1 * usual), _rounded_up(len(inverse))))
    filled = TrainingBatch(
        _aligned(room if len(used) == len(inverse) else _rounded_up(len(used)), part.dim, dtype),
        np.zeros(room, np.int32),
        np.full(room, size, np.int32),
        np.ones(size, dtype),
        np.zeros(size, dtype),
    )
    for places, vectors in in_blocks(part.table, used):
        rows = filled.rows[places]
        np.subtract(vectors, centre, out=rows)
        np.divide(rows, scale, out=rows)
    filled.rows[len(used) :] = 0
    filled.places[: len(inverse)] = inverse
    filled.owners[: len(inverse)] = np.repeat(np.arange(len(part)), part.lengths)
    filled.labels[: len(part)] = labels
    filled.weights[: len(part)] = weights / len(part)
    return filled


def _aligned(rows: int, dim: int, dtype: Any) -> np.ndarray:
    """An empty matrix that begins at a multiple of 64 bytes, which JAX uses without a copy on a CPU."""
    size = rows * dim * dtype.itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return np.asarray(memory[start : start + size].view(dtype).reshape(rows, dim))


def _rounded_up(size: float) -> int:
    """To 64, 96, 128, 192, ...: a power of two, or one and a half."""
    power = FEWEST
    while power < size:
        power *= 2
    return 3 * power // 4 if FEWEST < size <= 3 * power // 4 else power
