"""The training data of a fit: sequences with labels and weights, which are classes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from attsvm.datasets import Sequences, shown
from attsvm.errors import ProblemError


@dataclass(frozen=True)
class SequenceTask(ABC):
    """Sequences with a label and a weight each; a subclass says what the labels are."""

    sequences: Sequences  # n sequences
    labels: np.ndarray  # shape (n,)
    weights: np.ndarray  # shape (n,), their mean is 1 over the sequences of a fit, or of all calls of ``partial_fit``

    def __getitem__(self, rows: np.ndarray) -> Self:
        return replace(self, sequences=self.sequences[rows], labels=self.labels[rows], weights=self.weights[rows])

    @property
    @abstractmethod
    def required(self) -> str:
        """What both training and validation need some of."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Number of outputs of the network."""

    @property
    def targets(self) -> np.ndarray:
        """Labels (n,) for the loss."""
        return self.labels

    @property
    def strata(self) -> np.ndarray:
        """Numbers (n,) from 0 on, of which validation gets a share each."""
        return self.labels

    @property
    @abstractmethod
    def num_required(self) -> int:
        """How many of the strata, the first ones, both training and validation need."""

    @abstractmethod
    def scores(self, decision: np.ndarray) -> dict[str, float]:
        """Numbers of the history that say how well outputs (n, C) fit the labels."""


@dataclass(frozen=True)
class ClassificationTask(SequenceTask):
    """Sequences whose labels are class numbers."""

    num_classes: int

    required = "sequences of each class"

    @property
    def num_outputs(self) -> int:
        """One for two classes, otherwise one for each."""
        return self.num_classes if self.num_classes > 2 else 1

    @property
    def num_required(self) -> int:
        """All classes."""
        return self.num_classes

    @property
    def targets(self) -> np.ndarray:
        """Labels for the loss: ±1 for two classes, otherwise class numbers."""
        return 2.0 * self.labels - 1.0 if self.num_classes == 2 else self.labels

    def scores(self, decision: np.ndarray) -> dict[str, float]:
        """Share of sequences classified correctly."""
        found = decision[:, 0] > 0 if self.num_classes == 2 else decision.argmax(axis=1)
        return {"validation_accuracy": float((found == self.labels).mean())}


@dataclass(frozen=True)
class Tally:
    """Sequences of each class, in a fit or in all calls of ``partial_fit``, without those of weight 0."""

    classes: np.ndarray  # shape (C,), in the order of the class numbers
    counts: np.ndarray  # shape (C,)
    sums: np.ndarray  # shape (C,), sums of the sample weights

    @classmethod
    def empty(cls, classes: np.ndarray) -> "Tally":
        """Return the tally of no sequences."""
        return cls(classes, np.zeros(len(classes), int), np.zeros(len(classes)))

    def with_sequences(self, numbers: np.ndarray, weights: np.ndarray) -> "Tally":
        """With more sequences, of these classes and sample weights."""
        size = len(self.classes)
        counts = self.counts + np.bincount(numbers, minlength=size)
        return Tally(self.classes, counts, self.sums + np.bincount(numbers, weights, minlength=size))

    def factors(self, class_weight: Any) -> np.ndarray:
        """What to multiply the sample weights of each class with, (C,), so that the mean weight of all sequences is 1.

        A batch is not divided by its own sum of weights, because the weight of its class would cancel in a batch of one
        class.
        """
        if class_weight == "balanced":
            # a chunk may lack a class
            factors = 1.0 / np.maximum(self.counts, 1)
        else:
            factors = compute_class_weight(class_weight, classes=self.classes, y=self.classes)
            if not (np.isfinite(factors).all() and (factors >= 0).all()):
                raise ProblemError(f"class_weight: expected finite numbers >= 0, got {factors.tolist()}")
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            normalized = factors * (self.counts.sum() / (factors @ self.sums))
        if not (np.isfinite(normalized).all() and normalized.any()):
            raise ProblemError("sample_weight, class_weight: expected products with a positive, finite sum")
        return np.asarray(normalized)


NO_LABELS = {"nan", "inf", "-inf", "None", "<NA>", "NaT"}
"""How libraries write what is no label."""


