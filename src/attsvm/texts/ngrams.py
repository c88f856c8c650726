"""Logistic regression on the words of a text and its pairs of neighbouring words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from attsvm._utils.shapes import Float
from attsvm.texts.combination import TextLabels


def words_and_pairs(words: Sequence[str]) -> list[str]:
    """The words of a text and its pairs of neighbouring words, with a space between them."""
    return [*words, *map(" ".join, pairwise(words))]


@dataclass(frozen=True, eq=False)
class NgramFeatures:
    """TF-IDF weights of words and pairs of words: (1 + log count) · idf, scaled to length 1."""

    terms: tuple[str, ...]  # F words and pairs, sorted
    idf: Float[np.ndarray, " F"]  # log((1 + n) / (1 + number of texts with the term)) + 1

    def matrix(self, documents: Sequence[Sequence[str]]) -> sp.csr_array:
        """The weights in n texts, given by their words, shape (n, F)."""
        return sp.csr_array(self._vectorizer.transform(documents))

    @cached_property
    def _vectorizer(self) -> TfidfVectorizer:
        vectorizer = TfidfVectorizer(analyzer=words_and_pairs, vocabulary=self.terms, sublinear_tf=True)
        vectorizer.idf_ = self.idf
        return vectorizer


def learn_features(documents: Sequence[Sequence[str]], min_documents: int) -> NgramFeatures | None:
    """The terms that occur in at least ``min_documents`` texts, with their weights; None if there are none."""
    if not any(documents):
        return None
    counter = CountVectorizer(analyzer=words_and_pairs, binary=True)
    num_texts = np.asarray(counter.fit_transform(documents).sum(axis=0)).ravel()
    kept = np.flatnonzero(num_texts >= min_documents)
    if not len(kept):
        return None
    idf = np.log((1 + len(documents)) / (1 + num_texts[kept])) + 1
    return NgramFeatures(tuple(counter.get_feature_names_out()[kept].tolist()), idf)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """A linear model of n-grams: one row for two classes, large for the second of them."""

    features: NgramFeatures
    coef: Float[np.ndarray, "R F"]
    intercept: Float[np.ndarray, " R"]

    def decision(self, documents: Sequence[Sequence[str]]) -> Float[np.ndarray, "n R"]:
        """Outputs for n texts."""
        return np.asarray(self.features.matrix(documents) @ self.coef.T + self.intercept)

    def terms_of(self, words: Sequence[str]) -> tuple[tuple[str, ...], Float[np.ndarray, "k R"]]:
        """The known terms of a text, and what each adds to the outputs."""
        row = self.features.matrix([words])
        return tuple(self.features.terms[i] for i in row.indices), (self.coef[:, row.indices] * row.data).T


def regression(matrix: Any, labels: TextLabels, C: float) -> LogisticRegression:
    """Fit logistic regression on the features of texts."""
    # of two classes; it is several times faster than lbfgs on sparse features
    binary = {"solver": "liblinear", "intercept_scaling": 10.0} if labels.numbers.max() == 1 else {}
    return LogisticRegression(C=C, max_iter=1000, **binary).fit(matrix, labels.numbers, labels.weights)


def outputs(model: LogisticRegression, matrix: Any) -> Float[np.ndarray, "n R"]:
    """Outputs of a regression as a matrix, also for two classes."""
    return np.asarray(model.decision_function(matrix)).reshape(matrix.shape[0], -1)
