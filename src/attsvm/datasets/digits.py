"""What the sources of handwritten digits share: the pictures, and how two classes are named."""

from typing import NamedTuple

import lazy_loader
import numpy as np
from jaxtyping import Float, Int

from attsvm.errors import ProblemError

digit_data = lazy_loader.load("attsvm.datasets.digit_data", suppress_warning=True)

SIDE = 8
"""Pixels along a side of a picture."""

BRIGHTEST = 16.0


class DigitPictures(NamedTuple):
    """The handwritten digits of scikit-learn and their labels."""

    brightness: Float[np.ndarray, "n 8 8"]  # in [0, 1]
    digits: Int[np.ndarray, " n"]


def load_digit_pictures() -> DigitPictures:
    """Read the 1,797 pictures, in the order of the data set."""
    data = digit_data.load_digits()
    return DigitPictures(data.images / BRIGHTEST, data.target)


def two_digits(text: str) -> tuple[int, int]:
    """Read two digits, such as "3,8"."""
    first, second = (int(part) for part in text.split(","))
    return first, second


def check_classes(classes: tuple[int, int]) -> None:
    """Check that two classes are different digits.

    Raises ProblemError if they are not.
    """
    if len(classes) != 2 or not all(digit in range(10) for digit in classes) or classes[0] == classes[1]:
        raise ProblemError(f"classes: expected two different digits, like 3,8, got {','.join(map(str, classes))}")
