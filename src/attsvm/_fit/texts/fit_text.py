"""The application on texts: an attention classifier over word vectors, two baselines, and what it attends to."""

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attsvm._fit.baselines import tuned
from attsvm._fit.texts.result import Part, TextFit
from attsvm._fit.texts.states import load_states
from attsvm._fit.texts.text import Texts, split_texts
from attsvm._fit.texts.word_attention import word_attention
from attsvm._fit.texts.words import MAX_LENGTH, Encoder, learn_word_vectors, words
from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm._utils.progress import Callback
from attsvm.datasets.sequences import Sequences
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


@dataclass(frozen=True)
class TextOptions:
    """How texts are split and turned into tokens.

    Raises ProblemError if one of them is out of range.
    """

    # share of each class that is set apart for testing if no test texts are given, in (0, 1)
    test_fraction: float = 0.25
    seed: int = 0  # seed of the split and of the word vectors
    dim: int = 200  # dim, min_documents, max_length: arguments of :func:`attsvm._fit.texts.words.learn_word_vectors`
    min_documents: int = 5
    max_length: int = MAX_LENGTH
    # a pretrained transformer, whose states replace the word vectors (see :func:`attsvm._fit.texts.states.load_states`)
    embed: str | os.PathLike[str] | None = None
    device: str | None = None  # where it runs; the CPU by default

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("dim", "min_documents", "max_length"):
            check_integer(name, getattr(self, name), 1)
        check_number("test_fraction", self.test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)


def fit_text(
    texts: Texts,
    test: Texts | None = None,
    options: TextOptions | None = None,
    *,
    classifier: AttentionClassifier | None = None,
    callback: Callback | None = None,
) -> TextFit:
    """Learn word vectors and attention from texts, and evaluate them on test texts.

    ``texts``: to train on. Without ``test``, a part of them is set apart for testing. ``test``: test texts, with labels
    among those of ``texts``. ``classifier``: an unfitted classifier; by default that of :func:`text_classifier` with
    the seed of ``options``. ``callback``: as for :meth:`attsvm.AttentionClassifier.fit`.

    Raises ProblemError if a test label is not among the training labels, the vocabulary is too small, or an argument is
    out of range.
    """
    options = options or TextOptions()
    clock = _Clock()
    texts, test = _parts(texts, test, options)
    encoder = _encoder(texts, options)
    of_train, of_test = encoder.encode(texts.texts), encoder.encode(test.texts)
    clock.lap("words")
    classifier = classifier or text_classifier(seed=options.seed)
    classifier.fit(of_train[0], texts.labels, callback=callback)
    on_train, on_test = _part(classifier, texts, *of_train), _part(classifier, test, *of_test)
    clock.lap("training")
    baselines = {
        "mean_token": mean_token_accuracy(of_train[0], texts.labels, of_test[0], test.labels),
        "tf_idf": tf_idf_accuracy(texts, test, options.min_documents),
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


def text_classifier(
    *,
    optimizer: str | None = None,
    p: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    device: str | None = None,
) -> AttentionClassifier:
    """Make the classifier that :func:`fit_text` uses, with defaults for what is not given.

    ``optimizer``: optimizer of :class:`attsvm.AttentionClassifier`, a registered name or an import path; by default
    mirror descent if ``p`` is given, otherwise Adam. ``p``: the option p of the optimizer, p > 1 for mirror descent.
    ``max_steps``, ``learning_rate``, ``seed``, ``device``: parameters of the classifier.

    Raises ProblemError if ``p`` is given and the optimizer has no such option, or it is missing and the optimizer has
    it.
    """
    optimizer = optimizer or ("adam" if p is None else "mirror_descent")
    if ("p" in optimizer_options(optimizer)) != (p is not None):
        expected, got = ("a number", "none") if p is None else ("none", f"{p:g}")
        raise ProblemError(f"p: expected {expected} for the optimizer {optimizer}, got {got}")
    rate = LEARNING_RATES.get(optimizer) if learning_rate is None else learning_rate
    given = {"p": p, "max_steps": max_steps, "learning_rate": rate}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return AttentionClassifier(optimizer, alpha=ALPHA, random_state=seed, device=device, **chosen)


def _parts(texts: Texts, test: Texts | None, options: TextOptions) -> tuple[Texts, Texts]:
    """The texts to train on and those to test on."""
    if test is None:
        rows, held_out = split_texts(texts, options.test_fraction, options.seed)
        texts, test = texts[rows], texts[held_out]
    classes = texts.classes
    for label in test.classes:
        if label not in classes:
            expected = ", ".join(map(repr, classes))
            raise ProblemError(f"{test.source}: expected the labels {expected}, got {label!r}")
    return texts, test


def _encoder(texts: Texts, options: TextOptions) -> Encoder:
    if options.embed is not None:
        return load_states(options.embed, options.max_length, options.device)
    return learn_word_vectors(
        texts.texts,
        dim=options.dim,
        min_documents=options.min_documents,
        max_length=options.max_length,
        seed=options.seed,
    )


def _part(classifier: AttentionClassifier, texts: Texts, sequences: Sequences, words: np.ndarray) -> Part:
    probability = classifier.predict_proba(sequences)
    return Part(
        texts,
        sequences,
        words,
        classifier.classes_[probability.argmax(axis=1)],
        probability.max(axis=1),
        np.asarray(classifier.attention(sequences)),
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
    regression, _ = tuned(pipeline, {"logisticregression__C": PENALTIES}, mean_tokens(train), labels)
    return {
        "train": float(regression.score(mean_tokens(train), labels)),
        "test": float(regression.score(mean_tokens(test), truth)),
    }


def mean_tokens(sequences: Sequences) -> Float[np.ndarray, "n d"]:
    """Mean word vector of each text."""
    shape = len(sequences), len(sequences.table)
    shares = np.repeat(1 / sequences.lengths, sequences.lengths)
    weights = sp.csr_array((shares, sequences.ids, sequences.offsets), shape=shape)
    means: np.ndarray = weights @ sequences.table.astype(float)
    return means


def tf_idf_accuracy(train: Texts, test: Texts, min_documents: int) -> dict[str, float]:
    """Measure the accuracy of logistic regression on TF-IDF weights of whole texts, on ``train`` and ``test``.

    The penalty is chosen by three-fold cross-validation on the training texts. ``min_documents``: number of training
    texts that a word must occur in to count, as in the vocabulary of the word vectors.
    """
    weights = TfidfVectorizer(analyzer=_words, min_df=min_documents)
    of_train = weights.fit_transform(train.texts)
    regression, _ = tuned(LogisticRegression(max_iter=1000), {"C": PENALTIES}, of_train, train.labels)
    return {
        "train": float(regression.score(of_train, train.labels)),
        "test": float(regression.score(weights.transform(test.texts), test.labels)),
    }


def _words(text: str) -> list[str]:
    return [word for word, *_ in words(text)]
