"""The interface of a function for the minimiser: its value and derivatives."""

from typing import NamedTuple, Protocol, Self

import numpy as np


class Curvature(NamedTuple):
    """A Hessian as J' C J."""

    rows: np.ndarray  # J, shape (m, d)
    core: np.ndarray  # C, shape (m, m)

    def dense(self) -> np.ndarray:
        """The Hessian, shape (d, d)."""
        return np.asarray(self.rows.T @ self.core @ self.rows)

    def times(self, x: np.ndarray) -> np.ndarray:
        """Its product with a vector."""
        return np.asarray(self.rows.T @ (self.core @ (self.rows @ x)))


class Expansion(NamedTuple):
    """Value, gradient and Hessian of a function of d numbers."""

    value: float
    gradient: np.ndarray  # (d,)
    curvature: Curvature


class Objective(Protocol):
    """A function of d numbers to be minimised."""

    def value(self, x: np.ndarray) -> float:
        """The value; −∞ where it can only be computed after rebasing."""
        ...

    def expand(self, x: np.ndarray) -> Expansion:
        """Value and derivatives, where the value is finite."""
        ...

    def rebased(self, x: np.ndarray) -> Self:
        """The same function up to a monotone transformation, with the most accurate digits around x."""
        ...
