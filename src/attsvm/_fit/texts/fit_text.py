"""The application on texts: an attention classifier over word vectors, two baselines, and what it attends to."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attsvm._fit.baselines import tuned_accuracy
from attsvm._fit.texts.result import Encoder, TextFit, TextPart
from attsvm._fit.texts.states import load_states
from attsvm._fit.texts.text import Texts, split_texts
from attsvm._fit.texts.tokenizers import find_tokenizer, split_words, warn_of_unspaced
from attsvm._fit.texts.word_attention import word_attention
from attsvm._fit.texts.words import MAX_LENGTH, learn_word_vectors
from attsvm._utils.checks import check_number, check_seed
from attsvm._utils.progress import Callback
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier
from attsvm.optimizers import optimizer_options

ALPHA = 20.0
"""Strength of the penalty. It keeps the head small, so that attention has to concentrate on the telling words."""

LEARNING_RATES = {"adam": 0.003, "mirror_descent": 0.1}
"""Default learning rates, for word vectors of unit length."""

MARGIN_SAMPLE = 50
"""Number of training texts whose Att-SVM is solved. Every word that is not selected is a constraint."""

PENALTIES = np.logspace(-2, 2, 9)
"""Values of C among which cross-validation chooses."""


def fit_text(
    texts: Texts,
    test: Texts | None = None,
    *,
    test_fraction: float = 0.25,
    seed: int = 0,
    dim: int = 200,
    min_documents: int = 5,
    max_length: int = MAX_LENGTH,
    tokenizer: str | Callable[[str], Sequence[str]] | None = None,
    embed: str | os.PathLike[str] | None = None,
    optimizer: str | None = None,
    p: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    device: str | None = None,
    callback: Callback | None = None,
) -> TextFit:
    """Learn word vectors and attention from texts, and evaluate them on test texts.

    ``texts``: to train on. ``test``: test texts, with labels among those of ``texts``; without them ``test_fraction``,
    in (0, 1), of each class is set apart. ``seed``: of the split, of the word vectors and of the classifier. ``dim``,
    ``min_documents``, ``max_length``: arguments of :func:`attsvm._fit.texts.words.learn_word_vectors`. ``tokenizer``:
    what splits a text into words (see :func:`attsvm._fit.texts.tokenizers.find_tokenizer`). ``embed``: a pretrained
    transformer, whose states replace the word vectors (see :func:`attsvm._fit.texts.states.load_states`).
    ``optimizer``: of :class:`attsvm.AttentionClassifier`, a registered name or an import path; by default mirror
    descent if ``p`` is given, otherwise Adam. ``p``: the option p of the optimizer, p > 1 for mirror descent.
    ``max_steps``, ``learning_rate``: of the classifier. ``device``: where the classifier is trained, and where the
    transformer runs. ``callback``: as for :meth:`attsvm.AttentionClassifier.fit`.

    Raises ProblemError if a test label is not among the training labels, the vocabulary is too small, or an argument is
    out of range. ``p`` is required if the optimizer has this option, and refused if not.
    """
    clock = _Clock()
    check_seed(seed)
    check_number("test_fraction", test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)
    classifier = _classifier(optimizer, p, max_steps, learning_rate, seed, device)
    if test is None:
        rows, held_out = split_texts(texts, test_fraction, seed)
        texts, test = texts[rows], texts[held_out]
    _check_labels(texts, test)
    if embed is not None and tokenizer is not None:
        raise ProblemError(f"tokenizer: expected none with embed, which has its own, got {tokenizer!r}")
    splitter = find_tokenizer(tokenizer)
    train_words, test_words = split_words(texts.texts, splitter), split_words(test.texts, splitter)
    encoder: Encoder
    if embed is None:
        warn_of_unspaced(train_words, splitter)
        encoder = learn_word_vectors(
            train_words, dim=dim, min_documents=min_documents, max_length=max_length, seed=seed, tokenizer=splitter
        )
        of_train, of_test = encoder.encode(train_words), encoder.encode(test_words)
    else:
        encoder = load_states(embed, max_length, device)
        of_train, of_test = encoder.encode(texts.texts), encoder.encode(test.texts)
    clock.lap("words")
    classifier.fit(of_train[0], texts.labels, callback=callback)
    on_train, on_test = _part(classifier, texts, *of_train), _part(classifier, test, *of_test)
    clock.lap("training")
    baselines = {
        "mean_token": mean_token_accuracy(of_train[0], texts.labels, of_test[0], test.labels),
        "tf_idf": tf_idf_accuracy(train_words, texts.labels, test_words, test.labels, min_documents),
    }
    clock.lap("baselines")
    margins = classifier.margin_report(max_sequences=MARGIN_SAMPLE)
    clock.lap("margins")
    words = word_attention(
        on_test.words,
        on_test.sequences.lengths,
        on_test.attention,
        np.searchsorted(classifier.classes_, test.labels),
        num_words=len(encoder.vocabulary) + 1,
        num_classes=len(classifier.classes_),
    )
    return TextFit(encoder, classifier, on_train, on_test, words, baselines, margins, clock.seconds())


def _classifier(
    optimizer: str | None,
    p: float | None,
    max_steps: int | None,
    learning_rate: float | None,
    seed: int,
    device: str | None,
) -> AttentionClassifier:
    """The classifier of :func:`fit_text`, with defaults for what is not given."""
    optimizer = optimizer or ("adam" if p is None else "mirror_descent")
    if ("p" in optimizer_options(optimizer)) != (p is not None):
        expected, got = ("a number", "none") if p is None else ("none", f"{p:g}")
        raise ProblemError(f"p: expected {expected} for the optimizer {optimizer}, got {got}")
    rate = LEARNING_RATES.get(optimizer) if learning_rate is None else learning_rate
    given = {"p": p, "max_steps": max_steps, "learning_rate": rate}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return AttentionClassifier(
        optimizer,
        alpha=ALPHA,
        random_state=seed,
        device=device,
        scale="common",
        keep_sample=True,
        ensemble=False,
        **chosen,
    )


def _check_labels(texts: Texts, test: Texts) -> None:
    classes = texts.classes
    for label in test.classes:
        if label not in classes:
            expected = ", ".join(map(repr, classes))
            raise ProblemError(f"{test.source}: expected the labels {expected}, got {label!r}")


def _part(classifier: AttentionClassifier, texts: Texts, sequences: Sequences, words: np.ndarray) -> TextPart:
    probability = classifier.predict_proba(sequences)
    return TextPart(
        texts,
        sequences,
        words,
        classifier.classes_[probability.argmax(axis=1)],
        probability.max(axis=1),
        np.asarray(classifier.attention(sequences)),
        classifier.report(sequences, texts.labels),
    )


class _Clock:
    """Wall time of each lap, and in total."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name], self._last = now - self._last, now

    def seconds(self) -> dict[str, float]:
        return {**self._laps, "everything": time.perf_counter() - self._started}


