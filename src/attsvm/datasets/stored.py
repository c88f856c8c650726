"""Tables on disk whose rows are read when they are needed."""

from typing import Any

import numpy as np

from attsvm.errors import ProblemError


def is_stored(given: Any) -> bool:
    """Whether it is an array of zarr or Dask, which are divided into chunks."""
    return hasattr(given, "chunks") and not isinstance(given, np.ndarray)


class StoredTable:
    """The vectors of an array (..., d) of zarr or Dask as the rows of a matrix; only requested rows are read.

    Rows are NumPy arrays. Float32 and float64 are kept; other types are converted to float64.

    ``array``: shape (V, d) or (n, T, d).
    """

    ndim = 2

    def __init__(self, array: Any) -> None:
        kind = np.dtype(array.dtype)
        if kind.kind not in "biuf" or len(array.shape) not in (2, 3):
            raise ProblemError(
                f"table: expected real numbers of shape (V, d) or (n, T, d), got {kind} of shape {array.shape}"
            )
        self.array = array
        self.shape = int(np.prod(array.shape[:-1])), int(array.shape[-1])
        self.dtype = kind if kind in (np.float32, np.float64) else np.dtype(np.float64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> np.ndarray:
        """Rows (r, d) for a slice or an array of integers (r,), each read once."""
        rows = np.arange(len(self))[which] if isinstance(which, slice) else np.asarray(which)
        distinct, inverse = np.unique(rows, return_inverse=True)
        if len(self.array.shape) == 3:
            entries, places = np.divmod(distinct, self.array.shape[1])
            used, of_used = np.unique(entries, return_inverse=True)
            block = self._read(used)[of_used, places]
        else:
            block = self._read(distinct)
        return np.asarray(block[inverse], dtype=self.dtype)

    def _read(self, entries: np.ndarray) -> np.ndarray:
        if not len(entries):
            return np.empty((0, *self.array.shape[1:]), self.dtype)
        first, last = int(entries[0]), int(entries[-1])
        # a slice is read faster than a list of numbers
        return np.asarray(self.array[first : last + 1] if last - first + 1 == len(entries) else self.array[entries])
