"""Read sequences in any of their forms, and return results in the same form."""

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_pandas_dataframe, is_pandas_series, is_polars_series
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from attsvm._utils.callers import warn_caller
from attsvm._utils.checks import check_not_masked, in_float64, without_half
from attsvm.datasets import Bags, Sequences, frame_of, is_stored, is_table, map_vectors, sequences_of, shown
from attsvm.errors import ProblemError
from attsvm.estimator.token_net import MOST_WORDS


@dataclass(frozen=True)
class GivenSequences:
    """Sequences, and how results are returned in the form in which they were given."""

    sequences: Sequences
    shape: tuple[int, ...] | None = None  # (n, T) of an array (n, T, d); (n,) of rows, which are sequences of one token
    in_list: bool = False
    table: Any = None  # with one row for each token, whose column ``bag`` names its bag
    bags: Bags | None = None
    bag: str | int | None = None

    @property
    def is_rows(self) -> bool:
        """Whether each row of a matrix is a sequence of one token."""
        return self.shape is not None and len(self.shape) == 1

    @property
    def names(self) -> np.ndarray | None:
        """The name of each sequence, (n,); None for its position."""
        return None if self.bags is None else self.bags.names

    @property
    def rows(self) -> np.ndarray | None:
        """The name of each token in its sequence, (N,); None for its position."""
        if self.bags is None:
            return None
        return np.asarray(self.table.index.to_numpy()[self.bags.rows]) if self._has_index else self.bags.rows

    @property
    def _has_index(self) -> bool:
        return bool(is_pandas_dataframe(self.table))

    def restore(self, values: np.ndarray, names: Any = None) -> Any:
        """Numbers (N,) or (N, C) of the tokens in the form of the input; names of the columns, which tables use."""
        if self.in_list:
            return np.split(values, self.sequences.offsets[1:-1])
        if self.shape is not None:
            return values.reshape(len(self.sequences), -1, *values.shape[1:])
        if self.bags is None:
            return values
        whole = np.empty_like(values)
        whole[self.bags.rows] = values
        return _with_index(whole, self.table.index, names) if self._has_index else whole

    def labelled(self, values: np.ndarray, names: Any = None) -> Any:
        """Results (n,) or (n, C) of the sequences; names of the columns.

        For a table a table: with pandas indexed by bag, otherwise with the bags in the first column.
        """
        if self.table is None:
            return values
        if self._has_index:
            import pandas

            return _with_index(values, pandas.Index(self.names, name=self.bag), names)
        columns = {"value": values} if names is None else dict(zip(map(str, names), values.T, strict=True))
        backend = nw.get_native_namespace(self.table)
        return nw.from_dict({str(self.bag): self.names, **columns}, backend=backend).to_native()

    def align(self, argument: str, values: Any) -> Any:
        """Values for each sequence in the order of the sequences.

        Raises ProblemError if their order is not certain.
        """
        if self.bags is not None:
            return self.bags.align(argument, values, str(self.bag))
        names = self.sequences.names
        if names is not None and is_pandas_series(values):
            index = values.index.tolist()
            # scikit-learn's scorers go by position, so they are not put in order here
            if index != names.tolist() and sorted(map(str, index)) == sorted(map(str, names)):
                raise ProblemError(
                    f"{argument}: expected the bags in the order of X, got their names in another order; write "
                    f"{argument}.loc[X.names], or {argument}.to_numpy() if the names are only row numbers"
                )
        return values


def read(estimator: Any, X: Any, *, reset: bool, bag: str | int | None = None) -> GivenSequences:
    """Read sequences, and check that their tokens have as many entries, or the same columns, as in the fit.

    ``estimator``: with ``reset`` its ``n_features_in_`` is set, otherwise the sequences are compared with it. ``bag``:
    the column of a table that names the bag of each row.

    Raises ProblemError if a sequence is not a matrix, has no token, or its tokens have another number of entries.
    """
    given = _form(X, bag)
    if given is None:
        return _rows(estimator, X, reset)
    sequences = given.sequences
    if not len(sequences):
        raise ProblemError("X: expected at least one sequence, got none")
    if sequences.columns is not None:
        names = _feature_names(estimator, list(sequences.columns), reset)
        if names != list(sequences.columns):
            places = [sequences.columns.index(name) for name in names]
            table = sequences.table[:, places]
            sequences = replace(sequences, table=table, columns=tuple(names))
        given = replace(given, sequences=_same_kinds(estimator, sequences, reset))
    if not sequences.dim:
        raise ProblemError("X: expected tokens with at least one entry, got tokens with none")
    if not sequences.lengths.all():
        empty = int(np.argmin(sequences.lengths))
        raise ProblemError(f"X: expected at least one token in each sequence, got none in sequence {empty}")
    if sequences.columns is not None:
        return given
    if reset:
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


