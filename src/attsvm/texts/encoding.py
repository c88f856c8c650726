"""Texts as sequences of tokens, by word vectors or by a transformer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from narwhals.dependencies import is_into_series

from attsvm._utils.callers import warn_caller
from attsvm._utils.shapes import Int
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.texts.states import States, load_states
from attsvm.texts.tokenizers import find_tokenizer, split_words, warn_of_unspaced
from attsvm.texts.words import WordVectors, learn_word_vectors

Encoder = WordVectors | States
"""An encoder turns texts into sequences of tokens."""


@dataclass(frozen=True, eq=False)
class EncodedTexts:
    """n texts, their words, and the tokens that attention reads."""

    texts: tuple[str, ...]
    documents: list[list[str]]  # the words of each text, of which n-grams are made
    sequences: Sequences  # n texts as tokens, N in all
    # the index of each token in the vocabulary of the encoder; V for the token of a text without known words
    words: Int[np.ndarray, " N"]
    encoder: Encoder

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: Int[np.ndarray, " m"]) -> "EncodedTexts":
        """Some of the texts."""
        of_texts = np.split(self.words, self.sequences.offsets[1:-1])
        words = np.concatenate([of_texts[row] for row in rows])
        texts, documents = tuple(self.texts[row] for row in rows), [self.documents[row] for row in rows]
        return EncodedTexts(texts, documents, self.sequences[rows], words, self.encoder)


def read(X: Any) -> tuple[str, ...]:
    """Texts from a list, tuple, array or series of strings.

    Raises ProblemError if it is something else, is empty, or an entry is not a string.
    """
    if is_into_series(X):
        X = X.to_list()
    shape = getattr(X, "shape", None)
    if isinstance(X, str | bytes) or not (isinstance(X, list | tuple) or (shape is not None and len(shape) == 1)):
        got = f"shape {tuple(shape)}" if shape is not None else f"a {type(X).__name__}"
        raise ProblemError(f"X: expected a list, array or series of texts, got {got}")
    if not len(X):
        raise ProblemError("X: expected at least one text, got none")
    for number, text in enumerate(X):
        if not isinstance(text, str):
            is_missing = (
                text is None
                or (isinstance(text, float) and np.isnan(text))
                or type(text).__name__ in ("NAType", "NaTType")
            )
            got = "a missing value" if is_missing else type(text).__name__
            raise ProblemError(f"X: expected a text at position {number}, got {got}")
    # half of a surrogate pair, which JSON can escape, is no character
    return tuple(str(text).encode("utf-8", "replace").decode("utf-8") for text in X)


def learn_encoder(texts: Sequence[str], classifier: Any, seed: int) -> EncodedTexts:
    """Learn word vectors from texts, or load a transformer, and encode the texts with it.

    ``classifier``: a :class:`attsvm.TextClassifier`, whose parameters say how. ``seed``: of the word vectors.

    Raises ProblemError if the vocabulary is too small, or a parameter is out of range.
    """
    if classifier.embed is not None:
        if classifier.tokenizer is not None:
            got = repr(classifier.tokenizer)
            raise ProblemError(f"tokenizer: expected None with embed, which has its own, got {got}")
        return encode(texts, load_states(classifier.embed, classifier.max_length, classifier.device))
    tokenizer = find_tokenizer(classifier.tokenizer)
    documents = split_words(texts, tokenizer)
    warn_of_unspaced(documents, tokenizer)
    sizes = {name: getattr(classifier, name) for name in ("dim", "min_documents", "max_length")}
    vectors = learn_word_vectors(documents, **sizes, seed=seed, tokenizer=tokenizer)
    return EncodedTexts(tuple(texts), documents, *vectors.encode(documents), vectors)


def encode(texts: Sequence[str], encoder: Encoder) -> EncodedTexts:
    """Encode texts with a known encoder."""
    if isinstance(encoder, WordVectors):
        documents = split_words(texts, encoder.tokenizer)
        return EncodedTexts(tuple(texts), documents, *encoder.encode(documents), encoder)
    return EncodedTexts(tuple(texts), split_words(texts), *encoder.encode(texts), encoder)


def encode_new(texts: Sequence[str], encoder: Encoder) -> EncodedTexts:
    """Encode texts with the encoder of a fit; a warning counts those without any of its words."""
    encoded = encode(texts, encoder)
    if unknown := int((encoded.words == len(encoder.vocabulary)).sum()):
        warn_caller(f"X: {unknown:,} of {len(encoded):,} texts have no word of the fit", RuntimeWarning)
    return encoded
