"""Bags from files: tables with one row for each token, and arrays of sequences of different lengths."""

import contextlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.archives import read_arrays
from attsvm._utils.extras import check_installed
from attsvm._utils.files import TABLES, is_table_file, named_once, read_text, reading, regular_file
from attsvm._utils.memory import check_fits
from attsvm._utils.shapes import Int
from attsvm.datasets.sequences import Sequences, sequences_of
from attsvm.datasets.tables import Bags, check_columns, csv_rows, grouped
from attsvm.errors import ProblemError

UNNAMED = "Unnamed: "
"""How pandas calls columns without a name, with their place behind it."""


@dataclass(frozen=True, eq=False)
class BagFile:
    """The bags of a file.

    Attributes
    ----------
    sequences : Sequences
        n bags of N tokens, with the names of bags and columns where the file has some.
    labels, groups : ndarray, shape (n,), or None
        Of each bag; None if the file has none.
    rows : int ndarray, shape (N,), or None
        The row of each token in a table, counted from 0 below the header.

    See Also
    --------
    attsvm.datasets.read_bags

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.datasets import BagFile, Sequences
    >>> BagFile(Sequences(np.eye(4), [0, 1, 2, 3], [0, 2, 4]), labels=np.array(["no", "yes"])).groups is None
    True
    """

    sequences: Sequences
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    rows: Int[np.ndarray, " N"] | None = None


def read_bags(
    path: str | os.PathLike[str],
    bag: str | None = None,
    label: str | None = None,
    groups: str | None = None,
    drop: Iterable[str] = (),
    optional: Iterable[str] = (),
    encoding: str | None = None,
) -> BagFile:
    r"""Read bags from a file.

    Parameters
    ----------
    path : path
        A table ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson`` (also with ``.gz``) or ``.parquet`` with one row for each
        token. Or an archive ``.npz``, or an object ``.json`` of nested lists, with ``tokens`` (n, T, d) and perhaps
        ``mask`` (n, T), or with ``tokens`` (N, d) of all bags and either ``bag`` (N,), their names, or ``offsets``
        (n + 1,); perhaps with ``labels`` and ``groups`` (n,).
    bag : str, optional
        The column of a table that names the bag of each row; required there.
    label, groups : str, optional
        Columns of a table that have one entry in each bag.
    drop : iterable of str
        Columns of a table that are left out.
    optional : iterable of str
        Those of the columns ``label``, ``groups`` and ``drop`` that a table need not have.
    encoding : str, optional
        The encoding of a table that is a text file, such as "latin-1"; UTF-8 by default.

    Returns
    -------
    BagFile
        All other columns of a table are the entries of the tokens.

    Raises
    ------
    ProblemError
        If the file cannot be read, has no such column, or a bag has several labels or groups, or none; or if pandas,
        which reads tables, is not installed.

    See Also
    --------
    attsvm.datasets.Sequences.from_table : From a data frame.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from attsvm.datasets import read_bags
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "bags.csv")
    ...     _ = path.write_text("molecule,mass,active\na,1.5,yes\na,2.0,yes\nb,0.5,no\n")
    ...     found = read_bags(path, bag="molecule", label="active")
    >>> found.sequences.names.tolist(), found.labels.tolist(), found.sequences.lengths.tolist()
    (['a', 'b'], ['yes', 'no'], [2, 1])
    """
    if not is_table_file(path):
        if not os.fspath(path).lower().endswith((".npz", ".json")):
            raise ProblemError(f"{path}: expected bags: a table {', '.join(TABLES)} or arrays .npz, .json")
        given = {"bag": bag, "label": label, "groups": groups, "drop": [*drop] or None, "encoding": encoding}
        for name, value in given.items():
            if value is not None:
                raise ProblemError(f"{name}: expected None for arrays, whose names are fixed, got {value!r}")
        return _of_arrays(path)
    if bag is None:
        raise ProblemError(f"bag: expected the column of {path} with the bag of each row")
    frame = _table(path, bag, encoding)
    missing = {*optional}.difference(frame.columns)
    label, groups = (None if name in missing else name for name in (label, groups))
    others, left_out = [name for name in (label, groups) if name is not None], {*drop} - missing
    check_columns(path, list(frame.columns), [bag, *others, *left_out])
    unnamed = next((name for name in frame if str(name).startswith(UNNAMED) and name not in left_out), None)
    if unnamed is not None:
        raise ProblemError(
            f"{path}: expected a name for each column, got none for column {list(frame).index(unnamed)}, counted "
            f"from 0; if it numbers the rows, leave it out: --drop '{unnamed}', or drop=['{unnamed}'] in Python"
        )
    with _named(path):
        bags = Bags.of(frame.drop(columns=[*left_out]), bag)
        of_label, of_groups = (
            None if name is None else _plain(bags.labels(name, argument))
            for argument, name in (("label", label), ("groups", groups))
        )
        return BagFile(sequences_of(bags, bag, *others), of_label, of_groups, bags.rows)


def _table(path: str | os.PathLike[str], bag: str, encoding: str | None) -> Any:
    """A table as a data frame of pandas, without spaces around words; a word of spaces is a missing entry.

    The entries of the column ``bag`` of a text file are words.
    """
    check_installed(f"{path}: a table", "frames", "pandas")
    frame = _as_written(path, bag, encoding)
    for name, column in frame.items():
        if column.dtype.kind == "O":
            frame[name] = column.map(lambda word: (word.strip() or None) if isinstance(word, str) else word)
    return frame