def _form(X: Any, bag: str | int | None) -> GivenSequences | None:
    """The sequences in their form; None for rows of numbers, which scikit-learn reads."""
    if bag is not None:
        bags = Bags.of(X, bag)
        return GivenSequences(sequences_of(bags, bag), table=X, bags=bags, bag=bag)
    if isinstance(X, Sequences):
        return GivenSequences(X)
    check_not_masked("X", X, "numbers (Sequences.from_padded(array, mask) leaves out tokens)")
    if isinstance(X, list | tuple) and any(map(issparse, X)):
        raise ProblemError("X: expected dense arrays, got sparse ones; use array.toarray()")
    if isinstance(X, dict) and not issparse(X) and "X" not in X:
        raise ProblemError(
            "X: expected a list of arrays, got a dict; write list(X.values()), with the labels in the same order"
        )
    series = is_pandas_series(X) or is_polars_series(X)
    if series or is_stored(X) or _has_keys(X) or hasattr(X, "groups"):
        write = "Sequences.from_arrays, Sequences.from_padded or Sequences.from_table"
        raise ProblemError(
            f"X: expected arrays, a list of arrays, Sequences or a table with bag=, got {type(X).__name__}; write"
            f" {'its to_list(), with the labels in the same order' if series else write}"
        )
    if isinstance(X, list | tuple) or (getattr(X, "ndim", 0) == 1 and getattr(X, "dtype", None) == np.dtype(object)):
        if not len(X):
            raise ProblemError("X: expected at least one sequence, got none")
        try:
            dimensions = [np.ndim(entry) for entry in X]
        except ValueError:
            raise ProblemError(
                "X: expected a matrix (T_i, d) for each sequence, got tokens of different lengths"
            ) from None
        if dimensions == [3] * len(X) and all(len(entry) == 1 for entry in X):
            X = [entry if is_stored(entry) else entry[0] for entry in X]  # batches of one bag, as loaders make them
        elif max(dimensions) > 2:
            shape = np.shape(X[int(np.argmax(dimensions))])
            raise ProblemError(f"X: expected a matrix (T_i, d) for each sequence, got an array of shape {shape}")
        return GivenSequences(Sequences.from_arrays(X), in_list=True) if max(dimensions) > 1 else None
    if getattr(X, "ndim", None) == 3:
        return GivenSequences(Sequences.from_padded(X), np.shape(X)[:2])
    if getattr(X, "ndim", 0) > 3:  # scikit-learn would ask for two axes
        raise ProblemError(f"X: expected an array (n, T, d) or (n, d), or a list of them (T_i, d), got {np.shape(X)}")
    return None


def _has_keys(X: Any) -> bool:
    """Whether it is a dict or a TensorDict with the tokens under "X", or a list of them."""
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    return callable(getattr(first, "keys", None)) and not is_table(first) and "X" in list(first.keys())


def _feature_names(estimator: Any, columns: list[str], reset: bool) -> list[str]:
    """The columns in the order of the fit; with ``reset`` they are kept as ``feature_names_in_``.

    Raises ProblemError if there are none, or they are not those of the fit.
    """
    if reset:
        if not columns:
            raise ProblemError("X: expected at least one column of numbers, got none")
        estimator.feature_names_in_ = np.array(columns, dtype=object)
        estimator.n_features_in_ = len(columns)
        return columns
    if not hasattr(estimator, "feature_names_in_"):
        raise ProblemError("X: expected arrays, as in the fit, whose columns had no names, got a table")
    expected = list(estimator.feature_names_in_)
    missing, unknown = sorted(set(expected) - set(columns)), sorted(set(columns) - set(expected))
    if missing or unknown:
        found = [f"{word} {shown(names)}" for word, names in (("missing", missing), ("unknown", unknown)) if names]
        leave = "; leave them out, as attsvm predict --drop does" * (not missing)
        raise ProblemError(f"X: expected the columns of the fit, got a table with {' and '.join(found)}{leave}")
    return expected


