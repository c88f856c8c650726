"""Bags of real handwritten digits: is one of them a nine?"""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm._utils.shapes import Int
from attsvm.datasets.digits import load_digit_pictures
from attsvm.datasets.sequences import Sequences
from attsvm.errors import ProblemError


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of pictures for training and for testing. No picture occurs in both parts.

    Attributes
    ----------
    train, test : Sequences
        Each token a picture of 8 × 8 pixels, brightness in [0, 1], row by row: d = 64.
    train_labels, test_labels : int ndarray, shape (n,)
        1 if a bag contains the positive digit, otherwise 0.
    train_digits, test_digits : int ndarray, shape (N,)
        The digit of every token, in the order of ``ids``.
    """

    train: Sequences
    train_labels: Int[np.ndarray, " n"]
    train_digits: Int[np.ndarray, " N"]
    test: Sequences
    test_labels: Int[np.ndarray, " m"]
    test_digits: Int[np.ndarray, " M"]

    def __repr__(self) -> str:
        positive = f"{self.train_labels.mean():.0%} and {self.test_labels.mean():.0%}"
        return f"Bags({len(self.train)} for training and {len(self.test)} for testing, {positive} positive)"


def digit_bags(
    num_train: int = 1000,
    num_test: int = 1000,
    *,
    size: int = 5,
    digit: int = 9,
    test_fraction: float = 0.3,
    seed: int = 0,
) -> Bags:
    """Make bags of scikit-learn's handwritten digits; a bag is positive if one of its digits is a nine.

    Half of the bags are positive: they contain exactly one nine, at a random place. The pictures are split before the
    bags are drawn, so that no test picture is seen in training. A picture occurs at most once in a bag.

    Parameters
    ----------
    num_train, num_test : int
    size : int
        Number of pictures in a bag.
    digit : int
        The digit that makes a bag positive.
    test_fraction : float
        Share of the 1,797 pictures that the test bags are drawn from.
    seed : int

    Returns
    -------
    Bags

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    attsvm.AttentionClassifier

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(100, 50, size=5, seed=0)
    >>> bags.train.table.shape[1], len(bags.train), bags.train_labels.mean()
    (64, 100, np.float64(0.5))
    >>> (bags.train_digits == 9).sum()
    np.int64(50)
    """
    for name, value in (("num_train", num_train), ("num_test", num_test), ("size", size)):
        check_integer(name, value, 1)
    check_seed(seed)
    if digit not in range(10):
        raise ProblemError(f"digit: expected a digit from 0 to 9, got {digit!r}")
    check_number("test_fraction", test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)
    data = load_digit_pictures()
    pictures = data.brightness.reshape(len(data.digits), -1).astype(np.float32)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(pictures))
    held_out = round(test_fraction * len(order))
    drawn = []
    for part, rows, num_bags in (("train", order[held_out:], num_train), ("test", order[:held_out], num_test)):
        positives, others = rows[data.digits[rows] == digit], rows[data.digits[rows] != digit]
        if not len(positives) or len(others) < size:
            raise ProblemError(
                f"size: expected at most {len(others)}, the number of {part} pictures to draw from, got {size}"
            )
        labels = generator.permutation(np.arange(num_bags) % 2)
        bags = np.array([generator.choice(others, size, replace=False) for _ in range(num_bags)])
        positive = np.flatnonzero(labels)
        places = generator.integers(size, size=len(positive))
        bags[positive, places] = generator.choice(positives, len(positive))
        # ids: indices into the pictures of this part that are used
        used, ids = np.unique(bags.ravel(), return_inverse=True)
        sequences = Sequences(pictures[used], ids, size * np.arange(num_bags + 1))
        drawn += [sequences, labels, data.digits[bags.ravel()]]
    return Bags(*drawn)