def read_labels(y: Any, num_sequences: int, estimator: str, is_rows: bool = False, names: Any = None) -> np.ndarray:
    """Labels as an array, one for each sequence; ``is_rows`` says whether these are the rows of a matrix or table.

    ``names``: of the sequences, by default their numbers.

    Raises ProblemError, ValueError if there are none, their number does not fit, or they are not class labels.
    """
    labels = np.asarray(column_or_1d(required(y, estimator), warn=True))
    for place, label in enumerate(labels.tolist() if labels.dtype.kind in "fO" else ()):
        if not isinstance(label, str) and str(label) in NO_LABELS:
            name = place if names is None or len(names) != len(labels) else names[place]
            raise ProblemError(f"y: expected a label for each sequence, got {label} for sequence {name}")
    if labels.dtype == object and not all(isinstance(label, str) for label in labels):
        found = ", ".join(sorted({type(label).__name__ for label in labels}))
        # scikit-learn tests for the first three words
        raise ProblemError(f"Unknown label type in y: expected only words or an array of integers, got objects {found}")
    check_classification_targets(labels)
    return one_for_each(labels, "labels", num_sequences, is_rows)


def required(y: Any, estimator: str) -> Any:
    """The labels; raises ProblemError if there are none."""
    if y is None:
        # the wording that scikit-learn tests for
        raise ProblemError(f"{estimator} requires y to be passed, but the target y is None")
    return y


def one_for_each(labels: np.ndarray, called: str, num_sequences: int, is_rows: bool) -> np.ndarray:
    """The labels (n,); raises ProblemError if there is not one for each sequence."""
    if len(labels) != num_sequences:
        hint = "; each row counts as a sequence of one token: pass a table with bag=, or a list of arrays" * is_rows
        raise ProblemError(f"y: expected {num_sequences} {called}, one for each sequence, got {len(labels)}{hint}")
    return labels


def read_task(
    sequences: Sequences, labels: np.ndarray, weights: np.ndarray, class_weight: Any, before: Tally
) -> tuple[ClassificationTask, Tally]:
    """Sequences, class numbers and weights, without sequences of weight 0; and the tally with these sequences.

    Raises ProblemError if there is only one class, a label is none of the classes, or the weights of the classes do not
    fit.
    """
    classes = before.classes
    if len(classes) < 2:
        raise ProblemError(f"y: expected at least two classes, got one class ({shown(classes)})")
    numbers = numbered(classes, labels)
    task = ClassificationTask(sequences, numbers, weights, len(classes))
    task = task if weights.all() else task[np.flatnonzero(weights)]
    tally = before.with_sequences(task.labels, task.weights)
    return replace(task, weights=task.weights * tally.factors(class_weight)[task.labels]), tally


def read_weights(sample_weight: Any, labels: np.ndarray) -> np.ndarray:
    """The sample weights (n,), by default ones; raises ProblemError, ValueError if they do not fit or are all zero."""
    weights = np.array(_check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():
        raise ProblemError("sample_weight: expected at least one positive weight, got zeros")
    return weights


def numbered(classes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The number of the class of each label, (n,); raises ProblemError if a label is none of the classes."""
    order = np.argsort(classes)
    numbers: np.ndarray = order[np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)]
    unknown = classes[numbers] != labels
    if unknown.any():
        raise ProblemError(f"y: expected one of the labels {shown(classes)}, got {labels[unknown].tolist()[0]!r}")
    return numbers


def find_positive(classes: np.ndarray, positive: Any) -> Any:
    """The positive one of two classes; None where neither the argument nor the labels say which, or there are more.

    ``positive``: a label, or a tuple of it and of the other one. Meta-estimators of scikit-learn number the labels 0
    and 1, in their order; which of them a label is follows from both.

    Raises ProblemError if ``positive`` is given and none of two classes.
    """
    found: list[Any] = classes.tolist()
    if positive is None:
        # False is 0, and True is 1
        return found[1] if found in ([0, 1], [-1, 1]) else None
    if len(found) > 2:
        raise ProblemError(f"positive: expected None for {len(found)} classes, got {positive!r}")
    names = positive if isinstance(positive, tuple) else (positive,)
    try:
        in_order = sorted({*names})
    except TypeError:  # labels of different types, or no labels
        in_order = []
    if len(in_order) == len(names) in (1, 2):
        if all(name in found for name in names):
            return names[0]
        if found == [0, 1]:
            return in_order.index(names[0]) if len(names) == 2 else None
    raise ProblemError(f"positive: expected one of the labels {shown(classes)}, got {positive!r}")