def _as_written(path: str | os.PathLike[str], bag: str, encoding: str | None) -> Any:
    """The table as the file has it; of CSV without spaces around the names of columns."""
    import pandas as pd

    ending = os.fspath(path).lower().removesuffix(".gz").rpartition(".")[2]
    if ending == "parquet":
        check_installed(f"{path}: a Parquet file", "text", "pyarrow")
        import pyarrow.parquet as pq

        with reading(path, "cannot be read as Parquet"):
            about = pq.read_metadata(regular_file(path))
            check_fits(path, 8 * about.num_rows * about.num_columns)  # constant columns take no room in the file
            return pd.read_parquet(path, engine="pyarrow", use_threads=False)
    text = read_text(path, encoding, "save the file as UTF-8, or name its encoding by --encoding")
    with reading(path, "cannot be read as a table"):
        if ending in ("jsonl", "ndjson"):
            for line in filter(str.strip, text.split("\n")):
                json.loads(line, object_pairs_hook=named_once, strict=False)
            return pd.read_json(
                io.StringIO(text), lines=True, dtype={bag: str}, convert_dates=False, precise_float=True
            )
        separator = "\t" if ending == "tsv" else ","
        rows = csv_rows(path, text, separator)
        header = [name.strip() or f"{UNNAMED}{place}" for place, name in enumerate(next(rows))]
        if not header:
            raise ProblemError(f"{path}: expected a header, and a row for each token, got an empty file")
        check_columns(path, header, header)  # pandas renames columns of one name
        # pandas fills up short rows, which this refuses, and a column of numbers with a field of spaces becomes words
        spaces = {field for fields in rows for field in fields if field.isspace()}
        return pd.read_csv(
            io.StringIO(text, newline=""),
            sep=separator,
            header=0,
            names=header,
            dtype={bag: str},
            index_col=False,
            na_values=sorted(spaces),
        )


@contextlib.contextmanager
def _named(path: object) -> Iterator[None]:
    """Put the name of the file into errors about the table."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"{path}: {str(error).removeprefix('X: ')}") from None


def _plain(values: np.ndarray) -> np.ndarray:
    """Labels as words or, where all are whole numbers, as integers."""
    if values.dtype == object and all(isinstance(value, str) for value in values):
        return values.astype(str)
    whole = values.dtype.kind == "f" and bool((values == np.round(values)).all())
    return values.astype(np.int64) if whole else values


ARRAYS = ("tokens", "mask", "bag", "offsets", "labels", "groups")
"""The names of the arrays of a file of bags."""


def _of_arrays(path: str | os.PathLike[str]) -> BagFile:
    arrays = read_arrays(path, "problem")
    for name in arrays:
        if name not in ARRAYS:
            raise ProblemError(f"{path}: expected arrays {', '.join(ARRAYS)}, got {name!r}")
    if "tokens" not in arrays:
        raise ProblemError(f"{path}: expected an array 'tokens', got {', '.join(arrays) or 'none'}")
    tokens, mask, offsets = arrays["tokens"], arrays.get("mask"), arrays.get("offsets")
    names, places = None, np.arange(len(tokens))
    with _named(path):
        if tokens.ndim == 3:
            sequences = Sequences.from_padded(tokens, mask)
        elif tokens.ndim != 2 or ("bag" in arrays) == (offsets is not None):
            raise ProblemError(
                f"tokens: expected shape (n, T, d), or (N, d) beside one of 'bag' (N,) and 'offsets' (n + 1,), got "
                f"{tokens.shape} beside {', '.join(name for name in arrays if name != 'tokens') or 'no array'}"
            )
        else:
            if offsets is None:
                if arrays["bag"].shape != places.shape:
                    got = arrays["bag"].shape
                    raise ProblemError(f"bag: expected shape {places.shape}, one for each token, got {got}")
                if (arrays["bag"] != arrays["bag"]).any():
                    raise ProblemError("bag: expected the bag of each token, got NaN")
                names, places, offsets = grouped(arrays["bag"])
            sequences = Sequences(tokens, places, offsets, names=names)
        labels, groups = (_of_bags(name, arrays.get(name), sequences) for name in ("labels", "groups"))
    return BagFile(sequences, labels, groups)


def _of_bags(name: str, values: np.ndarray | None, sequences: Sequences) -> np.ndarray | None:
    """Values of bags (n,), from those of the bags or of all tokens, which agree in each bag."""
    if values is None:
        return None
    if values.shape == (len(sequences.ids),) != (len(sequences),):
        of_tokens, first = values[sequences.ids], np.repeat(sequences.offsets[:-1], sequences.lengths)
        other = np.flatnonzero(of_tokens != of_tokens[first])
        if len(other):
            number = int(np.searchsorted(sequences.offsets, other[0], "right")) - 1
            bag = number if sequences.names is None else sequences.names[number]
            raise ProblemError(f"{name}: expected one value in each bag, got several in bag {bag}")
        return _plain(of_tokens[sequences.offsets[:-1]])
    if values.shape != (len(sequences),):
        raise ProblemError(f"{name}: expected shape ({len(sequences)},), one for each bag, got {values.shape}")
    return _plain(values)