def mean_token_accuracy(train: Sequences, labels: np.ndarray, test: Sequences, truth: np.ndarray) -> dict[str, float]:
    """Measure the accuracy of logistic regression on the mean word vector of a text, on ``train`` and ``test``.

    The means are scaled to unit variance in each coordinate. The penalty is chosen by three-fold cross-validation on
    the training texts.
    """
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    parts = {"train": (mean_tokens(train), labels), "test": (mean_tokens(test), truth)}
    return tuned_accuracy(pipeline, {"logisticregression__C": PENALTIES}, parts)


def mean_tokens(sequences: Sequences) -> Float[np.ndarray, "n d"]:
    """Mean word vector of each text."""
    shape = len(sequences), len(sequences.table)
    shares = np.repeat(1 / sequences.lengths, sequences.lengths)
    weights = sp.csr_array((shares, sequences.ids, sequences.offsets), shape=shape)
    means: np.ndarray = weights @ sequences.table.astype(float)
    return means


def tf_idf_accuracy(
    train: list[list[str]], labels: np.ndarray, test: list[list[str]], truth: np.ndarray, min_documents: int
) -> dict[str, float]:
    """Measure the accuracy of logistic regression on TF-IDF weights of all words, on ``train`` and ``test``.

    The penalty is chosen by three-fold cross-validation on the training texts. ``min_documents``: number of training
    texts that a word must occur in to count, as in the vocabulary of the word vectors.
    """
    weights = TfidfVectorizer(analyzer=list, min_df=min_documents)
    parts = {"train": (weights.fit_transform(train), labels), "test": (weights.transform(test), truth)}
    return tuned_accuracy(LogisticRegression(max_iter=1000), {"C": PENALTIES}, parts)
