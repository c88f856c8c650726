"""The main job on texts: an attention classifier over word vectors, beside two baselines, and what it attends to."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from attsvm.apps.texts.baselines import mean_token_accuracy, tf_idf_accuracy
from attsvm.apps.texts.states import States, load_states
from attsvm.apps.texts.text import Texts, split_texts
from attsvm.apps.texts.word_attention import WordAttention, word_attention
from attsvm.apps.texts.words import MAX_LENGTH, WordVectors, learn_word_vectors
from attsvm.datasets.sequences import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier, MarginReport
from attsvm.estimator.forward import effective_number

ALPHA = 20.0
"""Strength of the penalty: the head stays small, and attention has to gather what tells the labels apart."""

LEARNING_RATES = {"adam": 0.003, "mirror_descent": 0.1}
"""Where none is given; of word vectors of unit length."""

MARGIN_SAMPLE = 50
"""Training texts whose Att-SVM is solved: every word that is not selected is a constraint, about 200 a review."""

LISTED_SHARE = 1 / 500
"""A word is listed if it occurs in this share of the test texts: of a rarer one nothing is known."""


@dataclass(frozen=True)
class Part:
    """The training texts or the test texts, and what the classifier does on them.

    Attributes
    ----------
    texts : Texts
    sequences : Sequences
        n texts as tokens, N in all.
    words : int ndarray, shape (N,)
        The number of each token's word; that past the vocabulary for the token of a text without known words.
    predicted : str ndarray, shape (n,)
    probability : ndarray, shape (n,)
        Of the predicted class.
    attention : ndarray, shape (N,)
        What each token receives.
    """

    texts: Texts
    sequences: Sequences
    words: Int[np.ndarray, " N"]
    predicted: np.ndarray
    probability: Float[np.ndarray, " n"]
    attention: Float[np.ndarray, " N"]

    @property
    def accuracy(self) -> float:
        """Share of the texts classified correctly."""
        return float((self.predicted == self.texts.labels).mean())

    @property
    def effective(self) -> Float[np.ndarray, " n"]:
        """Effective number of words of each text, the exponential of the attention's entropy."""
        return effective_number(self.attention, self.sequences)

    @property
    def largest(self) -> Float[np.ndarray, " n"]:
        """What the most attended word of each text receives."""
        return np.maximum.reduceat(self.attention, self.sequences.offsets[:-1])

    def attention_of(self, row: int) -> Float[np.ndarray, " T"]:
        """What the words of one text receive."""
        return self.attention[self.sequences.offsets[row] : self.sequences.offsets[row + 1]]


