"""Unit tests of the multiple-instance assumption: bags that a model gets wrong if it violates the assumption."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attsvm._utils.checks import check_integer, check_seed
from attsvm._utils.shapes import Int
from attsvm.datasets.sequences import Sequences
from attsvm.errors import ProblemError

POISON = -1
"""The role of a poison token."""

Counts = list[tuple[int, int]]
"""Roles of tokens, with their numbers."""

Draw = Callable[[np.random.Generator, int, bool], Counts]
"""Counts of a bag from a generator, its label, and whether it is for testing."""


@dataclass(frozen=True, eq=False)
class MilUnitTest:
    """Bags for training and for testing, whose distributions differ on purpose.

    Attributes
    ----------
    train, test : Sequences
        Bags; each token occurs once.
    train_labels, test_labels : int ndarray, shape (n,)
        0 or 1.
    train_roles, test_roles : int ndarray, shape (N,)
        Of each token: 0 background, 1 and 2 the two concepts, −1 poison.
    """

    train: Sequences
    train_labels: Int[np.ndarray, " n"]
    train_roles: Int[np.ndarray, " N"]
    test: Sequences
    test_labels: Int[np.ndarray, " m"]
    test_roles: Int[np.ndarray, " M"]


def mil_unit_tests(
    name: Literal["presence", "and", "false_frequency"],
    seed: int = 0,
    *,
    num_train: int = 1000,
    num_test: int = 600,
    dim: int = 16,
) -> MilUnitTest:
    """Make one of three unit tests for multiple-instance learning.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    In all three, a bag is positive if it contains certain tokens, whatever else it contains. Another rule also fits the
    training bags, and is wrong on the test bags. A model that keeps the multiple-instance assumption has test AUROC 1,
    up to the overlap of the distributions; one that learns the other rule has a test AUROC below 0.5.
    Half of the bags are positive. N(m, s) has independent entries of mean m and standard deviation s.

    - *presence*: ten background tokens N(0, 1). Positive bags have one to three tokens of N(0, 3) or N(1, 1). A poison
      token N(−10, 0.1) is in the negative bags for training and in the positive bags for testing.
    - *and*: one to nine background tokens. Positive bags have one to three tokens of each of the concepts N(2, 0.1) and
      N(3, 0.1), negative bags one token of one of them. The poison is the same.
    - *false_frequency*: one to nine background tokens. Positive bags have one token of each concept. Negative bags have
      one token of one concept for training, and 35 to 45 of it for testing.

    Parameters
    ----------
    name : {"presence", "and", "false_frequency"}
    seed : int
    num_train, num_test : int
        Number of bags.
    dim : int
        Number of entries of a token.

    Returns
    -------
    MilUnitTest

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    attsvm.datasets.digit_bags : Bags of pictures.

    References
    ----------
    Raff and Holt (2023), *Reproducibility in Multiple Instance Learning: A Case For Algorithmic Unit Tests*
    (arXiv 2310.17867), Algorithms 1 to 3.

    Examples
    --------
    >>> import attsvm
    >>> data = attsvm.datasets.mil_unit_tests("and", seed=1)
    >>> poisoned = data.train_roles == -1
    >>> data.train.table[poisoned].mean().round()
    np.float64(-10.0)
    """
    if name not in TESTS:
        raise ProblemError(f"name: expected one of {', '.join(TESTS)}, got {name!r}")
    check_seed(seed)
    for argument, number in (("num_train", num_train), ("num_test", num_test), ("dim", dim)):
        check_integer(argument, number, 1)
    draw, distributions = TESTS[name]
    generator = np.random.default_rng(seed)
    drawn: list[Any] = []
    for num_bags, testing in ((num_train, False), (num_test, True)):
        labels = generator.permutation(np.arange(num_bags) % 2)
        bags = [np.repeat(*np.array(draw(generator, int(label), testing), dtype=int).T) for label in labels]
        roles = np.concatenate([generator.permutation(bag) for bag in bags])
        tokens = np.empty((len(roles), dim))
        for role, choices in distributions.items():
            rows = np.flatnonzero(roles == role)
            mean, deviation = np.array(choices)[generator.integers(len(choices), size=len(rows))].T
            tokens[rows] = generator.normal(mean[:, None], deviation[:, None], size=(len(rows), dim))
        offsets = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])])
        drawn += [Sequences(tokens, np.arange(len(roles)), offsets), labels, roles]
    return MilUnitTest(*drawn)


def _presence(generator: np.random.Generator, label: int, testing: bool) -> Counts:
    return [(0, 10), (1, int(generator.integers(1, 4)) * label), (POISON, int(label == testing))]


def _and(generator: np.random.Generator, label: int, testing: bool) -> Counts:
    each = int(generator.integers(1, 4)) if label else 1
    return [*_concepts(generator, label, each), (POISON, int(label == testing))]


def _false_frequency(generator: np.random.Generator, label: int, testing: bool) -> Counts:
    each = int(generator.integers(35, 46)) if testing and not label else 1
    return _concepts(generator, label, each)


def _concepts(generator: np.random.Generator, label: int, each: int) -> Counts:
    """Background, and as many tokens as given of both concepts or of one."""
    concepts = [1, 2] if label else [int(generator.integers(1, 3))]
    return [(0, int(generator.integers(1, 10))), *((concept, each) for concept in concepts)]


_CONCEPTS = {0: [(0.0, 1.0)], 1: [(2.0, 0.1)], 2: [(3.0, 0.1)], POISON: [(-10.0, 0.1)]}
TESTS: dict[str, tuple[Draw, dict[int, list[tuple[float, float]]]]] = {
    "presence": (_presence, {0: [(0.0, 1.0)], 1: [(0.0, 3.0), (1.0, 1.0)], POISON: [(-10.0, 0.1)]}),
    "and": (_and, _CONCEPTS),
    "false_frequency": (_false_frequency, _CONCEPTS),
}
"""Of each test: the roles of a bag's tokens, and for each role the (mean, deviation) a token draws one of."""
