"""One radius of the path of one problem."""

from typing import NamedTuple

import numpy as np

from attsvm.regularization.excess import Excess

_SAME = 1e-6


class Point(NamedTuple):
    """A minimum.

    Attributes
    ----------
    weights : ndarray, shape (d_k d_q,)
    excess : Excess
        Over the loss of the head's optimal tokens.
    residual : float
    head : ndarray, shape (d,)
    head_residual : float
        0 for a fixed head.
    """

    weights: np.ndarray
    excess: Excess
    residual: float
    head: np.ndarray
    head_residual: float = 0.0


def is_close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two minima are the same up to 1e-6 of their length."""
    return bool(np.linalg.norm(one - other) <= _SAME * np.linalg.norm(one))
