"""How much attention each word receives, compared with how often it occurs."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float, Int


@dataclass(frozen=True)
class WordAttention:
    """The attention that every word of a vocabulary receives over a set of texts."""

    documents: Int[np.ndarray, " V"]  # number of texts that the word occurs in
    # its share of a text's tokens, averaged over all texts. This is the attention that it would receive if all tokens
    # of a text received the same.
    frequency: Float[np.ndarray, " V"]
    attention: Float[np.ndarray, " V"]  # its attention in a text, averaged over all texts
    # standard error of ``over_frequency``, from the differences between the texts that the word occurs in; NaN for a
    # word that occurs in fewer than two
    error: Float[np.ndarray, " V"]
    # how that attention is divided among the classes, if all classes had the same size. Rows sum to 1; they are NaN for
    # a word that does not occur.
    by_class: Float[np.ndarray, "V C"]

    @property
    def over_frequency(self) -> Float[np.ndarray, " V"]:
        """Attention divided by frequency: 1 for average attention; NaN for a word that does not occur."""
        with np.errstate(invalid="ignore"):
            ratio: np.ndarray = self.attention / self.frequency
        return ratio


def word_attention(
    words: Int[np.ndarray, " N"],
    lengths: Int[np.ndarray, " n"],
    attention: Float[np.ndarray, " N"],
    labels: Int[np.ndarray, " n"],
    *,
    num_words: int,
    num_classes: int,
) -> WordAttention:
    """Sum attention by word.

    ``words``: the words of n texts, concatenated, as indices 0..V−1. ``lengths``: number of words of each text.
    ``attention``: attention of each word; it sums to 1 in every text. ``labels``: the class of each text, in 0..C−1.
    """
    document = np.repeat(np.arange(len(lengths)), lengths)
    uniform = (1 / lengths)[document]
    cell = words.astype(np.int64) * num_classes + labels[document]
    received = np.bincount(cell, attention, num_words * num_classes).reshape(num_words, num_classes)
    per_class = np.maximum(np.bincount(labels, minlength=num_classes), 1)
    balanced = received / per_class
    with np.errstate(invalid="ignore"):
        by_class = balanced / balanced.sum(axis=1, keepdims=True)
    # one entry for each word of each text
    pairs, entry = np.unique(document.astype(np.int64) * num_words + words, return_inverse=True)
    once = pairs % num_words
    documents = np.bincount(once, minlength=num_words)
    of_attention, of_frequency = (np.bincount(entry, weights, len(pairs)) for weights in (attention, uniform))
    return WordAttention(
        documents=documents,
        frequency=np.bincount(words, uniform, num_words) / len(lengths),
        attention=received.sum(axis=1) / len(lengths),
        error=_ratio_error(once, of_attention, of_frequency, documents),
        by_class=by_class,
    )


def _ratio_error(
    once: Int[np.ndarray, " P"],
    above: Float[np.ndarray, " P"],
    below: Float[np.ndarray, " P"],
    documents: Int[np.ndarray, " V"],
) -> Float[np.ndarray, " V"]:
    """Standard error of Σ above / Σ below over the texts of each word, by linearisation."""
    size = len(documents)
    total = np.bincount(once, below, size)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.bincount(once, above, size) / total
        squares = np.bincount(once, (above - ratio[once] * below) ** 2, size)
        error: np.ndarray = np.sqrt(squares * documents / (documents - 1.0)) / total
    return np.where(documents > 1, error, np.nan)
