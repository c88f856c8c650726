"""Canvases of nine handwritten digits: one of them decides the label, and a classifier has to find it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm._utils.shapes import Float, Int
from attsvm.datasets.digits import SIDE, check_classes, load_digit_pictures, two_digits
from attsvm.datasets.source import SOURCES, Drawing, Pictures, Source, option
from attsvm.errors import ProblemError
from attsvm.problem import Problem

ROWS = 3
"""Pictures along a side of a canvas."""

PLACES = ROWS * ROWS


@dataclass(frozen=True, eq=False)
class Canvases:
    """Canvases for training and for testing. No picture occurs in both parts.

    Attributes
    ----------
    train, test : Problem
        A token is one of the nine pictures, row by row: T = 9, d = 64. A label is +1 for the first class and −1 for the
        second. No queries, no head.
    train_places, test_places : int ndarray, shape (n,)
        The place of the picture that decides the label.
    train_digits, test_digits : int ndarray, shape (n, 9)
        The digits on each canvas.
    """

    train: Problem
    train_places: Int[np.ndarray, " n"]
    train_digits: Int[np.ndarray, "n 9"]
    test: Problem
    test_places: Int[np.ndarray, " m"]
    test_digits: Int[np.ndarray, "m 9"]


def digit_canvases(
    num_train: int = 1000,
    num_test: int = 1000,
    *,
    classes: tuple[int, int] = (3, 8),
    test_fraction: float = 0.3,
    seed: int = 0,
) -> Canvases:
    """Arrange scikit-learn's handwritten digits on 3 × 3 canvases; one digit decides the label of a canvas.

    One picture, at a random place, shows a digit of the two classes; it decides the label. The other eight show digits
    of neither class. Half of the canvases belong to each class. The pictures are split before the canvases are made, so
    no test picture is seen in training. A picture occurs at most once on a canvas.

    Parameters
    ----------
    num_train, num_test : int
        Number of canvases.
    classes : (int, int)
        The two digits; canvases of the first are labelled +1, those of the second −1.
    test_fraction : float
        Share of the 1,797 pictures that the test canvases are made of, in (0, 1).
    seed : int

    Returns
    -------
    Canvases

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    attsvm.datasets.digit_bags

    References
    ----------
    E. Alpaydin and C. Kaynak (1998), *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository.

    Examples
    --------
    >>> import attsvm
    >>> canvases = attsvm.datasets.digit_canvases(100, 50)
    >>> canvases.train.tokens.shape
    (100, 9, 64)
    >>> canvases.test_digits[0], int(canvases.test_places[0])  # the 3 is in the last place
    (array([7, 1, 1, 9, 1, 2, 0, 0, 3]), 8)
    """
    check_classes(classes)
    for name, value in (("num_train", num_train), ("num_test", num_test)):
        check_integer(name, value, 2)
    check_number("test_fraction", test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)
    check_seed(seed)
    data = load_digit_pictures()
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(data.digits))
    held_out = round(test_fraction * len(order))
    made = []
    for part, rows, number in (("train", order[held_out:], num_train), ("test", order[:held_out], num_test)):
        of_class = [rows[data.digits[rows] == digit] for digit in classes]
        others = rows[~np.isin(data.digits[rows], classes)]
        if not (len(of_class[0]) and len(of_class[1]) and len(others) >= PLACES - 1):
            raise ProblemError(
                f"test_fraction: expected pictures of both classes and {PLACES - 1} others in each part, got "
                f"{test_fraction:g}, which leaves too few for the {part} canvases"
            )
        kinds = generator.permutation(np.arange(number) % 2)
        places = generator.integers(PLACES, size=number)
        shown = np.array([generator.choice(others, PLACES, replace=False) for _ in range(number)])
        shown[np.arange(number), places] = [generator.choice(of_class[kind]) for kind in kinds]
        tokens = data.brightness[shown].reshape(number, PLACES, SIDE * SIDE)
        made += [Problem(tokens, labels=1.0 - 2.0 * kinds), places, data.digits[shown]]
    return Canvases(*made)


def canvas_pictures(tokens: Float[np.ndarray, "n 9 64"]) -> Float[np.ndarray, "n 24 24"]:
    """The canvases that tokens of :func:`digit_canvases` are on, brightness in [0, 1]."""
    placed = np.asarray(tokens).reshape(-1, ROWS, ROWS, SIDE, SIDE).swapaxes(2, 3)
    return placed.reshape(-1, ROWS * SIDE, ROWS * SIDE)


@dataclass(frozen=True)
class Digits(Source):
    """The source ``digits``: see :func:`digit_canvases`."""

    name: ClassVar[str] = "digits"
    summary: ClassVar[str] = (
        "nine of scikit-learn's handwritten digits on a canvas, one of which decides the label; a token is a digit"
    )
    draws: ClassVar[int] = 3

    classes: tuple[int, int] = option((3, 8), read=two_digits, help="two different digits, like 3,8")
    train: int = option(1000, read=int, help="number of training canvases")
    test: int = option(1000, read=int, help="number of test canvases")

    def load(self) -> Problem:
        """Training and test canvases of seed 0, in this order."""
        return self.drawing().problem

    def drawing(self, seed: int = 0, test_fraction: float = 0.25) -> Drawing:
        """Make canvases; the test canvases are made of a share of the pictures that no training canvas shows."""
        made = digit_canvases(self.train, self.test, classes=self.classes, test_fraction=test_fraction, seed=seed)
        parts = made.train, made.test
        tokens, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("tokens", "labels"))
        return Drawing(
            Problem(tokens, labels=labels),
            np.arange(self.train, self.train + self.test),
            np.concatenate([made.train_places, made.test_places]),
        )

    def title(self) -> str:
        """What a canvas holds."""
        return f"Nine digits, one of them a {self.classes[0]} or {self.classes[1]}"

    def label_names(self) -> tuple[int, int]:
        return self.classes

    def pictures(self, tokens: Float[np.ndarray, "n T d"]) -> Pictures:
        """The canvases of 24 × 24 pixels."""
        top, left = SIDE * np.stack(np.divmod(np.arange(PLACES), ROWS))
        side = np.full(PLACES, SIDE)
        return Pictures(canvas_pictures(tokens), np.stack([top, left, side, side], axis=-1))


SOURCES.register(Digits.name, Digits)
