"""Rows of text files: Parquet, CSV, TSV and JSON lines, also compressed, in shards, and in any encoding."""

import csv
import glob
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attsvm._utils.callers import warn_caller
from attsvm._utils.files import named_once, read_text, reason
from attsvm.datasets import check_columns, class_names, read_columns
from attsvm.errors import ProblemError

Row = tuple[Any, Any]
"""A text and its label, as the file has them."""

COLUMN_HINT = "; choose the columns by --text and --label"

QUOTING: dict[str, dict[str, Any]] = {
    "double": {"strict": True},
    "backslash": {"strict": True, "doublequote": False, "escapechar": "\\"},
    "none": {"quoting": csv.QUOTE_NONE},
}
"""Arguments of :func:`csv.reader` for fields in quotes, in which quotes are doubled or follow a backslash, and none."""

_PART = re.compile(r"(?<![a-z])(train|test|val|dev|eval|unsup)", re.IGNORECASE)


@dataclass(frozen=True)
class TextFormat:
    """How text files are written.

    Raises ProblemError if the quoting is unknown.
    """

    encoding: str | None = None  # a codec of Python; by default UTF-8
    quoting: str | None = None  # of CSV and TSV: a key of QUOTING; by default "double", or what a TSV file parses with

    def __post_init__(self) -> None:
        if self.quoting not in (None, *QUOTING):
            raise ProblemError(f"quoting: expected {', '.join(QUOTING)}, got {self.quoting!r}")

    def read(self, path: Path) -> str:
        """The content of a file, decompressed if it ends with ``.gz``."""
        return read_text(path, self.encoding, "save the file as UTF-8, or give its encoding: --encoding NAME")


def ending_of(path: Path) -> str:
    """The ending of a file, without ``.gz``."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def find_files(path: str, endings: Sequence[str], otherwise: str = "") -> list[Path]:
    """The files of a path: one, those that match a pattern, or the shards in a folder.

    ``endings``: of files that can be read. ``otherwise``: what may be given as well, for error messages.

    Raises ProblemError if there are none, one has another ending, or they are of several parts of the data.
    """
    source = Path(path)
    if source.is_dir():
        found = sorted(entry for entry in source.iterdir() if ending_of(entry) in endings and entry.name[0] != ".")
    elif source.exists() or not glob.has_magic(path):
        found = [source]
    else:
        found = sorted(map(Path, glob.glob(path)))
    if not found or (not source.exists() and found == [source] and ending_of(source) in ("", *endings)):
        missing = f"no file {', '.join(endings)} in it" if source.is_dir() else f"no such file{otherwise}"
        raise ProblemError(f"{path}: {missing}")
    for file in found:
        if ending_of(file) not in endings or (ending_of(file) == ".parquet" != file.suffix.lower()):
            raise ProblemError(f"{file}: expected a file {', '.join(endings)} (text also with .gz){otherwise}")
    parts = sorted({match[1].lower() if (match := _PART.search(file.name)) else "others" for file in found})
    if len(parts) > 1:
        raise ProblemError(
            f"{path}: expected the shards of one part of the data, got {', '.join(parts)}; give a pattern in quotes, "
            f"such as '{found[0].parent}/{parts[-1]}*'"
        )
    return found


def _parquet(path: Path, text: str, label: str, form: TextFormat) -> Iterator[Row]:
    texts, labels = read_columns([path], [text, label], extra="text", hint=COLUMN_HINT)
    names = dict(enumerate(class_names(path, label)))
    return zip(texts, [names.get(found, found) if isinstance(found, int) else found for found in labels], strict=True)


def _separated(delimiter: str) -> Callable[[Path, str, str, TextFormat], Iterator[Row]]:
    def read(path: Path, text: str, label: str, form: TextFormat) -> Iterator[Row]:
        # the default limit is below a long text
        csv.field_size_limit(2**31 - 1)
        content = form.read(path)
        quoting = form.quoting or _quoting(path, content, delimiter)
        others = [name for name in ("none", "backslash", "double") if name != quoting]
        hint = f"; --quoting {' or '.join(others)} reads quotes in other ways"
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, **QUOTING[quoting])
        try:
            header = [name if name in (text, label) else name.strip() for name in next(reader, [])]
            check_columns(path, header, [text, label], COLUMN_HINT, delimiter)
            places = header.index(text), header.index(label)
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise ProblemError(
                        f"{path}: line {reader.line_num}: expected {len(header)} fields, as in the header, "
                        f"got {len(fields)}"
                    )
                yield fields[places[0]], fields[places[1]]
        except csv.Error as error:
            raise ProblemError(f"{path}: line {reader.line_num} cannot be read ({error}){hint}") from None

    return read


def _quoting(path: Path, content: str, delimiter: str) -> str:
    """How a file is quoted: CSV in double quotes; TSV not, unless both ways give the same rows, or that one does not.

    A quote that begins a field and is only a letter makes one text of it and the rows up to the next quote. Where both
    ways give a table a warning says which one was taken.
    """
    if '"' not in content:
        return "double"
    quoted, plain = (_num_rows(content, delimiter, quoting) for quoting in ("double", "none"))
    unquoted = delimiter == "\t" and (quoted is None or plain not in (None, quoted))
    taken = "none" if unquoted else "double"
    if quoted is not None and plain is not None and quoted != plain:
        rows = {"double": quoted, "none": plain}
        other = "none" if taken == "double" else "double"
        warn_caller(
            f"{path}: {rows[taken]:,} rows with --quoting {taken}, as read, but {rows[other]:,} with --quoting {other}",
            RuntimeWarning,
        )
    return taken


def _num_rows(content: str, delimiter: str, quoting: str) -> int | None:
    """Number of rows below the header; None if it cannot be read, or the rows have different numbers of fields."""
    try:
        lengths = [
            len(fields)
            for fields in csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, **QUOTING[quoting])
            if fields
        ]
    except csv.Error:
        return None
    return len(lengths) - 1 if len(set(lengths)) == 1 else None


def _json_lines(path: Path, text: str, label: str, form: TextFormat) -> Iterator[Row]:
    for number, line in enumerate(form.read(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=named_once)
        except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError
            raise ProblemError(f"{path}: line {number} is not JSON ({reason(error)})") from None
        if not isinstance(row, dict):
            raise ProblemError(f"{path}: line {number}: expected an object, got {type(row).__name__}")
        check_columns(f"{path}: line {number}", list(row), [text, label], COLUMN_HINT)
        yield row[text], row[label]


READERS: dict[str, Callable[[Path, str, str, TextFormat], Iterator[Row]]] = {
    ".parquet": _parquet,
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
"""The function that reads files with an ending."""
