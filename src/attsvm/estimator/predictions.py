"""What a fitted classifier says of new bags: classes, probabilities, and the tokens that it selects."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from attsvm.datasets import BagFile, read_bags
from attsvm.errors import ProblemError
from attsvm.estimator.report import ClassificationReport


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Predictions of a classifier for n bags of N tokens in total.

    Attributes
    ----------
    classes : ndarray, shape (C,)
    names : ndarray, shape (n,)
        The name of each bag, by default its number.
    probability : ndarray, shape (n, C)
        Of each class.
    offsets : int ndarray, shape (n + 1,)
        Bag i has the tokens ``offsets[i]`` to ``offsets[i + 1] - 1``.
    tokens : ndarray, shape (N,)
        What each token is called: its row in a table, counted from 1 below the header, or its number in the bag.
    attention : ndarray, shape (N,), or None
        The share of each token in the attention of its bag; None for detectors, which have no attention. Of a
        classifier with an ensemble, or with n-grams of texts, it is that of attention alone.
    instance_scores : ndarray, shape (N, C)
        How much each token by itself speaks for each class; with an ensemble, for all of it.
    first : int ndarray, shape (n,)
        The place among the N tokens of the one that is selected in each bag: that of the largest attention. For
        detectors that of the largest score for the positive class, of more than two classes for the predicted one.
    labels : ndarray, shape (n,), or None
        What the bags are known to be.
    report : ClassificationReport or None
        How well the labels are predicted; None without labels.

    See Also
    --------
    attsvm.estimator.predict_bags : Makes them.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import BagFile
    >>> bags = attsvm.datasets.digit_bags(100, 20, seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> attsvm.estimator.predict_bags(classifier, BagFile(bags.test)).share.shape
    (20,)
    """

    classes: np.ndarray
    names: np.ndarray
    probability: Float[np.ndarray, "n C"]
    offsets: Int[np.ndarray, " n+1"]
    tokens: np.ndarray
    attention: Float[np.ndarray, " N"] | None
    instance_scores: Float[np.ndarray, "N C"]
    first: Int[np.ndarray, " n"]
    labels: np.ndarray | None = None
    report: ClassificationReport | None = None

    @property
    def predicted(self) -> np.ndarray:
        """The most probable class of each bag, (n,)."""
        return np.asarray(self.classes[self.probability.argmax(axis=1)])

    @property
    def selected(self) -> np.ndarray:
        """What the selected token of each bag is called, (n,)."""
        return np.asarray(self.tokens[self.first])

    @property
    def share(self) -> Float[np.ndarray, " n"] | None:
        """The share of the selected token in the attention of its bag, (n,); None without attention."""
        return None if self.attention is None else self.attention[self.first]

    @property
    def owners(self) -> Int[np.ndarray, " N"]:
        """The bag of each token."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.offsets))

    def __repr__(self) -> str:
        found, counts = np.unique(self.predicted, return_counts=True)
        shown = ", ".join(f"{count:,} {name}" for name, count in zip(found, counts, strict=True))
        return f"Predictions({len(self.names):,} bags: {shown})"


def predict_bags(classifier: Any, bags: BagFile) -> Predictions:
    """Predict the classes of the bags of a file, and say which tokens decide.

    Parameters
    ----------
    classifier : AttentionClassifier or DetectorClassifier
        Fitted.
    bags : BagFile
        Of :func:`attsvm.datasets.read_bags`. Labels are compared with the predictions; where labels and classes have
        different types, as words.

    Returns
    -------
    Predictions

    Raises
    ------
    ProblemError
        If the estimator has no classes, the tokens are not as those of the fit, or a label is none of the classes.

    See Also
    --------
    attsvm.load_model, attsvm.datasets.read_bags

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import BagFile
    >>> bags = attsvm.datasets.digit_bags(100, 20, seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> attsvm.estimator.predict_bags(classifier, BagFile(bags.test, bags.test_labels)).report.majority
    0.5
    """
    if not hasattr(classifier, "classes_"):
        raise ProblemError(
            f"classifier: expected one that predicts classes, got {type(classifier).__name__}; its predict(X) returns "
            "numbers"
        )
    sequences, classes = bags.sequences, classifier.classes_
    probability = classifier.predict_proba(sequences)
    attention = np.asarray(classifier.attention(sequences)) if hasattr(classifier, "attention") else None
    scores = np.column_stack([classifier.instance_scores(sequences, class_=name) for name in classes.tolist()])
    starts, lengths = sequences.offsets[:-1], sequences.lengths
    if attention is not None:
        first = starts + classifier.selected(sequences)
    else:
        positive = np.flatnonzero(classes == classifier.positive_)
        wanted = positive if len(positive) else probability.argmax(axis=1)
        of_wanted = scores[np.arange(len(scores)), np.repeat(np.broadcast_to(wanted, len(starts)), lengths)]
        first = np.array([s + int(of_wanted[s : s + t].argmax()) for s, t in zip(starts, lengths, strict=True)])
    labels = None if bags.labels is None else _as_classes(bags.labels, classes)
    return Predictions(
        classes=classes,
        names=np.arange(len(starts)) if sequences.names is None else sequences.names,
        probability=probability,
        offsets=sequences.offsets,
        tokens=np.arange(len(scores)) - np.repeat(starts, lengths) if bags.rows is None else bags.rows,
        attention=attention,
        instance_scores=scores,
        first=first,
        labels=labels,
        report=None if labels is None else classifier.report(sequences, labels),
    )


def _as_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The labels; as classes that are the same words, where one are numbers and the others words, as in text files."""
    if np.isin(labels, classes).all():
        return labels
    of_words = {str(name): name for name in classes.tolist()}
    same = [of_words.get(str(label), label) for label in labels.tolist()]
    return np.array(same, dtype=classes.dtype) if all(label in classes for label in same) else labels


@dataclass(frozen=True)
class FileColumns:
    """The columns of the table that a classifier was fitted to, beside those of the tokens."""

    bag: str  # of a classifier of texts the column of the texts
    label: str
    others: tuple[str, ...] = ()  # groups, and what was left out


def read_as_fitted(
    classifier: Any, path: str | os.PathLike[str], *, bag: str | None, label: str | None, drop: Iterable[str]
) -> tuple[BagFile, str]:
    """Read bags as those of a fit, by default with its columns of bags and labels; and what a bag is called.

    Labels, groups and what the fit left out may be missing.

    Raises ProblemError if nothing says which column names the bags.
    """
    fitted: FileColumns | None = getattr(classifier, "file_columns_", None)
    others = () if fitted is None else fitted.others
    optional = [*others, *([fitted.label] if fitted is not None and label is None else [])]
    if fitted is not None:
        bag, label = bag or fitted.bag, label or fitted.label
    bag = bag or getattr(classifier, "bag_", None)
    if not os.fspath(path).lower().endswith((".npz", ".json")):
        left_out = [name for name in (*drop, *others) if name != label]
        return read_bags(path, str(bag) if bag is not None else None, label, drop=left_out, optional=optional), str(bag)
    if [*drop]:
        raise ProblemError(f"--drop: expected columns of a table only, got {', '.join(drop)} for arrays")
    return read_bags(path), "bag"
