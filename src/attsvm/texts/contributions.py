"""How the output for a text divides among its words and its n-grams."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float, Int


@dataclass(frozen=True, eq=False, repr=False)
class TextContributions:
    """The output for a text as a sum over the T words that attention reads, the k n-grams, and an intercept.

    Attributes
    ----------
    words : tuple of T str
        As in the vocabulary; one word "" for a text without known words.
    places : int ndarray, shape (T, 2)
        Where each word begins and ends in the text; both 0 for a text without known words.
    attention : ndarray, shape (T,)
        Share of the attention; sums to 1.
    of_words : ndarray, shape (T,) for two classes, else (T, C)
        Attention times the output for the word alone, times the weight of the attention part.
    ngrams : tuple of k str
        Words and pairs of words of the text.
    of_ngrams : ndarray, shape (k,) for two classes, else (k, C)
        TF-IDF weight times coefficient, times the weight of the n-gram part.
    intercept : float for two classes, else ndarray, shape (C,)
        Of the n-gram part. That of the attention part is in ``of_words``, because attention sums to 1.

    See Also
    --------
    attsvm.TextClassifier.contributions
    """

    words: tuple[str, ...]
    places: Int[np.ndarray, "T 2"]
    attention: Float[np.ndarray, " T"]
    of_words: np.ndarray
    ngrams: tuple[str, ...]
    of_ngrams: np.ndarray
    intercept: float | np.ndarray

    @property
    def decision(self) -> float | np.ndarray:
        """The sum of all contributions, which is the output of the classifier."""
        total = self.of_words.sum(axis=0) + self.of_ngrams.sum(axis=0) + self.intercept
        return float(total) if np.ndim(total) == 0 else np.asarray(total)

    def __repr__(self) -> str:
        total = ", ".join(f"{value:.3g}" for value in np.atleast_1d(self.decision))
        return f"TextContributions({len(self.words)} words, {len(self.ngrams)} n-grams; decision {total})"
