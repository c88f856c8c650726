"""What a fitted classifier says of new bags: classes, probabilities, and the tokens that decide."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from attsvm._utils.shapes import Float
from attsvm.datasets import BagFile, read_bags, shown
from attsvm.errors import ProblemError
from attsvm.estimator.bag_tokens import BagTokens, deciding_tokens, token_names
from attsvm.estimator.regression_predictions import RegressionPredictions, predict_numbers
from attsvm.estimator.report import ClassificationReport

if TYPE_CHECKING:
    from attsvm.estimator.regressor import AttentionRegressor
    from attsvm.estimator.sequence_classifier import SequenceClassifier


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Predictions(BagTokens):
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
        What each token is called: its row in a table below the header, or its number in the bag, both counted from 0.
    attention : ndarray, shape (N,), or None
        The share of each token in the attention of its bag; None for detectors, which have no attention. Of a
        classifier with an ensemble, or with n-grams of texts, it is that of attention alone.
    contributions : ndarray, shape (N, C), or None
        The part of each token in the output for each class, as ``contributions`` of the classifier returns it. The
        parts of a bag add up to the output, for two classes to the log odds of the class. None for texts.
    instance_scores : ndarray, shape (N, C)
        How much each token by itself speaks for each class; with an ensemble, for all of it.
    first : int ndarray, shape (n,)
        The place among the N tokens of the one that decides in each bag: that of the largest contribution to the
        predicted class. For detectors of two classes it is that of the largest contribution to the positive class,
        which is the one that they detect. For texts it is that of the largest attention.
    ensemble : tuple of str
        What decides together with attention or detectors: the names of the members of an ensemble; for texts "n-grams",
        or "n-grams alone". Empty if nothing does.
    labels : ndarray, shape (n,), or None
        What the bags are known to be.
    report : ClassificationReport or None
        How well the labels are predicted; None without labels.

    See Also
    --------
    attsvm.estimator.predict_bags : Makes them.
    attsvm.estimator.RegressionPredictions : Of a regressor.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import BagFile
    >>> bags = attsvm.datasets.digit_bags(100, 20, seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> found = attsvm.estimator.predict_bags(classifier, BagFile(bags.test))
    >>> found.ensemble
    ('largest similarities', 'mean similarities', 'extremes of columns')
    >>> bool((found.contribution > 0).all())  # the named token speaks for the predicted class
    True
    """

    classes: np.ndarray
    probability: Float[np.ndarray, "n C"]
    contributions: Float[np.ndarray, "N C"] | None = None
    instance_scores: Float[np.ndarray, "N C"]
    ensemble: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    report: ClassificationReport | None = None

    @property
    def predicted(self) -> np.ndarray:
        """The most probable class of each bag, (n,)."""
        return np.asarray(self.classes[self.probability.argmax(axis=1)])

    @property
    def contribution(self) -> Float[np.ndarray, " n"] | None:
        """The contribution of the selected token to the predicted class, (n,); None for texts."""
        if self.contributions is None:
            return None
        return np.asarray(self.contributions[self.first, self.probability.argmax(axis=1)])

    @property
    def share(self) -> Float[np.ndarray, " n"] | None:
        """The share of the selected token in the attention of its bag, (n,).

        None without attention, and where the token is one of an ensemble, which does not select by attention.
        """
        return None if self.ensemble and self.contributions is not None else self._share

    def __repr__(self) -> str:
        found, counts = np.unique(self.predicted, return_counts=True)
        named = ", ".join(f"{count:,} {name}" for name, count in zip(found, counts, strict=True))
        return f"Predictions({len(self.names):,} bags: {named})"


