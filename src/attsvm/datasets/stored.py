"""Tables of vectors that are read in parts: arrays on disk, and several matrices as one."""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attsvm._utils.checks import in_float64, without_half
from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError

ROWS_AT_ONCE = 65_536
"""Most rows of a table that are read at once, where a copy of the whole table may not fit into the memory."""

NUMBERS_AT_ONCE = 1 << 20
"""Most numbers of these rows: 8 MiB in float64."""

DENSE = 8
"""Rows that are at least this part of those between the first and the last are read with them, as one slice."""


def is_stored(given: Any) -> bool:
    """Whether it is an array of zarr, Dask or h5py, whose rows are read when they are needed."""
    return hasattr(given, "chunks") and not isinstance(given, np.ndarray)


class LazyTable(ABC):
    """A matrix (V, d) whose rows are read when they are needed, as NumPy arrays of its ``dtype``."""

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype[Any]  # float32 or float64

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, which: Any) -> np.ndarray:
        """Rows (r, d) for a slice or an array of integers (r,)."""


class StoredTable(LazyTable):
    """The vectors of an array (..., d) of zarr, Dask or h5py as the rows of a matrix; only requested rows are read.

    Float32 and float64 are kept; float16 is converted to float32, other types to float64.

    ``array``: shape (V, d) or (n, T, d).
    """

    def __init__(self, array: Any) -> None:
        kind = np.dtype(array.dtype)
        if kind.kind not in "biuf" or len(array.shape) not in (2, 3):
            raise ProblemError(
                f"table: expected real numbers of shape (V, d) or (n, T, d), got {kind} of shape {array.shape}"
            )
        self.array = array
        self.shape = int(np.prod(array.shape[:-1])), int(array.shape[-1])
        self.dtype = _float_type(kind)
        self.is_bag = len(array.shape) == 3 and array.shape[0] == 1

    def __getitem__(self, which: Any) -> np.ndarray:
        """Rows (r, d) for a slice or an array of integers (r,), each read once."""
        rows = np.arange(len(self))[which] if isinstance(which, slice) else np.asarray(which)
        distinct, inverse = np.unique(rows, return_inverse=True)
        if len(self.array.shape) == 2 or self.is_bag:
            block = self._read(distinct)
        else:
            entries, places = np.divmod(distinct, self.array.shape[1])
            used, of_used = np.unique(entries, return_inverse=True)
            block = self._read(used)[of_used, places]
        found: np.ndarray = block if np.array_equal(distinct, rows) else block[inverse]
        return without_half(found) if self.dtype == np.float32 else in_float64("tokens", found)

    def _read(self, entries: np.ndarray) -> np.ndarray:
        """Entries, in increasing order, of the first axis that is longer than 1."""
        shape = self.array.shape[1 + self.is_bag :]
        # a slice is read faster than a list of numbers
        if len(entries) and entries[-1] - entries[0] >= DENSE * len(entries) and not self.is_bag:
            return np.asarray(self.array[entries])
        parts = [np.empty((0, *shape), self.dtype)] if not len(entries) else []
        most = max(1, NUMBERS_AT_ONCE // max(1, int(np.prod(shape))))
        for part in np.split(entries, np.flatnonzero(np.diff(entries // most)) + 1) if len(entries) else ():
            within = slice(int(part[0]), int(part[-1]) + 1)
            span = np.asarray(self.array[0, within] if self.is_bag else self.array[within])
            parts.append(span if len(span) == len(part) else span[part - part[0]])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class JoinedTable(LazyTable):
    """The rows of several matrices, one after the other, which are not copied into one.

    ``matrices``: at least one, of shape (r, d); arrays, or lazy tables.
    """

    def __init__(self, matrices: Sequence[Any]) -> None:
        self.matrices = tuple(matrices)
        self.starts = np.concatenate([[0], np.cumsum([len(matrix) for matrix in self.matrices])])
        self.shape = int(self.starts[-1]), int(self.matrices[0].shape[1])
        self.dtype = np.result_type(*(_float_type(matrix.dtype) for matrix in self.matrices))

    def __getitem__(self, which: Any) -> np.ndarray:
        """Rows (r, d) for a slice or an array of integers (r,); a slice of one array is a view."""
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            number = int(np.searchsorted(self.starts, start, "right")) - 1
            if step == 1 and start < stop <= self.starts[number + 1]:
                return self._part(number, slice(start - self.starts[number], stop - self.starts[number]))
            which = np.arange(start, stop, step)
        rows = np.asarray(which)
        owners = np.searchsorted(self.starts, rows, "right") - 1
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        order = np.argsort(owners, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1) if len(rows) else ():
            number = int(owners[places[0]])
            within = rows[places] - self.starts[number]
            span = as_slice(within)
            # places are one after the other where rows are in order
            found[as_slice(places) or places] = self._part(number, span or within)
            release(self.matrices[number])
        return found

    def _part(self, number: int, which: Any) -> np.ndarray:
        part = self.matrices[number][which]
        if part.dtype == self.dtype:
            return np.asarray(part)
        return np.asarray(without_half(part) if part.dtype == np.float16 else in_float64("tokens", part), self.dtype)


def in_blocks(
    table: np.ndarray | LazyTable, rows: Int[np.ndarray, " r"]
) -> Iterator[tuple[slice, Float[np.ndarray, "b d"]]]:
    """Some rows of a table in blocks that fit into the memory: the places of a block among them, and its vectors.

    ``rows``: in increasing order. Vectors may be a view; they are valid until the next block.
    """
    most, start = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // max(1, table.shape[1]))), 0
    while start < len(rows):
        block = rows[start : start + most]
        # rows that are far apart: the pages of a file between them are read, too
        block = block[: np.searchsorted(block, block[0] + DENSE * most)]
        vectors = table[as_slice(block) or block]
        yield slice(start, start + len(block)), vectors
        start += len(block)
        release(vectors)
        release(table)


def as_slice(numbers: Int[np.ndarray, " r"]) -> slice | None:
    """The slice of these numbers if they are consecutive and at least one. A slice of an array makes no copy."""
    if not len(numbers) or numbers[-1] - numbers[0] != len(numbers) - 1 or (np.diff(numbers) != 1).any():
        return None
    return slice(int(numbers[0]), int(numbers[-1]) + 1)


def release(table: Any) -> None:
    """Give back the memory of a memory-mapped file's pages; they are read again when they are needed.

    Without it, a pass over the file counts the whole file as memory of the process. It does nothing to other tables,
    and to maps that can be written to.
    """
    while isinstance(table, np.ndarray):
        if isinstance(table, np.memmap) and table.mode == "r" and isinstance(table.base, mmap.mmap):
            if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
                table.base.madvise(mmap.MADV_DONTNEED)
            return
        table = table.base


def _float_type(kind: Any) -> np.dtype[Any]:
    """Float32 and half precision are used in float32, other types in float64."""
    return np.dtype(np.float32 if kind in (np.float16, np.float32) else np.float64)
