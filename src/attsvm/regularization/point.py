"""One radius of the path of one problem."""

from dataclasses import dataclass

import numpy as np

from attsvm.regularization.excess import Excess
from attsvm.regularization.linear import LinearExcess

_SAME = 1e-6


@dataclass(frozen=True)
class Point:
    """A minimum of the loss on a path."""

    weights: np.ndarray  # shape (d_k d_q,)
    excess: Excess  # over the loss of the head's optimal tokens
    residual: float


@dataclass(frozen=True)
class JointPoint(Point):
    """A minimum in attention and head."""

    excess: LinearExcess
    head: np.ndarray  # shape (d,)
    head_residual: float


def is_close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two minima are the same up to 1e-6 of their length."""
    return bool(np.linalg.norm(one - other) <= _SAME * np.linalg.norm(one))
