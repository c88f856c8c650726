"""What is set apart for testing: sequences of a problem, bags, and texts."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from attsvm._utils.checks import check_number, check_seed
from attsvm.datasets import BagFile
from attsvm.errors import ProblemError
from attsvm.problem import Problem


def split(problem: Problem, test_fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Split the sequences into a training part and a test part, with the same proportion of each class.

    A sequence with several queries counts for the class of its first unmasked query.

    ``problem``: with labels ±1 and no batch axes. ``test_fraction``: in [0, 1). With 0 the test part is empty.

    Returns indices of the sequences in ascending order; together they are all sequences, each once. Raises ProblemError
    if the fraction is out of range, or the training part would have no sequence of a class.
    """
    check_number("test_fraction", test_fraction, "a number in [0, 1)", lambda x: 0 <= x < 1)
    check_seed(seed)
    labels = problem.labels
    if labels is None:
        raise ProblemError("problem: expected labels, by which to split")
    if problem.has_query_axis:
        first = np.argmax(problem.canonical.active, axis=-1)
        labels = np.take_along_axis(labels, first[:, None], axis=-1)[:, 0]
    train, chosen = split_classes(labels, np.unique(labels), test_fraction, seed)
    assert problem.labels is not None
    for label in (-1, 1):
        if not (problem.labels[train] == label).any():
            raise ProblemError(
                f"labels: expected both classes among the training sequences, got none with label {label:+d}"
            )
    return train, chosen


def split_classes(
    labels: np.ndarray, classes: Iterable[Any], test_fraction: float, seed: int, *, left: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to test on, in ascending order, with the same proportion of each class.

    ``labels``: (n,). ``classes``: in the order in which rows are drawn. ``left``: fewest rows of a class to train on.
    """
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(np.flatnonzero(labels == label)) for label in classes]
    test = np.sort(np.concatenate([rows[: min(round(test_fraction * len(rows)), len(rows) - left)] for rows in drawn]))
    return np.setdiff1d(np.arange(len(labels)), test), test


def split_bags(bags: BagFile, fraction: float, seed: int) -> tuple[BagFile, BagFile | None]:
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
            f"test_fraction: expected enough bags of each class to set apart {fraction} of them; 0 tests on nothing "
            f"({error})"
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
