"""Labelled texts from files: Parquet, CSV, JSON lines, or a folder with one folder per label."""

import hashlib
import json
import os
import re
import reprlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attsvm._fit.splits import split_classes
from attsvm._fit.texts.readers import COLUMN_HINT, READERS, Row, TextFormat, ending_of, find_files
from attsvm._utils.checks import check_number, check_seed
from attsvm.errors import ProblemError

LABEL_LENGTH = 200
"""Largest length of a label. A longer one is a text, from the wrong column."""

WHOLE = re.compile(r"\+?(-?[0-9]+)(?:\.0*)?")
"""A whole number as some programs write it: 1, 1.0, +1."""

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
    path: str | os.PathLike[str],
    text: str = "text",
    label: str = "label",
    names: Mapping[str, str] | None = None,
    *,
    encoding: str | None = None,
    quoting: str | None = None,
) -> Texts:
    """Read labelled texts.

    ``path``: a file ``.parquet`` (with the extra ``text``), ``.csv``, ``.tsv``, ``.jsonl`` or ``.ndjson``, also
    compressed as ``.csv.gz``; a folder of such files, or a pattern, whose rows are put together; or a folder with one
    folder per label, whose files are the texts. ``text``, ``label``: names of the columns of a file. Labels are
    strings, whole numbers or booleans; 1, 1.0 and "1" are the same label. ``names``: names of labels, which replace
    them. The names of classes in a Parquet file of the Hugging Face hub replace its numbers first. ``encoding``,
    ``quoting``: see :class:`attsvm._fit.texts.readers.TextFormat`.

    The texts are in the order of the file; of a folder, they are sorted by label and file name.

    Raises ProblemError if the file is missing, cannot be read, is not in the encoding or has no such column; if it has
    no rows, a row without text or label, or only one label; if a name is for a label that does not occur; if a folder
    has files of several parts of the data, such as train and test; or if pyarrow is needed and not installed.
    """
    form = TextFormat(encoding, quoting)
    parts: Iterable[tuple[object, Iterable[Row]]]
    entries = sorted(Path(path).iterdir()) if Path(path).is_dir() else []
    folders = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    if len(folders) > 1:
        parts = [(path, _texts_of(folders, form))]
    elif entries and not any(ending_of(entry) in READERS for entry in entries):
        raise ProblemError(f"{path}: expected at least two folders in it, one per label, got {len(folders)}")
    else:
        files = find_files(str(path), list(READERS), " or folder with a folder for each label")
        parts = ((file, READERS[ending_of(file)](file, text, label, form)) for file in files)
    texts, labels = [], []
    for source, rows in parts:
        for number, (found_text, found_label) in enumerate(rows):
            texts.append(_text(found_text, f"{source}: row {number}, counted from 0, {text}"))
            labels.append(_label(found_label, f"{source}: row {number}, counted from 0, {label}"))
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
    train, test = split_classes(texts.labels, texts.classes, test_fraction, seed, left=1)
    if not len(test):
        raise ProblemError(
            f"{texts.source}: expected enough texts to set apart {test_fraction:g} of each label for testing, got "
            f"{len(texts)} texts of {len(texts.classes)} labels"
        )
    return train, test


def _texts_of(folders: list[Path], form: TextFormat) -> Iterator[Row]:
    for folder in folders:
        for file in sorted(folder.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                text = form.read(file)
                if not text.strip():
                    raise ProblemError(f"{file}: expected a text, got an empty file")
                yield text, folder.name


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
    label = whole[1] if (whole := WHOLE.fullmatch(label)) else label
    if len(label) > LABEL_LENGTH:
        raise ProblemError(
            f"{where}: expected a label of at most {LABEL_LENGTH} characters, got {len(label):,}{COLUMN_HINT}"
        )
    if any(unicodedata.category(letter) in UNSUITABLE for letter in label):
        raise ProblemError(f"{where}: expected a label without control characters and surrogates, got {label!r}")
    return label


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal()
