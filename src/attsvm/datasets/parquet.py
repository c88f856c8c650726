"""Columns of Parquet files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attsvm._utils.files import reading, regular_file
from attsvm.errors import ProblemError

SHOWN_COLUMNS = 8


def read_columns(paths: Sequence[Path], columns: Sequence[str], *, extra: str, hint: str = "") -> list[list[Any]]:
    """Read columns of Parquet files.

    ``paths``: at least one file. Their rows are concatenated. ``columns``: names of the columns. ``extra``: the extra
    of attsvm that installs pyarrow, for the error message. ``hint``: end of the error message about a missing column.

    Returns the values of each column as Python objects.

    Raises ProblemError if pyarrow is not installed, a file cannot be read, or a column is missing.
    """
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise ProblemError(f"{paths[0]}: Parquet needs pyarrow: pip install 'attsvm[{extra}]'") from None
    read: list[list[Any]] = [[] for _ in columns]
    for path in paths:
        with reading(path, "cannot be read as Parquet"), regular_file(path).open("rb") as stream:
            file = pq.ParquetFile(stream)
            check_columns(path, file.schema_arrow.names, columns, hint)
            table = file.read(columns=list(dict.fromkeys(columns)))
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


def check_columns(source: object, found: Sequence[str], columns: Sequence[str], hint: str = "") -> None:
    """Check that a table has the columns that are needed.

    ``source``: what the table is called in the error message. ``found``: names of the table's columns. ``columns``:
    names of the columns that are needed. ``hint``: end of the error message.

    Raises ProblemError if a column is missing.
    """
    for name in columns:
        if name not in found:
            shown = ", ".join(map(repr, found[:SHOWN_COLUMNS])) + (", …" if len(found) > SHOWN_COLUMNS else "")
            raise ProblemError(f"{source}: expected a column {name!r}, got {shown or 'none'}{hint}")
