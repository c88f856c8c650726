"""The coordinates of training: centred tokens, divided by one number, or by one for each column."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.datasets import Sequences, in_blocks
from attsvm.errors import ProblemError

LARGEST = 1e300
"""Sums of many larger entries overflow."""

DIFFERENT = 10.0
"""Columns whose spreads differ by more than this factor have units of their own."""

FEWEST, SAMPLED = 20, 10_000
"""Fewest entries that a spread is computed from, and most tokens: a factor of ten needs no more."""

COLUMNS = 64
"""Columns whose spreads are computed at once."""


@dataclass(frozen=True)
class Coordinates:
    """Tokens minus their mean, divided by one number for all entries, or by one for each column.

    The softmax does not depend on a shift of the tokens, and the intercept absorbs it in the output. A common scale
    keeps every direction, and so every Att-SVM. Results depend on neither, and one learning rate suits all data. With
    one scale for each column, results do not depend on the units of the columns.
    """

    centre: np.ndarray  # shape (d,)
    # shape (d,), root mean square of the centred entries, of all or of each column; 1 if they are 0
    scale: float | np.ndarray

    @classmethod
    def of(cls, sequences: Sequences, by_column: bool = False) -> "Coordinates":
        """The coordinates for these sequences; each token counts as often as it occurs."""
        table, total = sequences.table, len(sequences.ids)
        shares = np.bincount(sequences.ids, minlength=len(table)) / total
        used = np.flatnonzero(shares)
        shares = shares[used]
        # in blocks, because a float64 copy of the table may not fit into the memory
        centre, least, most = np.zeros(sequences.dim), np.inf, -np.inf
        for places, vectors in in_blocks(table, used):
            centre += shares[places] @ vectors.astype(np.float64, copy=False)
            least, most = np.minimum(least, vectors.min(axis=0)), np.maximum(most, vectors.max(axis=0))
        largest = np.maximum(most - centre, centre - least)
        if not by_column:
            largest = largest.max()
        # a constant column differs from its mean by rounding
        rounding = total * np.finfo(float).eps * np.abs(centre)
        varies = largest > (rounding if by_column else rounding.max())
        # squares of large or small entries overflow or underflow
        largest = np.where(varies, largest, 1.0)
        if (size := float(np.max(np.abs([least, most])))) > LARGEST or np.min(largest) < 1 / LARGEST:
            raise ProblemError(
                f"X: expected numbers of at most {LARGEST:g} that differ by at least {1 / LARGEST:g} where they vary, "
                f"got {size:.3g} and differences of {np.min(largest):.3g}; divide the column"
            )
        mean: Any = 0.0
        for places, vectors in in_blocks(table, used):
            squares = vectors - centre
            squares /= largest
            squares *= squares
            mean += shares[places] @ (squares if by_column else squares.mean(axis=1))
        scale = np.where(varies, largest * np.sqrt(mean), 1.0)
        return cls(centre, scale if by_column else float(scale))

    def apply(self, sequences: Sequences) -> Sequences:
        """Sequences in these coordinates, in float64."""
        table = (sequences.table.astype(np.float64) - self.centre) / self.scale
        return Sequences(table, sequences.ids, sequences.offsets)


def units_differ(sequences: Sequences) -> bool:
    """Whether the spreads of the columns differ by more than the factor :data:`DIFFERENT`.

    A column that mostly has one value, such as a rare feature or the corner of a picture, counts with the others.
    """
    rows = regular_sample(sequences, SAMPLED)
    # in parts, because copies in float64 may not fit into the memory
    parts = [_spreads(rows[:, start : start + COLUMNS]) for start in range(0, sequences.dim, COLUMNS)]
    spreads = np.concatenate(parts)
    return bool(len(spreads) and spreads.max() > DIFFERENT * spreads.min())


def regular_sample(sequences: Sequences, most: int) -> Float[np.ndarray, "N d"]:
    """Copies of at most so many tokens at regular places, read in parts: a file is not mapped as a whole."""
    tokens = sequences.ids[:: -(-len(sequences.ids) // most)]
    return np.concatenate([np.array(vectors) for _, vectors in in_blocks(sequences.table, np.sort(tokens))])


def _spreads(rows: np.ndarray) -> np.ndarray:
    """Root mean squares of the distances from the median, of the columns that vary."""
    rows = rows.astype(np.float64)
    usual = np.median(rows, axis=0)
    away = rows - usual
    others = (away != 0).sum(axis=0)
    largest = np.abs(away).max(axis=0)
    # a constant column differs from its median by rounding
    varies = largest > len(rows) * np.finfo(float).eps * np.abs(usual)
    squares = (away / np.where(varies, largest, 1.0)) ** 2
    is_rare = others < len(rows) / 2
    mean = squares.sum(axis=0) / np.where(is_rare, np.maximum(others, 1), len(rows))
    return np.asarray((largest * np.sqrt(mean))[varies & (others >= max(FEWEST, 0.01 * len(rows)))])
