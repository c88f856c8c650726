"""Labelled texts from files: Parquet, CSV, JSON lines, or a folder with one folder per label."""

import csv
import hashlib
import io
import json
import os
import reprlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attsvm._utils.checks import check_number, check_seed
from attsvm._utils.files import read_text, reason
from attsvm.datasets import check_columns, class_names, read_columns
from attsvm.errors import ProblemError

Row = tuple[Any, Any]
"""A text and its label, as the file has them."""

COLUMN_HINT = "; choose the columns by --text and --label"

LABEL_LENGTH = 200
"""Largest length of a label. A longer one is a text, from the wrong column."""

UNSUITABLE = {"Cc", "Cs"}
"""Unicode categories that a label cannot have: control characters, and halves of surrogate pairs."""


@dataclass(frozen=True)
class Texts:
    """Texts and their labels."""

    texts: tuple[str, ...]  # n texts that are not empty
    labels: np.ndarray  # shape (n,), labels as strings: the number 1 and the string "1" are the same label
    source: str  # where they came from, for error messages

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: np.ndarray) -> "Texts":
        """Some of the texts, in the order of the int array ``rows``."""
        return Texts(tuple(self.texts[row] for row in rows), self.labels[rows], self.source)

    @property
    def classes(self) -> list[str]:
        """The labels that occur: sorted by value if all are whole numbers, otherwise alphabetically."""
        found = [str(label) for label in np.unique(self.labels)]
        return sorted(found, key=int) if all(_is_whole(label) for label in found) else found

    def named(self, names: Mapping[str, str]) -> "Texts":
        """Rename the labels."""
        classes = self.classes
        for label in names:
            if label not in classes:
                raise ProblemError(f"--classes: expected labels among {', '.join(classes)}, got {label!r}")
        named = [names.get(str(label), str(label)) for label in self.labels]
        if len(set(named)) < len(classes):
            raise ProblemError(
                f"classes: expected different names for different labels, got {', '.join(sorted(set(named)))}"
            )
        return Texts(self.texts, np.array(named), self.source)

    @property
    def sha256(self) -> str:
        """Hash of every text and label."""
        found = hashlib.sha256()
        for text, label in zip(self.texts, self.labels, strict=True):
            found.update(json.dumps([text, str(label)]).encode())
        return found.hexdigest()


def read_texts(
    path: str | os.PathLike[str], text: str = "text", label: str = "label", names: Mapping[str, str] | None = None
) -> Texts:
    """Read labelled texts.

    ``path``: a file ``.parquet`` (with the extra ``text``), ``.csv``, ``.tsv``, ``.jsonl`` or ``.ndjson``; or a folder
    with one folder per label, whose files are the texts. Files are encoded in UTF-8. ``text``, ``label``: names of the
    columns of a file. Labels are strings, whole numbers or booleans. ``names``: names of labels, which replace them.
    The names of classes in a Parquet file of the Hugging Face hub replace its numbers first.

    The texts are in the order of the file; of a folder, they are sorted by label and file name.

    Raises ProblemError if the file is missing, cannot be read, is not UTF-8 or has no such column; if it has no rows, a
    row without text or label, or only one label; if a name is for a label that does not occur; or if pyarrow is needed
    and not installed.
    """
    source = Path(path)
    if source.is_dir():
        rows = _folder(source)
    elif not source.exists():
        raise ProblemError(f"{path}: no such file or folder")
    else:
        reader = READERS.get(source.suffix.lower())
        if reader is None:
            raise ProblemError(f"{path}: expected a file {', '.join(READERS)}, or a folder with one folder per label")
        rows = reader(source, text, label)
    texts, labels = [], []
    for number, (found_text, found_label) in enumerate(rows, start=1):
        texts.append(_text(found_text, f"{path}: row {number}, {text}"))
        labels.append(_label(found_label, f"{path}: row {number}, {label}"))
    if not texts:
        raise ProblemError(f"{path}: expected texts of at least two labels, got no text")
    if len(set(labels)) == 1:
        raise ProblemError(f"{path}: expected at least two labels, got only {labels[0]!r}")
    return Texts(tuple(texts), np.array(labels), str(path)).named(names or {})


