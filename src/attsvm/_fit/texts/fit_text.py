"""The application on texts: a classifier of texts, the baseline of the mean token, and what it attends to."""

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attsvm._fit.baselines import tuned_accuracy
from attsvm._fit.texts.result import TextFit, TextPart
from attsvm._fit.texts.text import Texts, split_texts
from attsvm._fit.texts.word_attention import word_attention
from attsvm._utils.checks import check_number, check_seed
from attsvm._utils.progress import Callback
from attsvm._utils.shapes import Float
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.texts import EncodedTexts, TextClassifier

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
    callback: Callback | None = None,
    **parameters: Any,
) -> TextFit:
    """Fit a :class:`attsvm.TextClassifier`, and evaluate it on test texts.

    ``texts``: to train on. ``test``: test texts, with labels among those of ``texts``; without them ``test_fraction``,
    in (0, 1), of each class is set apart. ``seed``: of the split and of the classifier. ``callback``: as for
    :meth:`attsvm.TextClassifier.fit`. ``parameters``: of the classifier; one that is None has its default.

    Raises ProblemError if a test label is not among the training labels, the vocabulary is too small, or an argument is
    out of range.
    """
    clock = _Clock()
    check_seed(seed)
    check_number("test_fraction", test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)
    classifier = TextClassifier(random_state=seed, **{name: x for name, x in parameters.items() if x is not None})
    if test is None:
        rows, held_out = split_texts(texts, test_fraction, seed)
        texts, test = texts[rows], texts[held_out]
    _check_labels(texts, test)
    of_train = classifier.learn_encoder(texts.texts)
    clock.lap("words")
    classifier.fit(of_train, texts.labels, callback=callback)
    of_test = classifier.encode(test.texts)
    on_train, on_test = _part(classifier, texts, of_train), _part(classifier, test, of_test)
    clock.lap("training")
    mean_token = mean_token_accuracy(of_train.sequences, texts.labels, of_test.sequences, test.labels)
    clock.lap("baselines")
    margins = classifier.attention_.margin_report(of_train.sequences, max_sequences=MARGIN_SAMPLE)
    clock.lap("margins")
    words = word_attention(
        of_test.words,
        of_test.sequences.lengths,
        on_test.attention,
        np.searchsorted(classifier.classes_, test.labels),
        num_words=len(of_test.encoder.vocabulary) + 1,
        num_classes=len(classifier.classes_),
    )
    return TextFit(classifier, on_train, on_test, words, mean_token, margins, clock.seconds())


def _check_labels(texts: Texts, test: Texts) -> None:
    classes = texts.classes
    for label in test.classes:
        if label not in classes:
            expected = ", ".join(map(repr, classes))
            raise ProblemError(f"{test.source}: expected the labels {expected}, got {label!r}")


def _part(classifier: TextClassifier, texts: Texts, encoded: EncodedTexts) -> TextPart:
    probability = classifier.predict_proba(encoded)
    return TextPart(
        texts,
        encoded,
        classifier.classes_[probability.argmax(axis=1)],
        probability.max(axis=1),
        np.concatenate(classifier.attention(encoded)),
        classifier.report(encoded, texts.labels),
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