@overload
def predict_bags(estimator: "SequenceClassifier", bags: BagFile) -> Predictions: ...
@overload
def predict_bags(estimator: "AttentionRegressor", bags: BagFile) -> RegressionPredictions: ...
def predict_bags(estimator: Any, bags: BagFile) -> Predictions | RegressionPredictions:
    """Predict the classes or numbers of the bags in a file, and say which tokens decide.

    Parameters
    ----------
    estimator : AttentionClassifier, DetectorClassifier or AttentionRegressor
        Fitted.
    bags : BagFile
        Of :func:`attsvm.datasets.read_bags`. Labels are compared with the predictions; where labels and classes have
        different types, as words.

    Returns
    -------
    Predictions, of a regressor RegressionPredictions

    Raises
    ------
    ProblemError
        If the tokens are not as those of the fit, a label is none of the classes or no number, or there are labels for
        a regressor of times of events.
    NotFittedError
        If the estimator is not fitted.

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
    check_is_fitted(estimator)
    if is_regressor(estimator):
        return predict_numbers(estimator, bags)
    sequences, classes = bags.sequences, estimator.classes_
    labels = None if bags.labels is None else _as_classes(bags.labels, classes)
    probability = estimator.predict_proba(sequences)
    contributions = _of_classes(estimator.contributions, bags, classes)
    attention = np.asarray(estimator.attention(sequences)) if hasattr(estimator, "attention") else None
    # detectors detect the positive class
    of_positive = attention is None and len(classes) == 2
    wanted = np.argmax(classes == estimator.positive_) if of_positive else probability.argmax(axis=1)
    of_wanted = np.repeat(np.broadcast_to(wanted, len(sequences)), sequences.lengths)
    return Predictions(
        **token_names(bags),
        classes=classes,
        probability=probability,
        attention=attention,
        contributions=contributions,
        instance_scores=_of_classes(estimator.instance_scores, bags, classes),
        first=deciding_tokens(contributions[np.arange(len(of_wanted)), of_wanted], sequences.offsets),
        ensemble=() if estimator.ensemble_ is None else tuple(member.name for member in estimator.ensemble_.members),
        labels=labels,
        report=None if labels is None else estimator.report(sequences, labels),
    )


def _of_classes(method: Any, bags: BagFile, classes: np.ndarray) -> Float[np.ndarray, "N C"]:
    """What a method of a classifier says of each token for each class."""
    if len(classes) > 2:
        return np.asarray(method(bags.sequences))
    second = np.asarray(method(bags.sequences, class_=classes[1]))
    return np.column_stack([0.0 - second, second])


def _as_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The labels; as classes that are the same words, where one are numbers and the others words, as in text files.

    Raises ProblemError if a label is none of the classes.
    """
    if np.isin(labels, classes).all():
        return labels
    of_words = {str(name): name for name in classes.tolist()}
    same = [of_words.get(str(label), label) for label in labels.tolist()]
    for label in same:
        if label not in classes.tolist():
            raise ProblemError(f"labels: expected one of the labels {shown(classes)}, got {label!r}")
    return np.array(same, dtype=classes.dtype)


@dataclass(frozen=True)
class FileColumns:
    """The columns of the table that a classifier was fitted to, beside those of the tokens."""

    bag: str  # of a classifier of texts the column of the texts
    label: str
    others: tuple[str, ...] = ()  # groups, and what was left out


def read_as_fitted(
    classifier: Any,
    path: str | os.PathLike[str],
    *,
    bag: str | None,
    label: str | None,
    drop: Iterable[str],
    encoding: str | None = None,
) -> tuple[BagFile, str]:
    """Read bags as those of a fit, by default with its columns of bags and labels; and what a bag is called.

    Labels, groups and what the fit left out may be missing.

    Raises ProblemError if nothing says which column names the bags.
    """
    if os.fspath(path).lower().endswith((".npz", ".json")):
        return read_bags(path, bag, label, drop=drop, encoding=encoding), "bag"
    fitted: FileColumns | None = getattr(classifier, "file_columns_", None)
    others = () if fitted is None else fitted.others
    optional = [*others, *([fitted.label] if fitted is not None and label is None else [])]
    if fitted is not None:
        # who drops the labels predicts without them
        bag, label = bag or fitted.bag, label or (None if fitted.label in {*drop} else fitted.label)
    bag = bag or getattr(classifier, "bag_", None)
    left_out = [name for name in (*drop, *others) if name != label]
    column = None if bag is None else str(bag)
    try:
        return read_bags(path, column, label, drop=left_out, optional=optional, encoding=encoding), str(bag)
    except ProblemError as error:
        without = f"; to predict without labels, leave them out by --drop {label}"
        raise ProblemError(f"{error}{without * ('label: expected one entry' in str(error))}") from None
