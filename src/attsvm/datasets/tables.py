"""The tables that data are read from: data frames with a column of bags, and Parquet files."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe, is_pandas_dataframe, is_pandas_series
from narwhals.exceptions import DuplicateError

from attsvm._utils.callers import warn_caller
from attsvm._utils.checks import in_float64
from attsvm._utils.extras import check_installed
from attsvm._utils.files import reading, regular_file
from attsvm._utils.memory import check_fits
from attsvm.errors import ProblemError

SHOWN_COLUMNS = 8


def is_table(X: Any) -> bool:
    """Whether it is a data frame."""
    return bool(is_into_dataframe(X))


def frame_of(X: Any) -> Any:
    """A data frame in the interface of narwhals, which is that of no library; names of columns are words.

    Raises ProblemError if several columns have one name, or names have several levels.
    """
    if is_pandas_dataframe(X):
        if X.columns.nlevels > 1:
            raise ProblemError(f"X: expected column names in one row, got {X.columns.nlevels} rows of names")
        if not all(isinstance(name, str) for name in X.columns):
            X = X.set_axis(X.columns.map(str), axis=1)
    try:
        frame = nw.from_native(X, eager_only=True)
        frame.columns  # noqa: B018  # where Arrow checks its names
    except DuplicateError as error:
        raise ProblemError(f"X: expected different column names, got {str(error).rpartition('- ')[2]}") from None
    return frame


@dataclass(frozen=True)
class Bags:
    """The rows of each bag, in the order of the first rows of the bags."""

    frame: Any
    names: np.ndarray  # shape (n,), the entry of the bag column of each bag
    rows: np.ndarray  # shape (N,), positions of the rows, those of a bag one after the other
    offsets: np.ndarray  # shape (n + 1,), bag i has ``rows[offsets[i]:offsets[i + 1]]``

    @classmethod
    def of(cls, X: Any, bag: Any) -> "Bags":
        """The bags of a table, by the name of a column.

        Raises ProblemError if it is no table, has no such column or no row, or the column lacks an entry or mixes
        types.
        """
        if not is_table(X):
            raise ProblemError(
                f"X: expected a table with the column {bag!r}, the bag of each row, got {type(X).__name__}"
            )
        frame, bag, given = frame_of(X), str(bag), bag
        if not isinstance(given, str | int | np.integer):
            raise ProblemError(
                f"bag: expected the name of one column (join several columns into one of words), got {given!r}"
            )
        if not frame.columns:
            raise ProblemError("X: expected at least one row, got none")
        if bag not in frame.columns:
            in_index = is_pandas_dataframe(X) and given in X.index.names
            hint = f"; it is in the index: X.reset_index({given!r})" * in_index
            raise ProblemError(f"bag: expected one of the columns {shown(frame.columns)}, got {given!r}{hint}")
        if not len(frame):
            raise ProblemError("X: expected at least one row, got none")
        of_rows = frame[bag].to_numpy()
        if frame[bag].is_null().any() or (of_rows.dtype.kind == "f" and np.isnan(of_rows).any()):
            raise ProblemError(f"bag: expected a bag in each row, got rows without an entry in {bag!r}")
        try:
            return cls(frame, *grouped(of_rows))
        except TypeError:
            raise ProblemError(f"bag: expected entries of one type in {bag!r}, got {_kinds(of_rows)}") from None

    def labels(self, target: Any, argument: str = "target") -> np.ndarray:
        """The entry of a column in each bag, (n,); ``argument`` is what errors call the column.

        Raises ProblemError if there is no such column, or a bag has several entries or lacks one.
        """
        target = str(target)
        if target not in self.frame.columns:
            raise ProblemError(f"{argument}: expected one of the columns {shown(self.frame.columns)}, got {target!r}")
        labels, several = self._in_bags(self.frame[target].to_numpy())
        if several is not None:
            raise ProblemError(
                f"{argument}: expected one entry of {target!r} in each bag, got several or none in bag {several}"
            )
        return labels

    def align(self, argument: str, given: Any, bag: str) -> np.ndarray:
        """Values in the order of the bags: from a dict, a pandas Series indexed by bag, or a table of bag and value.

        Values of the rows are reduced, with a warning, if they are equal in each bag.

        Raises ProblemError if the form has no names of bags, a bag has no value or several, or the index may be that of
        the rows.
        """
        if is_pandas_series(given):
            keys, values = given.index.to_numpy(), given.to_numpy()
        elif isinstance(given, dict):
            keys, values = np.array(list(given)), np.array(list(given.values()))
        elif is_table(given) and bag in frame_of(given).columns and len(given.columns) == 2:
            frame = frame_of(given)
            keys = frame[bag].to_numpy()
            values = frame.drop(bag)[frame.drop(bag).columns[0]].to_numpy()
        else:
            raise ProblemError(
                f"{argument}: expected values that name their bags: a Series indexed by bag, a dict, or a table of "
                f"{bag!r} and one more column, got {type(given).__name__}"
            )
        place = {key: i for i, key in enumerate(keys.tolist())}
        missing = [name for name in self.names.tolist() if name not in place]
        repeated = len(place) != len(keys)
        of_bags = None if missing or repeated else values[[place[name] for name in self.names.tolist()]]
        # an index with the name of the column is one of bags, as groupby makes it
        named = is_table(given) or (is_pandas_series(given) and given.index.name == bag)
        of_rows = None if named else self._of_rows(place, keys, values)
        if of_rows is not None:
            return self._of_bags_or_rows(argument, bag, of_bags, of_rows, len(keys))
        if repeated:
            raise ProblemError(f"{argument}: expected one value for each bag, got several for some bag")
        if missing:
            raise ProblemError(f"{argument}: expected a value for each bag, got none for {shown(missing)}")
        return np.asarray(of_bags)

    def _of_rows(self, place: dict[Any, int], keys: np.ndarray, values: np.ndarray) -> np.ndarray | None:
        """The values as those of the rows, (N,), if their index names all rows, or their number is that of the rows."""
        table = self.frame.to_native()
        index = (table.index.to_numpy() if is_pandas_dataframe(table) else np.arange(len(self.rows))).tolist()
        if len(place) == len(keys) and all(key in place for key in index):
            return np.asarray(values[[place[key] for key in index]])
        return values if len(values) == len(self.rows) > len(self.names) else None

    def _of_bags_or_rows(
        self, argument: str, bag: str, of_bags: np.ndarray | None, of_rows: np.ndarray, number: int
    ) -> np.ndarray:
        """The values of the bags from what may be values of the rows; ``number``: of values that were given."""
        rows, several = self._in_bags(of_rows)
        if of_bags is not None and not number == len(self.rows) > len(self.names):
            # different values of the rows of a bag are none of the rows
            if several is None and (of_bags != rows).any():
                raise ProblemError(
                    f"{argument}: expected an index of bags, got one that fits both the bags and the rows, with "
                    f"different values; if it is the index of the bags, write {argument}.rename_axis({bag!r})"
                )
            return of_bags
        if several is not None:
            raise ProblemError(
                f"{argument}: expected one value for each bag, got one for each row, with several in bag {several}; "
                f"reduce them, as {argument}.groupby(X[{bag!r}]).max() does"
            )
        warn_caller(
            f"{argument}: expected one value for each bag, got one for each row; the values in a bag are equal, so "
            "that value is used"
        )
        return rows

    def _in_bags(self, of_rows: np.ndarray) -> tuple[np.ndarray, Any]:
        """The value of the first row of each bag, (n,), and the name of a bag that has another one, or None."""
        ordered = of_rows[self.rows]
        first = ordered[self.offsets[:-1]]
        # a missing entry is equal to none
        other = np.flatnonzero(ordered != np.repeat(first, np.diff(self.offsets)))
        return first, self.names[np.searchsorted(self.offsets, other[0], "right") - 1] if len(other) else None


def grouped(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different entries in the order of their first places, the places of each one after the other, and offsets."""
    _, first, inverse = np.unique(entries, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[inverse]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(number))])
    return entries[np.sort(first)], np.argsort(number, kind="stable"), offsets


