"""Problems from a user's own arrays: problem files, and their parts for training and testing."""

import os

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import ARRAY_NAMES, Problem


def labelled_problem(path: str | os.PathLike[str]) -> Problem:
    """Read a problem file that a classifier can be trained on.

    Parameters
    ----------
    path : path
        An ``.npz`` archive whose names are the arguments of :class:`attsvm.Problem`.

    Returns
    -------
    Problem
        With labels ±1, a head (d,) or none, and no batch axes.

    Raises
    ------
    ProblemError
        If the file does not make a problem (see :meth:`attsvm.Problem.load`), has no labels, has batch axes, or has
        more than two classes.
    """
    problem = Problem.load(path)
    if problem.labels is None:
        raise ProblemError(
            f"{path}: has no labels, so there is nothing to train on; `attsvm solve {path}` solves the Att-SVM of a "
            "selection without labels"
        )
    if problem.batch_shape:
        raise ProblemError(
            f"{path}: tokens of shape {problem.tokens.shape} found, (n, T, d) wanted: one problem a file, no batch axes"
        )
    if problem.num_classes is not None:
        raise ProblemError(f"{path}: a head of {problem.num_classes} classes found, labels ±1 and a head (d,) wanted")
    return problem


def sequences(problem: Problem, rows: np.ndarray) -> Problem:
    """The problem of some of the sequences, in the order of ``rows``; the head is shared."""
    arrays = {name: getattr(problem, name) for name in ARRAY_NAMES}
    return Problem(**{name: a if name == "head" or a is None else a[rows] for name, a in arrays.items()})


def split(problem: Problem, test_fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the sequences to train on and those to test on, each class in the same proportion.

    With several queries a sequence, its first counted label decides the class it is drawn with.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and no batch axes.
    test_fraction : float
        In [0, 1); 0 leaves nothing to test on.
    seed : int
        Of NumPy's generator.

    Returns
    -------
    train, test : int ndarrays
        Numbers of the sequences, rising; disjoint, together all of them.

    Raises
    ------
    ProblemError
        If the fraction is out of range, or the training part would lack a class.
    """
    if not 0 <= test_fraction < 1:
        raise ProblemError(f"test_fraction: {test_fraction:g} found, 0 <= test_fraction < 1 wanted")
    labels = problem.labels
    if labels is None:
        raise ProblemError("problem: has no labels; a split for training needs them")
    if problem.has_query_axis:
        first = np.argmax(problem.canonical.active, axis=-1)
        labels = np.take_along_axis(labels, first[:, None], axis=-1)[:, 0]
    generator = np.random.default_rng(seed)
    test: list[np.ndarray] = []
    for label in np.unique(labels):
        of_class = generator.permutation(np.flatnonzero(labels == label))
        test.append(of_class[: round(test_fraction * len(of_class))])
    chosen = np.sort(np.concatenate(test))
    train = np.setdiff1d(np.arange(problem.num_sequences), chosen)
    assert problem.labels is not None
    for label in (-1, 1):
        if not (problem.labels[train] == label).any():
            raise ProblemError(f"labels: no label {label:+d} is left to train on; both classes are needed")
    return train, chosen
