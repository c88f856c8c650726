"""Word vectors that are learnt from the texts themselves."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD

from attsvm._utils.checks import check_integer
from attsvm._utils.shapes import Float, Int
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.texts.tokenizers import WORDS, Tokenizer

MAX_LENGTH = 400
"""Largest number of words that are kept of a text, from its beginning."""

SMOOTHING = 0.75
"""Exponent of the contexts' frequencies. Without smoothing, rare contexts have the largest mutual information."""


@dataclass(frozen=True)
class WordVectors:
    """A vocabulary and a vector for each of its words."""

    vocabulary: tuple[str, ...]  # V words, the most frequent first
    # their vectors. The last row is zero: it is the only token of a text without known words.
    table: Float[np.ndarray, "V+1 d"]
    # largest number of words that are kept of a text, from its beginning. Words outside the vocabulary do not count.
    max_length: int = MAX_LENGTH
    min_documents: int = 1  # number of texts that each word occurred in at least
    tokenizer: Tokenizer = WORDS

    tokens: ClassVar[str] = "word vectors"

    @property
    def split_by(self) -> str:
        """Name of the tokenizer."""
        return self.tokenizer.name

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.vocabulary)}

    def known(self, text: str) -> list[tuple[int, int, int]]:
        """The words kept of a text: the index in the vocabulary, and where each begins and ends in the text."""
        placed = zip(self.tokenizer.words(text), self.tokenizer.places(text), strict=True)
        return [(self._index[word], *place) for word, place in placed if word in self._index][: self.max_length]

    def number_cut(self, texts: Iterable[str]) -> int:
        """How many texts have more known words than are kept."""
        return sum(len(self._numbers(self.tokenizer.words(text))) > self.max_length for text in texts)

    def _numbers(self, words: Iterable[str]) -> list[int]:
        return [self._index[word] for word in words if word in self._index]

    def encode(self, documents: Iterable[Sequence[str]]) -> tuple[Sequences, Int[np.ndarray, " N"]]:
        """Encode the words of texts as sequences of word vectors, of at least one and at most ``max_length`` tokens.

        Returns the sequences, and the index of each token's word; V for the token of a text without known words.
        """
        numbers = [self._numbers(words)[: self.max_length] or [len(self.vocabulary)] for words in documents]
        offsets = np.concatenate([[0], np.cumsum([len(document) for document in numbers])])
        ids = np.fromiter((number for document in numbers for number in document), np.int32, count=offsets[-1])
        return Sequences(self.table, ids, offsets), ids


def learn_word_vectors(
    documents: Sequence[Sequence[str]],
    *,
    dim: int = 200,
    min_documents: int = 5,
    window: int = 5,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    tokenizer: Tokenizer = WORDS,
) -> WordVectors:
    """Learn a vector for every word that occurs in enough texts, from the words that occur near it.

    The vectors are the singular value decomposition of the smoothed positive pointwise mutual information of words and
    their neighbours.

    ``documents``: the words of each text. ``dim``: length d of a vector. It is smaller if the vocabulary is smaller.
    ``min_documents``: number of texts that a word must occur in to be in the vocabulary. ``window``: words at most this
    far apart are neighbours. ``max_length``: largest number of words of a text in its sequence. The vectors are learnt
    from whole texts. ``seed``: seed of the truncated singular value decomposition. The same texts and seed give the
    same vectors. ``tokenizer``: what splits other texts into words.

    Raises ProblemError if fewer than two words occur in enough texts, or an argument is out of range.
    """
    sizes = {"dim": dim, "min_documents": min_documents, "window": window, "max_length": max_length}
    for name, value in sizes.items():
        check_integer(name, value, 1)
    found, flat, owners = _numbered(documents)
    vocabulary, flat, owners = _frequent(found, flat, owners, min_documents)
    if len(vocabulary) < 2:
        one_word = np.median([len(words) for words in documents]) <= 1
        raise ProblemError(
            f"texts: expected at least two words that occur in at least {min_documents} of {len(documents)} texts, got "
            f"{len(vocabulary)}; lower min_documents or give more texts"
            + ", or use the tokenizer 'characters', because most texts are one word without spaces"
            * bool(one_word)
        )
    vectors = neighbour_vectors(flat, owners, len(vocabulary), dim=dim, window=window, seed=seed)
    table = np.vstack([vectors, np.zeros((1, vectors.shape[1]))]).astype(np.float32)
    return WordVectors(vocabulary, table, max_length, min_documents, tokenizer)