def numbers(frame: Any, names: Sequence[str]) -> tuple[np.ndarray, dict[str, tuple[str, ...]]]:
    """These columns of a narwhals frame as a matrix, NaN where an entry is missing.

    Words are numbered; returns the words of each column that has some, too.

    Raises ProblemError if there are none, or a column holds neither numbers nor words.
    """
    if not names:
        raise ProblemError("X: expected at least one column of numbers or words, got none")
    words: dict[str, tuple[str, ...]] = {}
    others: dict[str, list[float]] = {}
    for name in names:
        column, kind = frame[name], frame.schema[name]
        if kind in (nw.String, nw.Categorical, nw.Enum):
            given, is_given = column.cast(nw.String).to_list(), (~column.is_null()).to_list()
            # pandas 2 casts a missing entry to the word "nan"
            words[name] = tuple(sorted({word for word, known in zip(given, is_given, strict=True) if known}))
            number = {word: float(place) for place, word in enumerate(words[name])}
            others[name] = [number[entry] if known else np.nan for entry, known in zip(given, is_given, strict=True)]
        elif kind in (nw.Object, nw.Boolean) and (column.is_null().any() or kind == nw.Object):
            entries = [np.nan if missing else entry for entry, missing in zip(column, column.is_null(), strict=True)]
            if not all(isinstance(entry, bool | int | float | np.bool_ | np.number) for entry in entries):
                raise ProblemError(f"X: expected numbers or words in column {name!r}, got {_kinds(entries)}")
            others[name] = [float(entry) for entry in entries]
        elif not (kind.is_numeric() or kind == nw.Boolean):
            found = column.to_native().dtype if kind == nw.Unknown else kind
            raise ProblemError(f"X: expected numbers or words in column {name!r}, got {found}")
        elif (integers := column.to_numpy()).dtype.kind in "iu":
            in_float64(f"X: column {name!r}", integers)  # which a column of float64 beside it turns them into
    rest = [name for name in names if name not in others]
    array = np.asarray(frame.select(rest).to_numpy()) if rest else np.empty((len(frame), 0))
    array = array.astype(np.float64) if array.dtype.kind in "iu" else array
    if others:
        columns = dict(zip(rest, array.T, strict=True)) | others
        array = np.column_stack([np.asarray(columns[name], np.float64) for name in names])
    return array, words


