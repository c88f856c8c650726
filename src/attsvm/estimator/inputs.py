"""Read sequences in any of their forms, and return numbers per token in the same form."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_pandas_dataframe, is_pandas_series, is_polars_series
from sklearn.utils.validation import validate_data

from attsvm.datasets.sequences import ROWS_AT_ONCE, Sequences
from attsvm.datasets.stored import is_stored
from attsvm.datasets.tables import is_table
from attsvm.errors import ProblemError
from attsvm.estimator.tables import align, by_bag, check_columns, feature_names, matrices, read_table, with_index


def _same(values: Any, names: Any = None) -> Any:
    return values


def _one_each(argument: str, values: Any) -> Any:
    return values


@dataclass(frozen=True)
class Given:
    """Sequences, and how to return results in the form of the input."""

    sequences: Sequences  # n sequences of at least one token each
    # maps numbers (N,) or (N, C), one row per token, to a list of (T_i,) arrays; (n, T) for padded input; (N,) for
    # ``Sequences``; the order of the rows for a table. Names of the columns follow, which only tables use.
    restore: Callable[..., Any]
    # maps the position of a token in its sequence, (n,) or (n, ...), to its position in a padded row
    positions: Callable[[np.ndarray], np.ndarray] = np.array
    # maps results (n,) or (n, C) of the sequences, and names of the columns, to a Series or DataFrame if the input has
    # an index, or to a table if it is one
    labelled: Callable[..., Any] = _same
    # maps the name of an argument and values for each sequence to the order of the sequences
    align: Callable[[str, Any], Any] = _one_each
    labels: Any = None  # labels that the input holds
    # names, rows: the name of each sequence, and of each token in it, (N,); None for their positions
    names: np.ndarray | None = None
    rows: np.ndarray | None = None


def read(estimator: Any, X: Any, mask: Any = None, *, reset: bool, bag: str | None = None) -> Given:
    """Read sequences, and check that their tokens have as many entries as in the fit.

    ``estimator``: with ``reset`` its ``n_features_in_`` is set, otherwise the sequences are compared with it. ``X``: a
    dict holds ``X``, and may hold ``mask`` and ``Y``, as torchmil's do; so may each entry of a list. ``mask``: shape
    (n, T), for a padded array (n, T, d): False or 0 for padding. ``bag``: the column of a table that names the bag of
    each row.

    Raises ProblemError if a sequence is not a matrix, has no token, or its tokens have another number of entries.
    """
    if type(X).__name__ in ("DataFrameGroupBy", "GroupBy"):
        raise ProblemError("X: expected a table with bag=, got a GroupBy, whose order need not be that of the labels")
    if is_polars_series(X):
        # it has no index
        X = X.to_list()
    if _is_dictionary(X):
        given = read(estimator, X["X"], X["mask"] if mask is None and "mask" in list(X.keys()) else mask, reset=reset)
        return replace(given, labels=_stored(X, given.labels))
    if isinstance(X, list | tuple) and len(X) and all(map(_is_dictionary, X)):
        if any("mask" in list(entry.keys()) for entry in X):
            raise ProblemError("X: expected dictionaries of unpadded bags in a list, got some with a mask")
        given = read(estimator, [entry["X"] for entry in X], mask, reset=reset)
        found = [_stored(entry, None) for entry in X]
        return replace(given, labels=None if any(label is None for label in found) else np.ravel(found))
    if bag is not None:
        _no_mask(mask, "a table")
        table = read_table(estimator, X, bag, reset=reset)
        return Given(
            table.sequences,
            table.restore,
            labelled=_labelled(X, table.names, bag),
            align=lambda argument, values: by_bag(argument, values, table.names, bag),
            names=table.names,
            rows=table.rows,
        )
    if isinstance(X, Sequences):
        _no_mask(mask, "Sequences")
        given = Given(X, _same)
    elif isinstance(X, list | tuple) or (getattr(X, "ndim", 0) == 1 and getattr(X, "dtype", None) == np.dtype(object)):
        if not len(X):
            raise ProblemError("X: expected at least one sequence, got none")
        if not _holds_matrices(X):
            return _rows(estimator, X, mask, reset)
        _no_mask(mask, "a list of sequences")
        if all(map(is_table, X)):
            arrays: Any = matrices(estimator, X, reset=reset)
            given = _ragged(X, arrays)
            if given.sequences.lengths.all():
                return given
        given = _ragged(X, X)
    elif getattr(X, "ndim", None) == 3:
        given = _padded(X if is_stored(X) else np.asarray(X), mask)
    else:
        return _rows(estimator, X, mask, reset)
    sequences = given.sequences
    if not len(sequences):
        raise ProblemError("X: expected at least one sequence, got none")
    if not sequences.dim:
        raise ProblemError("X: expected tokens with at least one entry, got tokens with none")
    if not sequences.lengths.all():
        empty = int(np.argmin(sequences.lengths))
        raise ProblemError(f"X: expected at least one token in each sequence, got none in sequence {empty}")
    if sequences.columns is not None:
        names = feature_names(estimator, list(sequences.columns), reset=reset)
        if names != list(sequences.columns):
            places = [sequences.columns.index(name) for name in names]
            given = replace(given, sequences=Sequences(sequences.table[:, places], sequences.ids, sequences.offsets))
    elif reset:
        estimator.n_features_in_ = sequences.dim
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif sequences.dim != estimator.n_features_in_:
        # the wording of scikit-learn
        raise ProblemError(
            f"X has {sequences.dim} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return given


def check_finite(argument: str, given: Given, columns: Any = None) -> None:
    """Check that the tokens that occur are finite.

    Raises ProblemError if one is not. It names the row and the column, and how missing values are filled.
    """
    sequences = given.sequences
    table, ids = sequences.table, sequences.ids
    wrong = np.zeros(len(table), dtype=bool)
    wrong[ids] = True
    rows = np.flatnonzero(wrong)
    # in blocks, because the table may be on disk
    for start in range(0, len(rows), ROWS_AT_ONCE):
        block = rows[start : start + ROWS_AT_ONCE]
        span = slice(block[0], block[-1] + 1)
        # a slice makes no copy
        wrong[block] = ~np.isfinite(table[span if span.stop - span.start == len(block) else block]).all(axis=1)
    of_tokens = wrong[ids]
    if not of_tokens.any():
        return
    token = int(np.argmax(of_tokens))
    entries = table[ids[token : token + 1]][0]
    entry = int(np.argmin(np.isfinite(entries)))
    number = int(np.searchsorted(sequences.offsets, token, "right")) - 1
    row = token - sequences.offsets[number] if given.rows is None else given.rows[token]
    name = number if given.names is None else given.names[number]
    found = "NaN" if np.isnan(entries[entry]) else "inf"
    place = f"row {row} of sequence {name}, column {entry if columns is None else columns[entry]}"
    padding = "leave out padding or mark it in mask=, and " if columns is None else ""
    raise ProblemError(
        f"{argument}: expected finite numbers, got {found} in {place}; {padding}fill missing values with "
        "token_net=make_pipeline(SimpleImputer(), StandardScaler())"
    )


def _ragged(X: Any, arrays: Any) -> Given:
    """A list of matrices, or a Series, whose index names them."""
    sequences = Sequences.from_arrays(arrays)
    index = X.index if is_pandas_series(X) else None

    def restore(flat: np.ndarray, names: Any = None) -> Any:
        return _series(np.split(flat, sequences.offsets[1:-1]), index)

    if index is None:
        return Given(sequences, restore)

    def align_index(argument: str, values: Any) -> Any:
        if not is_pandas_series(values) or values.index.equals(index):
            return values
        return align(argument, values.index.to_numpy(), values.to_numpy(), index.to_numpy())

    return Given(
        sequences,
        restore,
        labelled=lambda values, names=None: with_index(values, index, names),
        align=align_index,
        names=index.to_numpy(),
    )


def _series(arrays: list[np.ndarray], index: Any) -> Any:
    if index is None:
        return arrays
    import pandas

    return pandas.Series(arrays, index=index)


def _labelled(X: Any, bags: np.ndarray, bag: str) -> Callable[..., Any]:
    """For pandas a Series or DataFrame indexed by bag; for other tables a table with the bags in its first column."""
    if is_pandas_dataframe(X):
        import pandas

        return lambda values, names=None: with_index(values, pandas.Index(bags, name=bag), names)

    def as_table(values: np.ndarray, names: Any = None) -> Any:
        columns = {"value": values} if names is None else dict(zip(map(str, names), values.T, strict=True))
        return nw.from_dict({bag: bags, **columns}, backend=nw.get_native_namespace(X)).to_native()

    return as_table


def _is_dictionary(X: Any) -> bool:
    """Whether it is a dict or TensorDict with the key X."""
    return hasattr(X, "keys") and not is_table(X) and not is_pandas_series(X) and "X" in list(X.keys())


def _stored(dictionary: Any, otherwise: Any) -> Any:
    if "Y" not in list(dictionary.keys()):
        return otherwise
    labels = np.asarray(dictionary["Y"])
    return labels.reshape(labels.shape[:1]) if labels.ndim > 1 and labels.size == len(labels) else labels


def _holds_matrices(X: Any) -> bool:
    try:
        return any(np.ndim(entry) == 2 for entry in X)
    except ValueError:
        raise ProblemError("X: expected a matrix (T_i, d) for each sequence, got tokens of different lengths") from None


def _rows(estimator: Any, X: Any, mask: Any, reset: bool) -> Given:
    """Rows of d numbers as sequences of one token."""
    _no_mask(mask, "sequences of one token")
    try:
        rows = validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
    except ValueError:
        if is_table(X):
            check_columns(X)
        _check_numbers(X)
        raise
    sequences = Sequences(rows, np.arange(len(rows)), np.arange(len(rows) + 1))
    return Given(sequences, lambda flat, names=None: flat[:, None])


def _check_numbers(X: Any) -> None:
    """Check that rows hold numbers. Other errors are for scikit-learn to describe."""
    try:
        entries = np.asarray(X)
        if entries.dtype.kind in "OSU":
            entries.astype(np.float64)
    except ValueError as error:
        raise ProblemError(
            f"X: expected a matrix of numbers (T_i, d) for each sequence, or a row of numbers for each sequence of one "
            f"token, got other entries ({error})"
        ) from None


def _padded(tokens: Any, mask: Any) -> Given:
    mask = np.ones(tokens.shape[:2], dtype=bool) if mask is None else _boolean(np.asarray(mask))
    try:
        sequences = Sequences.from_padded(tokens, mask)
    except ProblemError as error:
        raise ProblemError(f"X: {str(error).removeprefix('tokens: ')}") from None

    def restore(flat: np.ndarray, names: Any = None) -> np.ndarray:
        whole = np.zeros((*mask.shape, *flat.shape[1:]), dtype=flat.dtype)
        whole[mask] = flat
        return whole

    # padding can be anywhere in a row
    places = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)[mask]
    starts = sequences.offsets[:-1]
    return Given(sequences, restore, lambda at: places[starts.reshape(-1, *[1] * (at.ndim - 1)) + at], rows=places)


def _boolean(mask: np.ndarray) -> np.ndarray:
    """A mask of zeros and ones as booleans; others are left as they are, and refused later."""
    return mask.astype(bool) if mask.dtype.kind in "iuf" and np.isin(mask, (0, 1)).all() else mask


def _no_mask(mask: Any, found: str) -> None:
    if mask is not None:
        raise ProblemError(f"mask: expected with a padded array of shape (n, T, d) only, got {found}")