def split_texts(texts: Texts, test_fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Split texts into a training part and a test part, with the same proportion of each class.

    ``test_fraction``: in (0, 1). At least one text of each label is left to train on. Returns indices of the texts in
    ascending order; together they are all texts, each once.

    Raises ProblemError if the fraction is out of range, or no text is left to test on.
    """
    check_number("test_fraction", test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)
    check_seed(seed)
    generator = np.random.default_rng(seed)
    drawn = []
    for label in texts.classes:
        of_class = generator.permutation(np.flatnonzero(texts.labels == label))
        drawn.append(of_class[: min(round(test_fraction * len(of_class)), len(of_class) - 1)])
    test = np.sort(np.concatenate(drawn))
    if not len(test):
        raise ProblemError(
            f"{texts.source}: expected enough texts to set apart {test_fraction:g} of each label for testing, got "
            f"{len(texts)} texts of {len(texts.classes)} labels"
        )
    return np.setdiff1d(np.arange(len(texts)), test), test


def _parquet(path: Path, text: str, label: str) -> Iterator[Row]:
    texts, labels = read_columns([path], [text, label], extra="text", hint=COLUMN_HINT)
    names = dict(enumerate(class_names(path, label)))
    return zip(texts, [names.get(found, found) if isinstance(found, int) else found for found in labels], strict=True)


def _separated(delimiter: str) -> Callable[[Path, str, str], Iterator[Row]]:
    def read(path: Path, text: str, label: str) -> Iterator[Row]:
        # the default limit is below a long text
        csv.field_size_limit(2**31 - 1)
        reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            separated = f"; the fields of a line are separated by {delimiter!r}"
            check_columns(path, header, [text, label], separated if len(header) == 1 else COLUMN_HINT)
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
            raise ProblemError(f"{path}: line {reader.line_num} cannot be read ({error})") from None

    return read


def _json_lines(path: Path, text: str, label: str) -> Iterator[Row]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_checked_names)
        except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError
            raise ProblemError(f"{path}: line {number} is not JSON ({reason(error)})") from None
        if not isinstance(row, dict):
            raise ProblemError(f"{path}: line {number}: expected an object, got {type(row).__name__}")
        check_columns(f"{path}: line {number}", list(row), [text, label], COLUMN_HINT)
        yield row[text], row[label]


def _checked_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has several values of one name")
    return found


def _folder(path: Path) -> Iterator[Row]:
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(folders) < 2:
        raise ProblemError(f"{path}: expected at least two folders in it, one per label, got {len(folders)}")
    for folder in folders:
        for file in sorted(folder.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                text = read_text(file)
                if not text.strip():
                    raise ProblemError(f"{file}: expected a text, got an empty file")
                yield text, folder.name


READERS: dict[str, Callable[[Path, str, str], Iterator[Row]]] = {
    ".parquet": _parquet,
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
"""The function that reads files with an ending."""


def _text(found: Any, where: str) -> str:
    if found is None or (isinstance(found, str) and not found.strip()):
        raise ProblemError(f"{where}: expected a text, got an empty cell")
    if not isinstance(found, str):
        raise ProblemError(f"{where}: expected a text, got {type(found).__name__}")
    # JSON can escape half of a surrogate pair, which no file can hold
    return found.encode("utf-8", "replace").decode("utf-8")


def _label(found: Any, where: str) -> str:
    if found is None or (isinstance(found, str) and not found.strip()) or found != found:
        raise ProblemError(f"{where}: expected a label, got an empty cell")
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, str | int):
        raise ProblemError(f"{where}: expected a word or a whole number, got {reprlib.repr(found)}")
    if isinstance(found, int) and abs(found) >= 10**LABEL_LENGTH:
        raise ProblemError(f"{where}: expected a whole number of at most {LABEL_LENGTH} digits, got a larger one")
    label = str(found).strip()
    if len(label) > LABEL_LENGTH:
        raise ProblemError(
            f"{where}: expected a label of at most {LABEL_LENGTH} characters, got {len(label):,}{COLUMN_HINT}"
        )
    if any(unicodedata.category(letter) in UNSUITABLE for letter in label):
        raise ProblemError(f"{where}: expected a label without control characters and surrogates, got {label!r}")
    return label


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal()