def _kinds(entries: Sequence[object]) -> str:
    """The types of some objects."""
    return ", ".join(sorted({type(entry).__name__ for entry in entries}))


def shown(names: Any) -> str:
    """The first names, for error messages."""
    names = list(names)
    text = ", ".join(map(str, names[:5]))
    return text if len(names) <= 5 else f"{text}, ... ({len(names)} in all)"


def read_columns(paths: Sequence[Path], columns: Sequence[str], *, extra: str, hint: str = "") -> list[list[Any]]:
    """Read columns of Parquet files.

    ``paths``: at least one file. Their rows are concatenated. ``columns``: names of the columns. ``extra``: the extra
    of attsvm that installs pyarrow, for the error message. ``hint``: end of the error message about a missing column.

    Returns the values of each column as Python objects.

    Raises ProblemError if pyarrow is not installed, a file cannot be read, or a column is missing.
    """
    check_installed(f"{paths[0]}: Parquet", extra, "pyarrow")
    import pyarrow.parquet as pq

    read: list[list[Any]] = [[] for _ in columns]
    for path in paths:
        with reading(path, "cannot be read as Parquet"), regular_file(path).open("rb") as stream:
            file = pq.ParquetFile(stream)
            check_columns(path, file.schema_arrow.names, columns, hint)
            check_fits(path, 8 * file.metadata.num_rows * len(columns))
            # a thread of Arrow that is alive when Python exits can abort it (apache/arrow, issue 34314)
            table = file.read(columns=list(dict.fromkeys(columns)), use_threads=False)
            try:
                for values, name in zip(read, columns, strict=True):
                    values += table[name].to_pylist()
            except UnicodeDecodeError:
                raise ProblemError(f"{path}: expected UTF-8 in the columns {', '.join(columns)}") from None
    return read


def class_names(path: Path, column: str) -> list[str]:
    """Names of the classes 0, 1, ... of a column, as files of the Hugging Face hub have them; empty if there are none.

    ``path``: a Parquet file that can be read.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    try:
        names = json.loads(metadata[b"huggingface"])["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):  # other software may write anything there
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def csv_rows(path: object, text: str, separator: str = ",") -> Iterator[list[str]]:
    """The header of CSV, without columns if the text is empty, and the rows below it; blank lines are left out.

    Raises ProblemError, when it comes to it, if other characters separate the fields, a row cannot be read, or it has
    not as many fields as the header.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    with reading(path, "cannot be read as a table"):
        header = next(filter(None, rows), [])
        check_columns(path, header, [], separator=separator)
        yield header
        for fields in filter(None, rows):
            if len(fields) != len(header):
                raise ProblemError(
                    f"{path}: line {rows.line_num}: expected {len(header)} fields, as in the header, got {len(fields)}"
                )
            yield fields


def check_columns(
    source: object, found: Sequence[str], columns: Sequence[str], hint: str = "", separator: str | None = None
) -> None:
    """Check that a table has the columns that are needed.

    ``source``: what the table is called in the error message. ``found``: names of the table's columns. ``columns``:
    names of the columns that are needed. ``hint``: end of the error message. ``separator``: of the fields of a file.

    Raises ProblemError if a column is missing, or several have its name; or if another character separates the fields,
    such as the semicolon of programs that write decimal commas.
    """
    marks = (mark for mark in ";\t|," if separator is not None and len(found) == 1 and mark in found[0])
    if (other := next(marks, separator)) != separator:
        decimal = ", decimal=','" * (other == ";")
        raise ProblemError(
            f"{source}: expected fields separated by {separator!r}, got {other!r} in the header; convert the file, "
            f"for example by pandas.read_csv({str(source)!r}, sep={other!r}{decimal}).to_csv('new.csv', index=False)"
        )
    for name in columns:
        if name not in found:
            shown = ", ".join(map(repr, found[:SHOWN_COLUMNS])) + (", …" if len(found) > SHOWN_COLUMNS else "")
            raise ProblemError(f"{source}: expected a column {name!r}, got {shown or 'none'}{hint}")
        if (number := found.count(name)) > 1:
            raise ProblemError(f"{source}: expected one column {name!r}, got {number}")
