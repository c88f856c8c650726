"""Sequences of different lengths, stored as token numbers into one shared table of vectors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from attsvm._utils.checks import check_not_masked, in_float64, without_half
from attsvm._utils.shapes import Float, Int
from attsvm.datasets.stored import JoinedTable, LazyTable, StoredTable, in_blocks, is_stored
from attsvm.datasets.tables import Bags, is_table, numbers
from attsvm.errors import ProblemError

JOINED = 1 << 25
"""Bytes of a list of arrays above which they are not copied into one table."""


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """n sequences of different lengths, stored as token numbers and one table of vectors.

    For example, 25,000 reviews of 230 words take 23 MB and a table of vectors; padded to 400 vectors of 100 entries
    they would take 4 GB. A token may occur in any number of sequences. :meth:`from_arrays` is for tokens that occur
    once.

    Parameters
    ----------
    table : float array, shape (V, d)
        The vector of each token number. Float32 and float64 are kept, half precision is converted to float32, and other
        types to float64. An array of zarr, Dask or h5py, also (n, T, d) for V = nT, stays on disk, and its rows are
        read when they are needed. So does a memory-mapped array of NumPy.
    ids : int array, shape (N,)
        The token numbers of all sequences, concatenated; stored as int32 where they fit.
    offsets : int array, shape (n + 1,)
        Sequence i is ``ids[offsets[i]:offsets[i + 1]]``.
    columns : tuple of str, optional
        Names of the entries of a vector, (d,). Classifiers compare them with those of the fit, as for a table.
    words : dict of str to tuple of str, optional
        The words of some columns. Their entries in ``table`` are numbers of these words, NaN where one is missing.
        Classifiers encode the words.
    names : array, shape (n,), optional
        Names of the sequences, those of the bags of a table. Classifiers refuse a pandas Series of labels whose index
        has the same names in another order.

    Raises
    ------
    ProblemError
        If a shape does not fit, a number is not in the table, or offsets do not rise from 0 to N. A sequence without
        tokens is allowed here, and so are NaN, which the ``token_net`` of a classifier may fill.

    See Also
    --------
    attsvm.AttentionClassifier
    attsvm.Problem.from_sequences : A padded problem.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.datasets import Sequences
    >>> table = np.eye(4)
    >>> sequences = Sequences(table, ids=[0, 1, 3, 2, 2], offsets=[0, 2, 5])
    >>> len(sequences)
    2
    >>> sequences.table[sequences.ids[:2]]
    array([[1., 0., 0., 0.],
           [0., 1., 0., 0.]])
    """

    table: Float[np.ndarray, "V d"]
    ids: Int[np.ndarray, " N"]
    offsets: Int[np.ndarray, " n+1"]
    columns: tuple[str, ...] | None = None
    words: dict[str, tuple[str, ...]] | None = None
    names: np.ndarray | None = None

    def __post_init__(self) -> None:
        table, ids = _real(self.table), _integers("ids", self.ids)
        offsets = _integers("offsets", self.offsets).astype(np.int64)  # differences of unsigned integers wrap around
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
            raise ProblemError(f"offsets: expected increasing integers from 0 to {len(ids)}, the number of ids")
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(table)):
            raise ProblemError(f"ids: expected rows 0 to {len(table) - 1} of the table, got {ids.min()} to {ids.max()}")
        if self.columns is not None and len(self.columns) != table.shape[1]:
            raise ProblemError(f"columns: expected {table.shape[1]} names, got {len(self.columns)}")
        if not {*(self.words or ())} <= {*(self.columns or ())}:
            raise ProblemError(f"words: expected some of the columns {self.columns}, got {', '.join(self.words or ())}")
        if self.names is not None and len(self.names) != len(offsets) - 1:
            raise ProblemError(f"names: expected {len(offsets) - 1}, one for each sequence, got {len(self.names)}")
        ids = ids.astype(np.int32 if len(table) <= np.iinfo(np.int32).max else np.int64, copy=False)
        self.__dict__.update(table=_fixed(table), ids=_fixed(ids), offsets=_fixed(offsets))

    @classmethod
    def from_arrays(cls, arrays: Any) -> "Sequences":
        """Sequences that share no tokens.

        Parameters
        ----------
        arrays : iterable of n arrays, shape (T_i, d)

        Returns
        -------
        Sequences
            The table is the stacked tokens. Arrays of more than 32 MiB in all are not copied into it; those of zarr,
            Dask and h5py stay on disk then, and so do memory-mapped ones.

        Raises
        ------
        ProblemError
            If there are none, or one is not a real matrix with as many columns as the others.
        """
        arrays = list(arrays)
        if any(map(is_table, arrays)):  # their columns may be in different orders
            raise ProblemError("X: expected arrays, got tables; pass one table with bag=, or use Sequences.from_table")
        found = [_matrix(i, array) for i, array in enumerate(arrays)]
        if not found:
            raise ProblemError("sequences: expected a list of arrays of shape (T_i, d), got an empty list")
        # an empty list does not determine d
        filled = [array for array in found if len(array) or array.shape[1]]
        d = filled[0].shape[1] if filled else 0
        for i, array in enumerate(found):
            if array.shape[1] not in (d, 0) or (array.shape[1] == 0 and len(array)):
                raise ProblemError(
                    f"sequences: expected shape (T_i, {d}) as in the first, got {array.shape} at index {i}"
                )
        if sum(len(array) * d * array.dtype.itemsize for array in filled) > JOINED:
            table: Any = JoinedTable(filled)
        else:
            # in one order of memory, so that products of the same numbers round alike
            table = np.ascontiguousarray(np.concatenate([array[:] for array in filled])) if filled else np.zeros((0, 0))
        offsets = np.concatenate([[0], np.cumsum([len(array) for array in found])])
        return cls(table, np.arange(len(table)), offsets)

    @classmethod
    def from_padded(cls, tokens: Any, mask: Any = None) -> "Sequences":
        """Sequences of the tokens that a mask selects.

        Parameters
        ----------
        tokens : array, shape (n, T, d)
            Not copied if it holds float32 or float64. Arrays of zarr, Dask and h5py stay on disk.
        mask : bool or integer array, shape (n, T), optional
            False or 0 for padding, which may be anywhere in a row and may hold any numbers.

        Raises
        ------
        ProblemError
            If a shape does not fit.
        """
        check_not_masked("tokens", tokens)
        try:
            tokens = tokens if is_stored(tokens) else np.asarray(without_half(tokens))
        except ValueError:
            raise ProblemError(
                "tokens: expected shape (n, T, d), got sequences of different lengths; use Sequences.from_arrays for "
                "them"
            ) from None
        if len(tokens.shape) != 3:
            raise ProblemError(f"tokens: expected shape (n, T, d), got {tokens.shape}")
        mask = np.ones(tokens.shape[:2], dtype=bool) if mask is None else np.asarray(mask)
        if mask.dtype.kind in "iuf" and np.isin(mask, (0, 1)).all():
            mask = mask.astype(bool)
        if mask.shape != tokens.shape[:2] or mask.dtype != bool:
            raise ProblemError(
                f"mask: expected bool of shape {tokens.shape[:2]}, got {mask.dtype} of shape {mask.shape}"
            )
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
        if not is_stored(tokens):
            # a view: a copy of a memory-mapped array may not fit into the memory
            tokens = tokens.reshape(mask.size, tokens.shape[2])
        return cls(tokens, np.flatnonzero(mask), offsets)

    @classmethod
    def from_table(cls, X: Any, bag: str | int, target: str | int | None = None) -> Any:
        """The bags of a table with one row for each token, in the form that scikit-learn's searches accept.

        ``GridSearchCV`` and ``cross_val_score`` split the rows of a table, but the bags of ``Sequences``.

        Parameters
        ----------
        X : table of pandas, polars or Arrow
        bag : str or int
            The column that names the bag of each row.
        target : str or int, optional
            The column of the labels, which has one entry in each bag.

        Returns
        -------
        Sequences, or Sequences and an array (n,) of labels if ``target`` is given
            In the order of the first rows of the bags, that of pandas' ``X[bag].unique()``. The other columns are the
            entries of the tokens, NaN where one is missing; words are numbered by ``words``.

        Raises
        ------
        ProblemError
            If it is no table, there is no such column, a row has no bag, a bag has several labels or none, or another
            column holds neither numbers nor words.

        Examples
        --------
        >>> import pandas as pd
        >>> from attsvm.datasets import Sequences
        >>> visits = pd.DataFrame({"customer": ["a", "b", "a"], "spent": [5.0, 2.0, 0.0], "left": [1, 0, 1]})
        >>> sequences, labels = Sequences.from_table(visits, bag="customer", target="left")
        >>> len(sequences), sequences[0].tolist(), labels.tolist()
        (2, [[5.0], [0.0]], [1, 0])
        """
        bags = Bags.of(X, bag)
        labels = None if target is None else bags.labels(target)
        sequences = sequences_of(bags, bag, *([] if target is None else [target]))
        return sequences if target is None else (sequences, labels)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Float[np.ndarray, "T_i d"]]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> Any:
        """One sequence as an array (T_i, d), or some of them as :class:`Sequences`.

        ``which``: shape (n,).
        """
        if isinstance(which, int | np.integer):
            if not -len(self) <= which < len(self):
                raise IndexError(f"{which} of {len(self)} sequences")
            which = int(which) % len(self)
            return self.table[self.ids[self.offsets[which] : self.offsets[which + 1]]]
        chosen = np.arange(len(self))[which]
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        names = None if self.names is None else self.names[chosen]
        return Sequences(self.table, self.ids[places], offsets, self.columns, self.words, names)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Refused: sequences of different lengths are no array."""
        raise ProblemError(
            "Sequences cannot be converted to an array; pass them to a sequence classifier, with "
            "token_net=StandardScaler() instead of a step in a pipeline"
        )

    def __repr__(self) -> str:
        return f"Sequences({len(self)} of {len(self.ids)} tokens, table {self.table.shape} {self.table.dtype})"

    @cached_property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Number of tokens T_i of each sequence."""
        return np.diff(self.offsets)

    @property
    def dim(self) -> int:
        """Length d of a token."""
        return int(self.table.shape[1])

    @property
    def shape(self) -> tuple[int]:
        """(n,). Scikit-learn reads the number of samples from it."""
        return (len(self),)


def sequences_of(bags: Bags, *others: Any) -> Sequences:
    """The rows of bags as tokens, without some columns."""
    columns = tuple(name for name in bags.frame.columns if name not in map(str, others))
    table, words = numbers(bags.frame, columns)
    return Sequences(table, bags.rows, bags.offsets, columns, words or None, bags.names)


def map_vectors(
    sequences: Sequences, function: Callable[[Float[np.ndarray, "r d"]], np.ndarray]
) -> tuple[np.ndarray, Int[np.ndarray, " N"]]:
    """Apply a function to the vectors that occur; return its values (V', ...), and which one each token has, (N,).

    ``function``: from some vectors (r, d) to an array (r, ...). It gets each vector once, in blocks, because the table
    may be on disk; what it returns may not be a view of them.
    """
    used = np.zeros(len(sequences.table), dtype=bool)
    used[sequences.ids] = True
    values = [function(vectors) for _, vectors in in_blocks(sequences.table, np.flatnonzero(used))]
    return np.concatenate(values), (np.cumsum(used) - 1)[sequences.ids]


def _real(given: Any) -> np.ndarray:
    """A matrix of float32 or float64."""
    if is_stored(given):
        given = StoredTable(given)
    if isinstance(given, LazyTable):
        return cast(np.ndarray, given)
    check_not_masked("table", given)
    table: np.ndarray = np.asarray(without_half(given))
    if table.dtype.kind not in "biufO":
        raise ProblemError(f"table: expected real numbers, got {table.dtype}")
    if table.dtype not in (np.float32, np.float64):
        try:
            table = in_float64("tokens", table)
        except (TypeError, ValueError):
            raise ProblemError(f"table: expected real numbers, got {table.dtype}") from None
    if table.ndim != 2:
        raise ProblemError(f"table: expected shape (V, d), got {table.shape}")
    return table


def _fixed(array: np.ndarray) -> np.ndarray:
    """A read-only view; stored tables cannot be written to."""
    if isinstance(array, np.ndarray):
        array = array.view()
        array.flags.writeable = False
    return array


def _integers(name: str, given: Any) -> np.ndarray:
    array: np.ndarray = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"{name}: expected a vector of integers, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64) if array.dtype.kind not in "iu" else array


def _matrix(i: int, given: Any) -> np.ndarray:
    check_not_masked(f"sequences[{i}]", given)
    if is_stored(given):
        given = StoredTable(given)
    if isinstance(given, LazyTable):
        return cast(np.ndarray, given)
    array: np.ndarray = np.asarray(without_half(given))
    if array.shape == (0,):
        array = array.reshape(0, 0)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ProblemError(
            f"sequences: expected real arrays of shape (T_i, d), got {array.dtype} of shape {array.shape} at index {i}"
        )
    return array
