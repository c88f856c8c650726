"""The coordinates of training: centred tokens, divided by one number."""

from dataclasses import dataclass

import numpy as np

from attsvm.datasets.sequences import ROWS_AT_ONCE, Sequences


@dataclass(frozen=True)
class Coordinates:
    """Tokens minus their mean, divided by one number for all entries.

    The softmax does not depend on a shift of the tokens, and the intercept absorbs it in the output. A common scale
    keeps every direction, and so every Att-SVM. Results depend on neither, and one learning rate suits all data.

    Attributes
    ----------
    centre : ndarray, shape (d,)
    scale : float
        Root mean square of the centred entries, or 1 if all of them are 0.
    """

    centre: np.ndarray
    scale: float

    @classmethod
    def of(cls, sequences: Sequences) -> "Coordinates":
        """The coordinates for these sequences; each token counts as often as it occurs."""
        table, counts = sequences.table, np.bincount(sequences.ids, minlength=len(sequences.table)) / len(sequences.ids)
        used = np.flatnonzero(counts)
        # in blocks, because a float64 copy of the table may not fit into the memory
        blocks = np.array_split(used, 1 + len(used) // ROWS_AT_ONCE)
        centre = np.sum([counts[block] @ table[block].astype(np.float64, copy=False) for block in blocks], axis=0)
        # squares of large or small entries overflow or underflow
        largest = max(np.abs(table[block] - centre).max() for block in blocks)
        if largest == 0:
            return cls(centre, 1.0)
        mean = sum(counts[block] @ (((table[block] - centre) / largest) ** 2).mean(axis=1) for block in blocks)
        return cls(centre, float(largest * np.sqrt(mean)))

    def apply(self, sequences: Sequences) -> Sequences:
        """Sequences in these coordinates, in float64."""
        table = (sequences.table.astype(np.float64) - self.centre) / self.scale
        return Sequences(table, sequences.ids, sequences.offsets)