def _same_kinds(estimator: Any, sequences: Sequences, reset: bool) -> Sequences:
    """Check that the columns that have words are those of the fit; a column without entries may be either.

    Warns of words that the fit had not in a column of categories, whatever maps them.
    """
    words = sequences.words or {}
    if reset:
        estimator._word_columns = tuple(words)
        found = {name: tuple(sorted(_occurring(sequences, name))) for name in words}
        # what rarely occurs twice is text for the token_net, not a category
        most = MOST_WORDS if estimator.token_net is None else min(MOST_WORDS, len(sequences.ids) / 2)
        estimator._words = {name: known for name, known in found.items() if len(known) <= most}
    fitted = getattr(estimator, "_word_columns", ())
    for name in {*words} ^ {*fitted}:
        if not np.isnan(sequences.table[:, (sequences.columns or ()).index(name)]).all():
            expected, got = ("numbers", "words") if name in words else ("words", "numbers")
            raise ProblemError(f"X: expected {expected} in column {name!r}, as in the fit, got {got}")
    sequences = replace(sequences, words={name: words.get(name, ()) for name in fitted} or None)
    for name, known in getattr(estimator, "_words", {}).items():
        other = _occurring(sequences, name).difference(known)
        if other:
            warn_caller(f"X: column {name!r} has {shown(sorted(other))}, unlike in the fit", RuntimeWarning)
    return sequences


def _occurring(sequences: Sequences, name: str) -> set[str]:
    """The words of a column that tokens have."""
    words, place = (sequences.words or {})[name], (sequences.columns or ()).index(name)
    numbers = np.unique(sequences.table[sequences.ids, place]).tolist()
    return {"a missing entry" if np.isnan(number) else words[int(number)] for number in numbers}


def _rows(estimator: Any, X: Any, reset: bool) -> GivenSequences:
    """Rows of d numbers, read by scikit-learn.

    Raises ProblemError if they hold something else; other errors are for scikit-learn to describe.
    """
    X = without_half(X)
    try:
        if isinstance(X, np.ndarray) and X.dtype.kind in "iu":
            in_float64("X", X)
        rows = validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
    except ValueError:
        for name, kind in frame_of(X).schema.items() if is_table(X) else ():
            if kind in (nw.String, nw.Categorical, nw.Enum):
                write = f"bag={name!r}" if reset else f"Sequences.from_table(X, bag={name!r})"
                raise ProblemError(
                    f"X: expected numbers in column {name!r}, got {kind}; if it is the bag of each row, write {write}"
                ) from None
        try:
            entries = np.asarray(X)
            if entries.dtype.kind in "OSU":
                entries.astype(np.float64)
        except ValueError as error:
            raise ProblemError(
                "X: expected a matrix of numbers (T_i, d) for each sequence, or a row of numbers if each sequence "
                f"has one token, got other entries ({error})"
            ) from None
        raise
    return GivenSequences(Sequences(rows, np.arange(len(rows)), np.arange(len(rows) + 1)), rows.shape[:1])


def check_finite(argument: str, given: GivenSequences, columns: Any = None) -> None:
    """Check that the numbers of the tokens that occur are finite; words may be missing.

    Raises ProblemError if one is not. It names the row and the column, and how missing values are filled.
    """
    sequences = given.sequences
    words = list(sequences.words or ())
    is_word = np.isin(sequences.columns or (), words) if words else np.zeros(sequences.dim, bool)
    of_vectors, ids = map_vectors(sequences, lambda vectors: (np.isfinite(vectors) | is_word).all(axis=1))
    finite = of_vectors[ids]
    if finite.all():
        return
    token = int(np.argmin(finite))
    entries = sequences.table[sequences.ids[token : token + 1]][0]
    entry = int(np.argmin(np.isfinite(entries) | is_word))
    number = int(np.searchsorted(sequences.offsets, token, "right")) - 1
    # a table has names of rows; else tokens are counted from 0 in their sequence
    at = f"token {token - sequences.offsets[number]}" if given.rows is None else f"row {given.rows[token]}"
    names = sequences.names if given.names is None else given.names
    name = number if names is None else names[number]
    found = "NaN" if np.isnan(entries[entry]) else "inf"
    place = f"{at} of sequence {name}, column {entry if columns is None else columns[entry]}"
    padding = "leave out padding, as Sequences.from_padded does, and " if columns is None else ""
    fill = "make_pipeline(SimpleImputer(), StandardScaler())"
    if words:
        encoder = f"(OneHotEncoder(handle_unknown='ignore'), {words})"
        fill = f"make_column_transformer({encoder}, remainder=SimpleImputer())"
    raise ProblemError(
        f"{argument}: expected finite numbers, got {found} in {place}; {padding}fill missing values with "
        f"token_net={fill}"
    )


def _with_index(values: np.ndarray, index: Any, names: Any = None) -> Any:
    """Values (n,) or (n, C) as a pandas Series with this name, or a DataFrame with these columns."""
    import pandas

    if values.ndim == 1:
        return pandas.Series(values, index=index, name=names)
    return pandas.DataFrame(values.reshape(len(values), -1), index=index, columns=names)
