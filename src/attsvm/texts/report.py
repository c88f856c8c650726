"""How well texts are classified, and by which of the parts."""

from dataclasses import dataclass

from attsvm.estimator import ClassificationReport


@dataclass(frozen=True, eq=False, repr=False)
class TextReport:
    """How well texts are classified by a :class:`attsvm.TextClassifier` and by each of its parts alone.

    Attributes
    ----------
    combined : ClassificationReport
        Of the classifier.
    attention : ClassificationReport
        Of attention alone.
    ngrams : ClassificationReport or None
        Of n-grams alone; None if they were not trained.

    See Also
    --------
    attsvm.TextClassifier.report : Makes one.
    """

    combined: ClassificationReport
    attention: ClassificationReport
    ngrams: ClassificationReport | None

    @property
    def accuracy(self) -> float:
        """Share of the texts that are classified correctly."""
        return self.combined.accuracy

    @property
    def attention_adds(self) -> float | None:
        """Accuracy of the classifier minus that of n-grams alone; None if these were not trained."""
        return None if self.ngrams is None else self.combined.accuracy - self.ngrams.accuracy

    def __repr__(self) -> str:
        ngrams = "not trained" if self.ngrams is None else f"{self.ngrams.accuracy:.3g}"
        return (
            f"TextReport({self.combined.confusion.sum():,} texts; accuracy {self.accuracy:.3g}, of attention alone "
            f"{self.attention.accuracy:.3g}, of n-grams alone {ngrams}, of the largest training class "
            f"{self.combined.majority:.3g})"
        )