@dataclass(frozen=True)
class TextFit:
    """An attention classifier on texts and what is known about it.

    Attributes
    ----------
    encoder : WordVectors or States
        What the tokens are. Word vectors are learnt from the training texts alone.
    classifier : AttentionClassifier
    train, test : Part
    words : WordAttention
        Over the test texts.
    baselines : dict
        Accuracy on ``train`` and ``test`` of ``mean_token`` and ``tf_idf``.
    margins : MarginReport
        Of what the classifier selects in a sample of the training texts.
    seconds : dict
        Wall time of ``words``, ``training``, ``baselines``, ``margins`` and ``everything``.
    """

    encoder: WordVectors | States
    classifier: AttentionClassifier
    train: Part
    test: Part
    words: WordAttention
    baselines: dict[str, dict[str, float]]
    margins: MarginReport
    seconds: dict[str, float]

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of ``words.by_class``."""
        return [str(label) for label in self.classifier.classes_]

    @property
    def listed_from(self) -> int:
        """Test texts that a word must occur in to be listed."""
        return max(2, round(LISTED_SHARE * len(self.test.texts)))

    @property
    def listed(self) -> Int[np.ndarray, " listed"]:
        """The words that occur in enough test texts."""
        return np.flatnonzero(self.words.documents[: len(self.encoder.vocabulary)] >= self.listed_from)


def fit_text(
    texts: Texts,
    test: Texts | None = None,
    *,
    test_fraction: float = 0.25,
    seed: int = 0,
    dim: int = 200,
    min_documents: int = 5,
    max_length: int = MAX_LENGTH,
    embed: str | os.PathLike[str] | None = None,
    classifier: AttentionClassifier | None = None,
    callback: Callable[[dict[str, float]], object] | None = None,
) -> TextFit:
    """Learn word vectors and attention from texts, and measure them on texts set apart.

    Parameters
    ----------
    texts : Texts
        To train on; also to test on, where ``test`` is None.
    test : Texts, optional
        Their labels are among those of ``texts``.
    test_fraction : float
        Share of each class set apart where ``test`` is None, in (0, 1).
    seed : int
        Of the split and of the word vectors.
    dim, min_documents, max_length : int
        Of :func:`attsvm.apps.texts.words.learn_word_vectors`.
    embed : path, optional
        A pretrained transformer, whose states are the tokens instead of word vectors (see
        :func:`attsvm.apps.texts.states.load_states`).
    classifier : AttentionClassifier, optional
        To be fitted; that of :func:`text_classifier` with this seed if None.
    callback : callable, optional
        Called with each line of the classifier's history.

    Raises
    ------
    ProblemError
        If a test label is not among the training labels, too few words are known, or an argument is out of range.
    """
    if seed < 0:
        raise ProblemError(f"seed: {seed} found, at least 0 wanted")
    clock = _Clock()
    if test is None:
        rows, held_out = split_texts(texts, test_fraction, seed)
        texts, test = texts[rows], texts[held_out]
    classes = texts.classes
    for label in test.classes:
        if label not in classes:
            raise ProblemError(f"{test.source}: label {label!r} found, one of {', '.join(map(repr, classes))} wanted")
    encoder: WordVectors | States
    if embed is None:
        encoder = learn_word_vectors(
            texts.texts, dim=dim, min_documents=min_documents, max_length=max_length, seed=seed
        )
    else:
        encoder = load_states(embed, max_length)
    of_train, of_test = encoder.encode(texts.texts), encoder.encode(test.texts)
    clock.lap("words")
    classifier = classifier or text_classifier(seed=seed)
    classifier.fit(of_train[0], texts.labels, callback=callback)
    on_train, on_test = _part(classifier, texts, *of_train), _part(classifier, test, *of_test)
    clock.lap("training")
    baselines = {
        "mean_token": mean_token_accuracy(of_train[0], texts.labels, of_test[0], test.labels),
        "tf_idf": tf_idf_accuracy(texts, test, min_documents),
    }
    clock.lap("baselines")
    margins = classifier.margin_report(max_sequences=MARGIN_SAMPLE)
    clock.lap("margins")
    numbers = np.searchsorted(classifier.classes_, test.labels)
    words = word_attention(
        on_test.words,
        on_test.sequences.lengths,
        on_test.attention,
        numbers,
        num_words=len(encoder.vocabulary) + 1,
        num_classes=len(classes),
    )
    return TextFit(encoder, classifier, on_train, on_test, words, baselines, margins, clock.seconds())


def text_classifier(
    *,
    optimizer: str | None = None,
    p: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
) -> AttentionClassifier:
    """The classifier that texts are fitted by, where the caller leaves something open.

    Parameters
    ----------
    optimizer : str, optional
        Of :class:`attsvm.AttentionClassifier`; mirror descent where ``p`` is given, else Adam.
    p : float, optional
        Of mirror descent.
    max_steps, learning_rate, seed
        Of the classifier.

    Raises
    ------
    ProblemError
        If ``p`` is given with an optimiser that has none, or mirror descent without one.
    """
    optimizer = optimizer or ("adam" if p is None else "mirror_descent")
    if (optimizer == "mirror_descent") != (p is not None):
        found = "no p" if p is None else f"p = {p:g}"
        raise ProblemError(f"optimizer: {optimizer} and {found} found; mirror_descent and a p above 1 belong together")
    rate = LEARNING_RATES.get(optimizer) if learning_rate is None else learning_rate
    given = {"p": p, "max_steps": max_steps, "learning_rate": rate}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return AttentionClassifier(optimizer, alpha=ALPHA, random_state=seed, **chosen)


def _part(classifier: AttentionClassifier, texts: Texts, sequences: Sequences, words: np.ndarray) -> Part:
    probability = classifier.predict_proba(sequences)
    return Part(
        texts,
        sequences,
        words,
        classifier.classes_[probability.argmax(axis=1)],
        probability.max(axis=1),
        classifier.attention(sequences),
    )


class _Clock:
    """Wall time of each lap, and of everything."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name], self._last = now - self._last, now

    def seconds(self) -> dict[str, float]:
        return {**self._laps, "everything": time.perf_counter() - self._started}
