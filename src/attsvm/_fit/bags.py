"""Fit a classifier to bags: tables, arrays of different lengths, and any number of classes."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.multiclass import type_of_target

from attsvm._fit.bag_data import GivenBags
from attsvm._fit.page_result import PageResult
from attsvm._fit.splits import split_bags
from attsvm._utils.checks import check_number, check_seed
from attsvm._utils.progress import Callback
from attsvm.datasets import BagFile, shown
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier, Predictions, predict_bags

FILLS = ("mean", "median")
"""What missing numbers are filled with: a statistic of the column in the training bags."""


@dataclass(frozen=True, eq=False, repr=False)
class BagFit(PageResult):
    """A classifier that was fitted to bags, and its predictions for training and test bags.

    Attributes
    ----------
    classifier : AttentionClassifier
        Fitted to the training bags.
    train, test : attsvm.estimator.Predictions
        With the labels and a report; ``test`` is None if nothing is tested on.
    train_bags, test_bags : BagFile
    seed : int
        Of the split and of the classifier.
    settings : dict
        ``test_fraction``, or ``test``, the file; ``groups``, whether groups were kept together; and ``fill``, if given.
    seconds : float
        Wall time of the fit.
    data : str
        What the page calls the data.
    bag : str
        What a bag is called.

    See Also
    --------
    attsvm.fit, attsvm.load_model

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(100, 20, seed=0)
    >>> attsvm.fit(bags.train, labels=bags.train_labels, steps=50).predict(bags.test).shape
    (20,)
    """

    classifier: AttentionClassifier
    train: Predictions
    test: Predictions | None
    train_bags: BagFile
    test_bags: BagFile | None
    seed: int
    settings: dict[str, Any]
    seconds: float
    data: str
    bag: str

    def _rows(self) -> list[tuple[str, str]]:
        part, report = ("training", self.train.report) if self.test is None else ("test", self.test.report)
        assert report is not None
        return [
            ("run", f"{self.classifier.status_}, {self.classifier.kept_step_:,} steps"),
            (f"{part} accuracy", f"{report.accuracy:.3g}"),
            ("of one class", f"{report.majority:.3g}"),
        ]

    def predict(self, X: Any) -> Any:
        """The most probable class of each new bag, (n,); ``X`` in the forms of ``AttentionClassifier.predict``."""
        return self.classifier.predict(X)


def fit_bags(
    given: GivenBags,
    *,
    test_fraction: float = 0.25,
    seed: int = 0,
    callback: Callback | None = None,
    fill: str | None = None,
    **parameters: Any,
) -> BagFit:
    """Fit an :class:`attsvm.AttentionClassifier` to bags, and test it on others.

    ``test_fraction``: share of each class, in [0, 1), that is set apart if there are no bags to test on, by whole
    groups if there are some. ``parameters``: of the classifier; one that is None has its default. The other arguments
    are those of :func:`attsvm.fit`.

    Raises ProblemError if there are no labels, or an argument is out of range.
    """
    began = time.perf_counter()
    check_seed(seed)
    check_number("test_fraction", test_fraction, "a number in [0, 1)", lambda x: 0 <= x < 1)
    bags, test, data, columns = given
    for part, name in ((bags, data), (test, "test")):
        if part is not None and part.labels is None:
            raise ProblemError(f"{name}: expected labels to train and test with")
    assert bags.labels is not None
    if bags.labels.dtype.kind == "f" and (missing := np.flatnonzero(np.isnan(bags.labels))).size:
        raise ProblemError(f"labels: expected a label for each bag, got nan for bag {missing[0]}, counted from 0")
    if len(classes := np.unique(bags.labels)) < 2:
        raise ProblemError(f"labels: expected at least two classes, got only {shown(classes)}")
    if type_of_target(bags.labels) == "continuous":
        raise ProblemError(
            f"labels: expected classes, got {len(classes):,} numbers such as {classes[0]}; fit numbers in Python by "
            "attsvm.AttentionRegressor"
        )
    settings: dict[str, Any] = {"test_fraction": None if test is not None else test_fraction}
    if test is None:
        bags, test = split_bags(bags, test_fraction, seed)
    if fill is not None:
        settings["fill"], parameters["token_net"] = fill, _filling(fill, bags)
        parameters["scale"] = parameters.get("scale") or "columns"  # the units are those of a table
    classifier = AttentionClassifier(random_state=seed, **{name: x for name, x in parameters.items() if x is not None})
    classifier.fit(bags.sequences, bags.labels, groups=bags.groups, callback=callback)
    if columns is not None:
        classifier.file_columns_, classifier.bag_ = columns, columns.bag
    return BagFit(
        classifier,
        predict_bags(classifier, bags),
        None if test is None else predict_bags(classifier, test),
        bags,
        test,
        seed,
        {**settings, "groups": bags.groups is not None},
        time.perf_counter() - began,
        data,
        "bag" if columns is None else columns.bag,
    )


def _filling(fill: str, bags: BagFile) -> Any:
    """The transformer that fills missing numbers and encodes words, for a ``token_net``."""
    if fill not in FILLS:
        raise ProblemError(f"fill: expected {' or '.join(FILLS)}, got {fill!r}")
    sequences = bags.sequences
    empty = np.flatnonzero(np.isnan(sequences.table[np.unique(sequences.ids)]).all(axis=0))
    if len(empty):
        column = empty[0] if sequences.columns is None else repr(sequences.columns[empty[0]])
        raise ProblemError(f"fill: expected some numbers in column {column}, got none; leave out the column")
    numbers, words = SimpleImputer(strategy=fill), list(sequences.words or ())
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer((encoder, words), remainder=numbers) if words else numbers