def neighbour_vectors(
    flat: Int[np.ndarray, " N"],
    documents: Int[np.ndarray, " N"],
    size: int,
    *,
    dim: int,
    window: int = 5,
    seed: int = 0,
) -> Float[np.ndarray, "V d"]:
    """A unit vector for each of ``size`` words, from the word and the document of each position.

    See :func:`learn_word_vectors`.
    """
    return _decomposed(_ppmi(_cooccurrence(flat, documents, size, window)), dim, seed)


def _numbered(documents: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """All words, and for every position in the texts the index of its word and that of its text."""
    numbers: dict[str, int] = {}
    flat, lengths = array("i"), []
    for words in documents:
        flat.extend(numbers.setdefault(word, len(numbers)) for word in words)
        lengths.append(len(words))
    return list(numbers), np.array(flat, dtype=np.int32), np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)


def _frequent(
    found: list[str], flat: np.ndarray, documents: np.ndarray, min_documents: int
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The words that occur in enough texts, most frequent first, and the positions that hold one of them."""
    once = np.unique(documents.astype(np.int64) * max(len(found), 1) + flat) % max(len(found), 1)
    enough = np.bincount(once, minlength=len(found)) >= min_documents
    counts = np.bincount(flat, minlength=len(found))
    # ties are broken alphabetically, so that the vocabulary does not depend on the order of the texts
    kept = sorted(np.flatnonzero(enough), key=lambda number: (-counts[number], found[number]))
    renumbered = np.full(len(found), -1, dtype=np.int32)
    renumbered[kept] = np.arange(len(kept), dtype=np.int32)
    flat = renumbered[flat]
    return tuple(found[number] for number in kept), flat[flat >= 0], documents[flat >= 0]


def _cooccurrence(flat: np.ndarray, documents: np.ndarray, size: int, window: int) -> sp.csr_array:
    """How often two words occur at most ``window`` positions apart in a text; symmetric, shape (V, V)."""
    one_way = sp.csr_array((size, size), dtype=np.float32)
    for apart in range(1, window + 1):
        same = documents[apart:] == documents[:-apart]
        pair = flat[:-apart][same], flat[apart:][same]
        one_way += sp.csr_array((np.ones(len(pair[0]), dtype=np.float32), pair), shape=(size, size))
    return one_way + one_way.T


def _ppmi(cooccurrence: sp.csr_array) -> sp.csr_array:
    """Positive pointwise mutual information, with the contexts' frequencies smoothed."""
    pairs = cooccurrence.tocoo()
    totals = np.asarray(cooccurrence.sum(axis=0), dtype=float)
    smoothed = totals**SMOOTHING
    smoothed /= smoothed.sum()
    row, column = pairs.coords
    information = np.log(pairs.data / (totals[row] * smoothed[column]))
    kept = information > 0
    return sp.csr_array((information[kept].astype(np.float32), (row[kept], column[kept])), shape=pairs.shape)


def _decomposed(matrix: sp.csr_array, dim: int, seed: int) -> np.ndarray:
    """Left singular vectors times the square roots of the singular values, with unit rows, shape (V, d)."""
    decomposition = TruncatedSVD(min(dim, matrix.shape[0]), random_state=seed)
    scaled = decomposition.fit_transform(matrix)
    tiny = np.finfo(np.float32).tiny
    vectors = scaled / np.sqrt(np.maximum(decomposition.singular_values_, tiny))
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), tiny)
    return unit
