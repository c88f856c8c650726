"""Baselines for attention over words: the mean of the same word vectors, and TF-IDF."""

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attsvm.apps.texts.text import Texts
from attsvm.apps.texts.words import words
from attsvm.apps.tuning import tuned
from attsvm.datasets.sequences import Sequences

PENALTIES = np.logspace(-2, 2, 9)
"""Values of C among which cross-validation chooses."""


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
