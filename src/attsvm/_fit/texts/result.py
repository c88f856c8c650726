"""The result of a fit on texts."""

from dataclasses import dataclass

import numpy as np

from attsvm._fit.texts.text import Texts
from attsvm._fit.texts.word_attention import WordAttention
from attsvm._utils.shapes import Float, Int
from attsvm.datasets import Sequences
from attsvm.estimator import MarginReport, effective_number
from attsvm.texts import EncodedTexts, Encoder, TextClassifier, TextReport

LISTED_SHARE, LISTED_TEXTS = 1 / 500, 10
"""A word is listed if it occurs in this share of the test texts, and in this many. The numbers of rarer words are too
noisy."""

NORMAL = 1.959963985
"""Standard errors on each side of a 95 % interval."""


@dataclass(frozen=True)
class TextPart:
    """The training texts or the test texts, with predictions and attention of the classifier."""

    texts: Texts
    encoded: EncodedTexts  # as n sequences, of N tokens in all
    predicted: np.ndarray  # shape (n,)
    probability: Float[np.ndarray, " n"]  # probability of the predicted class
    attention: Float[np.ndarray, " N"]  # attention of each token
    report: TextReport

    @property
    def sequences(self) -> Sequences:
        """The tokens of the texts."""
        return self.encoded.sequences

    @property
    def accuracy(self) -> float:
        """Share of the texts classified correctly."""
        return self.report.accuracy

    @property
    def effective(self) -> Float[np.ndarray, " n"]:
        """Effective number of words of each text: the exponential of the entropy of its attention."""
        return effective_number(self.attention, self.sequences)

    @property
    def largest(self) -> Float[np.ndarray, " n"]:
        """Largest attention of a word in each text."""
        return np.maximum.reduceat(self.attention, self.sequences.offsets[:-1])

    def attention_of(self, row: int) -> Float[np.ndarray, " T"]:
        """Attention of the words of one text."""
        return self.attention[self.sequences.offsets[row] : self.sequences.offsets[row + 1]]


@dataclass(frozen=True)
class TextFit:
    """A classifier of texts, a baseline, and what it attends to."""

    classifier: TextClassifier
    train: TextPart
    test: TextPart
    words: WordAttention  # attention that each word receives over the test texts
    mean_token: dict[str, float]  # accuracy of logistic regression on the mean vector, on ``train`` and ``test``
    margins: MarginReport  # margins of the selected words in a sample of the training texts
    seconds: dict[str, float]  # wall time of ``words``, ``training``, ``baselines``, ``margins`` and ``everything``

    @property
    def encoder(self) -> Encoder:
        """It turns texts into tokens. Word vectors are learnt from the training texts alone."""
        return self.classifier.encoder_

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of ``words.by_class``."""
        return [str(label) for label in self.classifier.classes_]

    @property
    def listed_from(self) -> int:
        """Number of test texts that a word must occur in to be listed."""
        return max(LISTED_TEXTS, round(LISTED_SHARE * len(self.test.texts)))

    @property
    def over_frequency_interval(self) -> tuple[Float[np.ndarray, " V"], Float[np.ndarray, " V"]]:
        """Normal 95 % interval of each word's attention over frequency: lower and upper ends."""
        ratio, half = self.words.over_frequency, NORMAL * self.words.error
        return np.maximum(ratio - half, 0), ratio + half

    @property
    def listed(self) -> Int[np.ndarray, " listed"]:
        """The words that occur in enough test texts."""
        return np.flatnonzero(self.words.documents[: len(self.encoder.vocabulary)] >= self.listed_from)
