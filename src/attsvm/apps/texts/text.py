"""Labelled texts from a user's own files: Parquet, CSV, JSON lines, or a folder of class folders."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attsvm.errors import ProblemError

Row = tuple[Any, Any]
"""A text and its label, as they stand in the file."""


@dataclass(frozen=True)
class Texts:
    """Texts and their labels.

    Attributes
    ----------
    texts : tuple of str
        n texts, none of them blank.
    labels : str ndarray, shape (n,)
        Labels as words, whatever they were in the file: the number 1 and the word "1" are the same label.
    source : str
        Where they came from, as messages name it.
    """

    texts: tuple[str, ...]
    labels: np.ndarray
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: np.ndarray) -> "Texts":
        """Some of the texts, in the order of the int array ``rows``."""
        return Texts(tuple(self.texts[row] for row in rows), self.labels[rows], self.source)

    @property
    def classes(self) -> list[str]:
        """The labels that occur, whole numbers by value and everything else by the alphabet."""
        found = [str(label) for label in np.unique(self.labels)]
        return sorted(found, key=int) if all(_is_whole(label) for label in found) else found

    @property
    def sha256(self) -> str:
        """Hash of every text and label."""
        found = hashlib.sha256()
        for text, label in zip(self.texts, self.labels, strict=True):
            found.update(json.dumps([text, str(label)]).encode())
        return found.hexdigest()


def read_texts(path: str | os.PathLike[str], text: str = "text", label: str = "label") -> Texts:
    """Read labelled texts.

    Parameters
    ----------
    path : path
        A file ``.parquet`` (with the extra ``text``), ``.csv``, ``.tsv``, ``.jsonl`` or ``.ndjson``; or a folder with
        a folder a class, whose name is the label and whose files are a text each. Files are UTF-8.
    text, label : str
        Of a file: the names of the columns. Labels are words, whole numbers or truth values.

    Returns
    -------
    Texts
        In the order of the file; of a folder, by class and file name.

    Raises
    ------
    ProblemError
        If the file is missing, is not what its name says, is not UTF-8 or lacks a column; if it has no rows, a row
        without text or label, or one label only; or if pyarrow is wanted and not installed.
    """
    source = Path(path)
    if source.is_dir():
        rows = _folder(source)
    elif not source.exists():
        raise ProblemError(f"{path}: no such file or folder")
    else:
        reader = READERS.get(source.suffix.lower())
        if reader is None:
            raise ProblemError(f"{path}: unknown ending, {', '.join(READERS)} or a folder of class folders wanted")
        rows = reader(source, text, label)
    texts, labels = [], []
    for number, (found_text, found_label) in enumerate(rows, start=1):
        texts.append(_text(found_text, f"{path}: row {number}, {text}"))
        labels.append(_label(found_label, f"{path}: row {number}, {label}"))
    if not texts:
        raise ProblemError(f"{path}: no texts found, at least one for each of two labels wanted")
    if len(set(labels)) == 1:
        raise ProblemError(f"{path}: only the label {labels[0]!r} found, at least two labels wanted")
    return Texts(tuple(texts), np.array(labels), str(path))


def is_texts(path: str | os.PathLike[str]) -> bool:
    """Whether a path is one that :func:`read_texts` reads, by its ending or as an existing folder."""
    return Path(path).suffix.lower() in READERS or Path(path).is_dir()


def split_texts(texts: Texts, test_fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the texts to train on and those to test on, each class in the same proportion.

    Parameters
    ----------
    texts : Texts
    test_fraction : float
        In (0, 1). A label keeps at least one text to train on.
    seed : int
        Of NumPy's generator.

    Returns
    -------
    train, test : int ndarrays
        Numbers of the texts, rising; disjoint, together all of them.

    Raises
    ------
    ProblemError
        If the fraction is out of range, or nothing is left to test on.
    """
    if not 0 < test_fraction < 1:
        raise ProblemError(f"test_fraction: {test_fraction:g} found, 0 < test_fraction < 1 wanted")
    generator = np.random.default_rng(seed)
    drawn = []
    for label in texts.classes:
        of_class = generator.permutation(np.flatnonzero(texts.labels == label))
        drawn.append(of_class[: min(round(test_fraction * len(of_class)), len(of_class) - 1)])
    test = np.sort(np.concatenate(drawn))
    if not len(test):
        raise ProblemError(
            f"{texts.source}: {len(texts)} texts are too few to set {test_fraction:g} of each label apart for testing"
        )
    return np.setdiff1d(np.arange(len(texts)), test), test


