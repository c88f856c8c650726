"""Fit a classifier to bags: tables, arrays of different lengths, and any number of classes."""

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from attsvm._utils.checks import check_number, check_seed
from attsvm._utils.progress import Callback
from attsvm.datasets import BagFile, shown
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier, FileColumns, Predictions, predict_bags
from attsvm.pages import claim_folder, make_page

COMMAND = "attsvm.fit"
"""The command that pages and numbers name if they are made in Python."""


@dataclass(frozen=True, eq=False, repr=False)
class BagFit:
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
        ``test_fraction``, or ``test``, the file; and ``groups``, whether groups were kept together.
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

    def __repr__(self) -> str:
        part, report = ("training", self.train.report) if self.test is None else ("test", self.test.report)
        assert report is not None
        steps = f"{self.classifier.status_}, {self.classifier.kept_step_:,} steps"
        return f"BagFit({steps}; {part} accuracy {report.accuracy:.3g}, of one class {report.majority:.3g})"

    def predict(self, X: Any) -> Any:
        """The most probable class of each new bag, (n,); ``X`` in the forms of ``AttentionClassifier.predict``."""
        return self.classifier.predict(X)

    def numbers(self, command: str = COMMAND, threads: int | None = None) -> dict[str, Any]:
        """Everything that was measured as JSON-able numbers, with None in place of NaN.

        Parameters
        ----------
        command : str
            What the result names as its command.
        threads : int, optional
            The limit on threads, if there was one.
        """
        return make_page(self, command=command, threads=threads).numbers

    def page(self) -> str:
        """Make the page of the fit, as one HTML document that loads nothing."""
        return make_page(self, command=COMMAND).html()

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write what ``attsvm fit --out`` writes: ``index.html``, ``figures/``, ``result.json`` and ``model.npz``.

        Parameters
        ----------
        folder : path
            It is written completely or not at all.
        force : bool
            Replace a folder that holds an earlier result.

        Raises
        ------
        ProblemError
            If the folder exists and may not be replaced, or cannot be written.
        """
        with claim_folder(folder, force) as write:
            write(make_page(self, command=COMMAND).write)


def fit_bags(
    bags: BagFile,
    test: BagFile | None = None,
    *,
    data: str,
    columns: FileColumns | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    steps: int | None = None,
    learning_rate: float | None = None,
    scale: str | None = None,
    device: str | None = None,
    callback: Callback | None = None,
) -> BagFit:
    """Fit an :class:`attsvm.AttentionClassifier` to bags, and test it on others.

    ``test``: without them ``test_fraction``, in [0, 1), of each class is set apart, by whole groups if there are some.
    ``data``: what the page calls them. ``columns``: of a table, for the model file. The other arguments are those of
    :func:`attsvm.fit`.

    Raises ProblemError if there are no labels, or an argument is out of range.
    """
    began = time.perf_counter()
    check_seed(seed)
    check_number("test_fraction", test_fraction, "a number in [0, 1)", lambda x: 0 <= x < 1)
    for part, name in ((bags, data), (test, "test")):
        if part is not None and part.labels is None:
            raise ProblemError(f"{name}: expected labels to train and test on, got none")
    assert bags.labels is not None
    if len(classes := np.unique(bags.labels)) < 2:
        raise ProblemError(f"labels: expected at least two classes, got only {shown(classes)}")
    settings: dict[str, Any] = {"test_fraction": None if test is not None else test_fraction}
    if test is None:
        bags, test = _split(bags, test_fraction, seed)
    given: dict[str, Any] = {"max_steps": steps, "learning_rate": learning_rate, "scale": scale, "device": device}
    classifier = AttentionClassifier(random_state=seed, **{name: x for name, x in given.items() if x is not None})
    classifier.fit(bags.sequences, bags.labels, groups=bags.groups, callback=callback)
    if columns is not None:
        classifier.file_columns_ = columns
        classifier.bag_ = columns.bag
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


def _split(bags: BagFile, fraction: float, seed: int) -> tuple[BagFile, BagFile | None]:
    """Bags to train on, and about the fraction of each class to test on; groups are not divided."""
    if not fraction:
        return bags, None
    assert bags.labels is not None
    rows = np.arange(len(bags.sequences))
    try:
        if bags.groups is None:
            train, test = train_test_split(rows, test_size=fraction, stratify=bags.labels, random_state=seed)
        else:
            folds = StratifiedGroupKFold(max(2, round(1 / fraction)), shuffle=True, random_state=seed)
            train, test = next(folds.split(rows, bags.labels, bags.groups))
    except ValueError as error:
        raise ProblemError(
            f"test_fraction: {fraction} of the bags cannot be set apart ({error}); with 0 nothing is tested"
        ) from None
    missing = np.setdiff1d(bags.labels, bags.labels[train])
    if len(missing):
        raise ProblemError(f"labels: expected each class among the training bags, got none of {missing.tolist()[0]!r}")
    return chosen_bags(bags, np.sort(train)), chosen_bags(bags, np.sort(test))


def chosen_bags(bags: BagFile, which: np.ndarray) -> BagFile:
    """Some of the bags of a file."""
    places = np.concatenate([np.arange(*bags.sequences.offsets[i : i + 2]) for i in which.tolist()])
    labels, groups = (None if values is None else values[which] for values in (bags.labels, bags.groups))
    return BagFile(bags.sequences[which], labels, groups, None if bags.rows is None else bags.rows[places])
