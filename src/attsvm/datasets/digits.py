"""Real handwritten digits: the pictures, and the source that makes sequences of their patches."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import lazy_loader
import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.datasets.source import SOURCES, Pictures, Source, option
from attsvm.errors import ProblemError
from attsvm.problem import Problem

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


@dataclass(frozen=True)
class DigitPatches(Source):
    """The source ``digit-patches``: see :func:`digit_patches`."""

    name: ClassVar[str] = "digit-patches"
    summary: ClassVar[str] = "scikit-learn's handwritten digits, two classes of them; a token is a patch of a picture"

    classes: tuple[int, int] = option((3, 8), read=two_digits, help="two different digits, like 3,8")
    patch: int = option(2, read=int, help="side of a patch: 1, 2 or 4 pixels")

    def load(self) -> Problem:
        """Read the pictures of the two classes."""
        return digit_patches(self.classes, self.patch)

    def title(self) -> str:
        return f"Digits {self.classes[0]} and {self.classes[1]}"

    def label_names(self) -> tuple[int, int]:
        return self.classes

    def pictures(self, tokens: Float[np.ndarray, "n T d"]) -> Pictures:
        """The pictures of 8 × 8 pixels that the tokens are patches of."""
        rows = SIDE // self.patch
        top, left = np.divmod(np.arange(rows * rows), rows) * np.array(self.patch)
        side = np.full(rows * rows, self.patch)
        return Pictures(digit_pictures(tokens), np.stack([top, left, side, side], axis=-1))


SOURCES.register(DigitPatches.name, DigitPatches)


def digit_patches(classes: tuple[int, int] = (3, 8), patch: int = 2) -> Problem:
    """Two classes of scikit-learn's handwritten digits, one token per patch.

    ``classes``: the two digits; the first is labelled +1, the second −1. ``patch``: {1, 2, 4}, side of a square patch
    of the 8 × 8 picture.

    Returns n pictures in the order of the data set; T = (8 / patch)² tokens, row by row; each token is the patch's
    brightness in [0, 1], row by row, followed by its one-hot position: d = patch² + T. No queries, no head.

    Raises ProblemError if a class is not a digit, the two are equal, or the patches do not tile the picture.

    References: E. Alpaydin and C. Kaynak (1998), *Optical Recognition of Handwritten Digits*, UCI Machine Learning
    Repository.
    """
    check_classes(classes)
    if patch not in (1, 2, 4):
        raise ProblemError(f"patch: expected 1, 2 or 4, which tile a picture of {SIDE} x {SIDE}, got {patch}")
    data = load_digit_pictures()
    chosen = np.isin(data.digits, classes)
    pictures = data.brightness[chosen]
    n, rows = len(pictures), SIDE // patch
    brightness = pictures.reshape(n, rows, patch, rows, patch).swapaxes(2, 3).reshape(n, rows * rows, patch * patch)
    position = np.broadcast_to(np.eye(rows * rows), (n, rows * rows, rows * rows))
    labels = np.where(data.digits[chosen] == classes[0], 1.0, -1.0)
    return Problem(np.concatenate([brightness, position], axis=-1), labels=labels)


def digit_pictures(tokens: Float[np.ndarray, "n T d"]) -> Float[np.ndarray, "n 8 8"]:
    """The pictures that tokens of :func:`digit_patches` were cut from, brightness in [0, 1].

    Raises ProblemError if the tokens are not patches with one-hot positions.
    """
    n, T, d = np.shape(tokens)
    rows = round(T**0.5)
    patch = SIDE // max(rows, 1)
    if rows * rows != T or rows * patch != SIDE or d != patch * patch + T:
        raise ProblemError(f"tokens: expected the patches of an 8 x 8 picture, got shape {(n, T, d)}")
    brightness = np.asarray(tokens)[..., : patch * patch]
    return brightness.reshape(n, rows, rows, patch, patch).swapaxes(2, 3).reshape(n, SIDE, SIDE)
