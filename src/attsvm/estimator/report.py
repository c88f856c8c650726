"""How well classes are predicted, beside a classifier that always predicts the largest one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, roc_auc_score

from attsvm._utils.shapes import Float, Int


@dataclass(frozen=True, eq=False, repr=False)
class ClassificationReport:
    """Predictions of n sequences of C classes.

    A large accuracy says little where one class is large: compare it with ``majority``.

    Attributes
    ----------
    classes : ndarray, shape (C,)
    confusion : int ndarray, shape (C, C)
        Sequences of the class of the row that are predicted as that of the column.
    majority : float
        Accuracy of always predicting the class that is the largest among the training sequences.
    auroc : float
        Area under the ROC curve; for more than two classes the mean of each against the rest. NaN if a class does not
        occur.

    See Also
    --------
    attsvm.AttentionClassifier.report : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> report = classifier.report(bags.test, bags.test_labels)
    >>> report.majority, int(report.confusion.sum()), report.recall.shape
    (0.5, 1000, (2,))
    """

    classes: np.ndarray
    confusion: Int[np.ndarray, "C C"]
    majority: float
    auroc: float

    @classmethod
    def of(
        cls, classes: np.ndarray, labels: np.ndarray, predicted: np.ndarray, scores: np.ndarray, largest: Any
    ) -> "ClassificationReport":
        """The report on predictions; ``scores``: (n,), large for the second of two classes, or (n, C)."""
        confusion = confusion_matrix(labels, predicted, labels=classes)
        auroc = np.nan
        if confusion.sum(axis=1).all():
            columns = [(classes[1], scores)] if scores.ndim == 1 else zip(classes, scores.T, strict=True)
            auroc = float(np.mean([roc_auc_score(labels == own, column) for own, column in columns]))
        return cls(classes, confusion, float(np.mean(labels == largest)), auroc)

    @property
    def accuracy(self) -> float:
        """Share of the sequences that are classified correctly."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that occur."""
        return float(np.nanmean(self.recall))

    @property
    def precision(self) -> Float[np.ndarray, " C"]:
        """Share of the predictions of each class that are correct; NaN for a class that is never predicted."""
        return _shares(self.confusion, self.confusion.sum(axis=0))

    @property
    def recall(self) -> Float[np.ndarray, " C"]:
        """Share of the sequences of each class that are found; NaN for a class that does not occur."""
        return _shares(self.confusion, self.confusion.sum(axis=1))

    def __repr__(self) -> str:
        return (
            f"ClassificationReport({self.confusion.sum():,} sequences; accuracy {self.accuracy:.3g}, largest training "
            f"class {self.majority:.3g}; balanced accuracy {self.balanced_accuracy:.3g}, AUROC {self.auroc:.3g})"
        )


def _shares(confusion: Int[np.ndarray, "C C"], counts: Int[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    found: np.ndarray = np.where(counts > 0, np.diag(confusion) / np.maximum(counts, 1), np.nan)
    return found
