"""Tables with one row for each token and a column that names its bag, for pandas, polars and Arrow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_pandas_dataframe, is_pandas_series

from attsvm.datasets.sequences import Sequences
from attsvm.datasets.tables import Bags, is_table, numbers, shown
from attsvm.errors import ProblemError


@dataclass(frozen=True)
class Table:
    """The bags of a table, in the order of their first rows."""

    sequences: Sequences
    names: np.ndarray  # shape (n,), the entry of the bag column of each bag
    # shape (N,), the index of each token's row, in the order of the sequences; its position where the library has no
    # index
    rows: np.ndarray
    # maps numbers of the tokens (N,) or (N, C), and names of the columns, to the order of the rows; with pandas they
    # have the index of the rows
    restore: Callable[..., Any]


def read_table(estimator: Any, X: Any, bag: str, *, reset: bool) -> Table:
    """Read a table, with its columns in the order of the fit.

    Raises ProblemError if there is no such column or no row, columns are missing or unknown, an entry is missing or no
    number, or the bag column mixes types.
    """
    bags = Bags.of(X, bag)
    names = feature_names(estimator, [name for name in bags.frame.columns if name != bag], reset=reset)
    index = X.index if is_pandas_dataframe(X) else None

    def restore(flat: np.ndarray, names: Any = None) -> Any:
        whole = np.empty_like(flat)
        whole[bags.rows] = flat
        return whole if index is None else with_index(whole, index, names)

    rows = bags.rows if index is None else index.to_numpy()[bags.rows]
    return Table(Sequences(numbers(bags.frame, names), bags.rows, bags.offsets), bags.names, rows, restore)


def feature_names(estimator: Any, columns: list[str], *, reset: bool) -> list[str]:
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
        raise ProblemError("X: expected the form of the fit, whose columns had no names, got a table")
    expected = list(estimator.feature_names_in_)
    missing, unknown = sorted(set(expected) - set(columns)), sorted(set(columns) - set(expected))
    if missing or unknown:
        found = [f"{word} {shown(names)}" for word, names in (("missing", missing), ("unknown", unknown)) if names]
        raise ProblemError(f"X: expected the columns of the fit, got a table with {' and '.join(found)}")
    return expected


def check_columns(X: Any) -> None:
    """Check that no column of a table without ``bag`` holds words, which may name the bags.

    Raises ProblemError if one does.
    """
    for name, kind in nw.from_native(X, eager_only=True).schema.items():
        if kind in (nw.String, nw.Categorical, nw.Enum):
            raise ProblemError(
                f"X: expected numbers in column {name!r}, got {kind}; if it names the bag of each row, "
                f"write bag={name!r}"
            )


def matrices(estimator: Any, frames: Any, *, reset: bool) -> list[np.ndarray]:
    """Tables of one bag each as matrices, with their columns in the order of the first, or of the fit."""
    wrapped = [nw.from_native(frame, eager_only=True) for frame in frames]
    names = feature_names(estimator, list(wrapped[0].columns), reset=reset)
    for i, frame in enumerate(wrapped):
        if set(frame.columns) != set(names):
            raise ProblemError(f"X: expected the columns {shown(names)} in each table, got others at index {i}")
    return [numbers(frame, names) for frame in wrapped]


def by_bag(argument: str, given: Any, names: np.ndarray, bag: str) -> np.ndarray:
    """Values in the order of the bags: from a dict, a pandas Series indexed by bag, or a table of bag and value.

    Raises ProblemError if the form has no names of bags, or a bag has no value or several.
    """
    if is_pandas_series(given):
        keys, values = given.index.to_numpy(), given.to_numpy()
    elif isinstance(given, dict):
        keys, values = np.array(list(given)), np.array(list(given.values()))
    elif is_table(given) and bag in nw.from_native(given, eager_only=True).columns and len(given.columns) == 2:
        frame = nw.from_native(given, eager_only=True)
        keys = frame[bag].to_numpy()
        values = frame.drop(bag)[frame.drop(bag).columns[0]].to_numpy()
    else:
        raise ProblemError(
            f"{argument}: expected values that name their bags: a Series indexed by bag, a dict, or a table of "
            f"{bag!r} and one more column, got {type(given).__name__}"
        )
    return align(argument, keys, values, names)


def align(argument: str, keys: np.ndarray, values: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Values in the order of the names.

    Raises ProblemError if a name occurs twice among the keys, or not at all.
    """
    place = {key: i for i, key in enumerate(keys.tolist())}
    if len(place) != len(keys):
        raise ProblemError(f"{argument}: expected one value for each bag, got several for a bag")
    missing = [name for name in names.tolist() if name not in place]
    if missing:
        raise ProblemError(f"{argument}: expected a value for each bag, got none for {shown(missing)}")
    return np.asarray(values[[place[name] for name in names.tolist()]])


def with_columns(X: Any, bag: str, names: Any, values: np.ndarray) -> Any:
    """A table of the bag column of X and these columns, with the index of X if it has one."""
    frame = nw.from_native(X, eager_only=True)
    backend = frame.implementation
    columns = [nw.new_series(str(name), column, backend=backend) for name, column in zip(names, values.T, strict=True)]
    return frame.select(bag).with_columns(*columns).to_native()


def with_index(values: np.ndarray, index: Any, names: Any = None) -> Any:
    """Values (n,) or (n, C) as a pandas Series with this name, or a DataFrame with these columns."""
    import pandas

    if values.ndim == 1:
        return pandas.Series(values, index=index, name=names)
    return pandas.DataFrame(values.reshape(len(values), -1), index=index, columns=names)