def _parquet(path: Path, text: str, label: str) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise ProblemError(f"{path}: Parquet needs pyarrow, which is not installed: pip install attsvm[text]") from None
    try:
        _check_columns(path, pq.read_schema(path).names, text, label)
        table = pq.read_table(path, columns=[text, label])
        yield from zip(table[text].to_pylist(), table[label].to_pylist(), strict=True)
    except UnicodeDecodeError:
        raise ProblemError(f"{path}: the column {text!r} is not UTF-8") from None
    except pa.ArrowException as error:
        raise ProblemError(f"{path}: cannot be read as Parquet ({_first_line(error)})") from None


def _separated(delimiter: str) -> Callable[[Path, str, str], Iterator[Row]]:
    def read(path: Path, text: str, label: str) -> Iterator[Row]:
        # the default limit is below a long text
        csv.field_size_limit(2**31 - 1)
        reader = csv.reader(io.StringIO(_decoded(path), newline=""), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            _check_columns(path, header, text, label)
            places = header.index(text), header.index(label)
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise ProblemError(
                        f"{path}: line {reader.line_num} has {len(fields)} fields, "
                        f"{len(header)} wanted as in the header"
                    )
                yield fields[places[0]], fields[places[1]]
        except csv.Error as error:
            raise ProblemError(f"{path}: line {reader.line_num} cannot be read ({error})") from None

    return read


def _json_lines(path: Path, text: str, label: str) -> Iterator[Row]:
    for number, line in enumerate(_decoded(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ProblemError(f"{path}: line {number} is not JSON ({_first_line(error)})") from None
        if not isinstance(row, dict):
            raise ProblemError(f"{path}: line {number} holds {type(row).__name__}, an object wanted")
        _check_columns(path, list(row), text, label, f"line {number} has ")
        yield row[text], row[label]


def _folder(path: Path) -> Iterator[Row]:
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(folders) < 2:
        raise ProblemError(f"{path}: {len(folders)} folders found in it, at least two wanted, one a label")
    for folder in folders:
        for file in sorted(folder.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                text = _decoded(file)
                if not text.strip():
                    raise ProblemError(f"{file}: is empty, a text wanted")
                yield text, folder.name


READERS: dict[str, Callable[[Path, str, str], Iterator[Row]]] = {
    ".parquet": _parquet,
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
"""How a file with this ending is read."""


def _decoded(path: Path) -> str:
    try:
        # spreadsheets begin their files with a byte-order mark
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path}: byte {error.object[error.start]:#04x} at position {error.start:,} found, UTF-8 wanted; "
            "save the file as UTF-8"
        ) from None


def _check_columns(path: Path, found: list[str], text: str, label: str, where: str = "") -> None:
    for option, wanted in (("text", text), ("label", label)):
        if wanted not in found:
            columns = ", ".join(repr(name) for name in found[:8]) + (", …" if len(found) > 8 else "")
            raise ProblemError(
                f"{path}: {where}no column {wanted!r}; found {columns or 'none'}; name the one wanted by --{option}"
            )


def _text(found: Any, where: str) -> str:
    if found is None or (isinstance(found, str) and not found.strip()):
        raise ProblemError(f"{where}: empty, a text wanted in every row")
    if not isinstance(found, str):
        raise ProblemError(f"{where}: {type(found).__name__} found, a text wanted")
    # JSON can escape half of a surrogate pair, which no file can hold
    return found.encode("utf-8", "replace").decode("utf-8")


def _label(found: Any, where: str) -> str:
    if found is None or (isinstance(found, str) and not found.strip()) or found != found:
        raise ProblemError(f"{where}: empty, a label wanted in every row")
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    if not isinstance(found, str | int):
        raise ProblemError(f"{where}: {found!r} found, a word or a whole number wanted")
    return str(found).strip()


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
