"""Texts without labels as documents of word numbers: the most frequent words, and one symbol for all others."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from attsvm._fit.texts.readers import READERS, TextFormat, ending_of, find_files
from attsvm._utils.shapes import Int
from attsvm.errors import ProblemError
from attsvm.texts import WORDS, Tokenizer

OTHER = "‹other›"
"""The symbol of all words that are not in the vocabulary; no text contains it as a word."""


@dataclass(frozen=True)
class Corpus:
    """Documents as word numbers."""

    names: tuple[str, ...]  # K names: the words of the vocabulary, the most frequent first, and :data:`OTHER`
    documents: tuple[Int[np.ndarray, " k"], ...]  # each of at least one word

    @property
    def positions(self) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        """The word and the document of every position."""
        lengths = [len(document) for document in self.documents]
        return np.concatenate(self.documents), np.repeat(np.arange(len(lengths)), lengths)


def read_corpus(
    path: str,
    column: str = "text",
    tokenizer: Tokenizer = WORDS,
    *,
    encoding: str | None = None,
    quoting: str | None = None,
) -> list[str]:
    """Read texts: one on each line of a file ``.txt``, or a column of a table.

    ``path``: a file ``.txt``, or what :func:`attsvm._fit.texts.text.read_texts` reads, except for folders of labels.
    ``column``: the column of the texts in a table. ``tokenizer``: what splits texts into words. ``encoding``,
    ``quoting``: see :class:`attsvm._fit.texts.readers.TextFormat`.

    Raises ProblemError if the file is missing or cannot be read, its ending is unknown, or it contains no words.
    """
    found, _ = _read(path, column, None, TextFormat(encoding, quoting))
    texts = [text for text in found if isinstance(text, str) and tokenizer.words(text)]
    if not texts:
        raise ProblemError(f"{path}: expected texts with words, got none")
    return texts


def read_new_texts(
    path: str, column: str = "text", label: str | None = None, *, required: bool = False, encoding: str | None = None
) -> tuple[list[str], np.ndarray | None]:
    """Read texts to predict on: every line of a file ``.txt`` but an empty last one, or a column of a table.

    ``label``: the column of labels, which a table need not have unless it is ``required``.
    ``encoding``: by default UTF-8.

    Returns the texts, and their labels as words, or None.

    Raises ProblemError if the file cannot be read, or a cell holds no text.
    """
    try:
        texts, labels = _read(path, column, label, TextFormat(encoding))
    except ProblemError as error:
        if label is None or required or f"expected a column {label!r}" not in str(error):
            raise
        texts, labels = _read(path, column, None, TextFormat(encoding))
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ProblemError(
                f"{path}: row {number}, counted from 0, {column}: expected a text, got {type(text).__name__}"
            )
    if not texts:
        raise ProblemError(f"{path}: expected texts, got none")
    return [str(text) for text in texts], None if labels is None else np.array([str(one) for one in labels])


def _read(path: str, column: str, label: str | None, form: TextFormat) -> tuple[list[object], list[object] | None]:
    """The cells of the texts and of their labels."""
    rows: list[tuple[object, object]] = []
    for file in find_files(path, [".txt", *READERS]):
        if ending_of(file) == ".txt":
            rows += [(line, None) for line in form.read(file).removesuffix("\n").split("\n")]
            label = None
        else:
            rows += READERS[ending_of(file)](file, column, label or column, form)
    return [text for text, _ in rows], None if label is None else [found for _, found in rows]


def texts_hash(texts: Sequence[str]) -> str:
    """Hash of all texts."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode("utf-8", "replace") + b"\0")
    return found.hexdigest()


def frequent_words(documents: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """The most frequent words of documents; ties are broken alphabetically."""
    counts = Counter(word for document in documents for word in document)
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:size])


def numbered(documents: Iterable[Sequence[str]], vocabulary: Sequence[str]) -> Corpus:
    """Documents as numbers of a vocabulary; all other words get the number after the last one."""
    number = {word: index for index, word in enumerate(vocabulary)}
    other = len(vocabulary)
    found = tuple(np.array([number.get(word, other) for word in document]) for document in documents if document)
    return Corpus((*vocabulary, OTHER), found)
