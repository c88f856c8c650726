"""Tables of pandas, polars and Arrow with one row for each token and a column that names its bag."""

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe

from attsvm.errors import ProblemError


def is_table(X: Any) -> bool:
    """Whether it is a data frame."""
    return bool(is_into_dataframe(X))


@dataclass(frozen=True)
class Bags:
    """The rows of each bag, in the order of the first rows of the bags."""

    frame: Any
    names: np.ndarray  # shape (n,), the entry of the bag column of each bag
    rows: np.ndarray  # shape (N,), positions of the rows, those of a bag one after the other
    offsets: np.ndarray  # shape (n + 1,), bag i has ``rows[offsets[i]:offsets[i + 1]]``

    @classmethod
    def of(cls, X: Any, bag: str) -> "Bags":
        """The bags of a table.

        Raises ProblemError if it is no table, has no such column or no row, or the column lacks an entry or mixes
        types.
        """
        if not is_table(X):
            raise ProblemError(
                f"X: expected a table with the column {bag!r} that names the bags, got {type(X).__name__}"
            )
        frame = nw.from_native(X, eager_only=True)
        if bag not in frame.columns:
            raise ProblemError(f"bag: expected one of the columns {shown(frame.columns)}, got {bag!r}")
        if not len(frame):
            raise ProblemError("X: expected at least one row, got none")
        of_rows = frame[bag].to_numpy()
        if frame[bag].is_null().any() or (of_rows.dtype.kind == "f" and np.isnan(of_rows).any()):
            raise ProblemError(f"bag: expected a bag for each row, got rows without an entry in {bag!r}")
        try:
            _, first, inverse = np.unique(of_rows, return_index=True, return_inverse=True)
        except TypeError:
            kinds = ", ".join(sorted({type(entry).__name__ for entry in of_rows}))
            raise ProblemError(f"bag: expected entries of one type in {bag!r}, got {kinds}") from None
        order = np.argsort(first)
        number = np.argsort(order)[inverse]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(order)))])
        return cls(frame, of_rows[np.sort(first)], np.argsort(number, kind="stable"), offsets)

    def labels(self, target: str) -> np.ndarray:
        """The entry of a column in each bag, (n,).

        Raises ProblemError if there is no such column, or a bag has several entries or lacks one.
        """
        if target not in self.frame.columns:
            raise ProblemError(f"target: expected one of the columns {shown(self.frame.columns)}, got {target!r}")
        of_rows = self.frame[target].to_numpy()[self.rows]
        labels: np.ndarray = of_rows[self.offsets[:-1]]
        # a missing entry is equal to none
        other = np.flatnonzero(of_rows != np.repeat(labels, np.diff(self.offsets)))
        if len(other):
            name = self.names[np.searchsorted(self.offsets, other[0], "right") - 1]
            raise ProblemError(
                f"target: expected one entry of {target!r} in each bag, got several or none in bag {name}"
            )
        return labels


def numbers(frame: Any, names: Any) -> np.ndarray:
    """These columns of a narwhals frame as a matrix; NaN where an entry is missing.

    Raises ProblemError if a column does not hold numbers.
    """
    for name in names:
        kind = frame.schema[name]
        if not (kind.is_numeric() or kind == nw.Boolean):
            raise ProblemError(f"X: expected numbers in column {name!r}, got {kind}")
    return np.asarray(frame.select(names).to_numpy())


def shown(names: Any) -> str:
    """The first names, for error messages."""
    names = list(names)
    text = ", ".join(map(str, names[:5]))
    return text if len(names) <= 5 else f"{text}, ... ({len(names)} in all)"
