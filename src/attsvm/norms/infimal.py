"""The dual norm of a sum or of a largest norm: the least size of parts that sum to an array, bounded from above."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attsvm.norms.ball import project_on_ball
from attsvm.norms.base import Norm
from attsvm.norms.dual_bounds import CLOSE_ENOUGH, Bounds, Combination, bound_by_parts
from attsvm.norms.wrapper import Wrapper

NEAR = 1e-3
"""Parts are used for a matrix if they sum to it up to this part of its length."""


@dataclass(frozen=True)
class Infimal(Wrapper):
    """The dual of a sum or of a largest norm: the least size of parts that sum to an array, bounded from above.

    Parameters
    ----------
    of : Sum or Largest

    See Also
    --------
    attsvm.norms.Sum, attsvm.norms.Largest, attsvm.norms.Scaled

    Examples
    --------
    >>> from attsvm.norms import Infimal, Lp, Nuclear, sum_of
    >>> dual = sum_of([Nuclear(), Lp(1)]).dual
    >>> isinstance(dual, Infimal), dual.name
    (True, 'dual of nuclear+l1')
    """

    of: Combination

    def named(self, parts: Sequence[str]) -> str:
        """Such as "dual of nuclear+0.5*frobenius"."""
        return f"dual of {parts[0]}"

    @property
    def dual(self) -> Norm:
        """Return the combined norm."""
        return self.of

    @property
    def of_vectors(self) -> Norm:
        """The dual of the combined norm for vectors."""
        return self.of.of_vectors.dual

    def value(self, x: Any, axes: int = 2) -> float:
        """A bound from above; for matrices of ten rows and columns it is close to rounding."""
        x = np.asarray(x, dtype=np.float64)
        length = float(np.linalg.norm(x))
        if length == 0 or not np.isfinite(length):
            return length
        bounds = Bounds(self.of, x / length)
        bounds.improve_by_proximal_points()
        if not bounds.close(CLOSE_ENOUGH):
            bounds.improve_by_splitting()
        return bounds.upper * length

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        """The nearest point of the ball of the combined norm."""
        return project_on_ball(self.of, x)

    def steepest(self, g: np.ndarray) -> np.ndarray:
        """The point of the unit ball with the largest product with g, in NumPy."""
        return self.of.steepest_of_dual(g)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """The smallest of those of the dual norms, divided by their weights: each bounds this norm."""
        each = zip(self.of.norms, self.of.weights, strict=True)
        return min(norm.dual.frobenius_factor(shape) / c for norm, c in each)


@dataclass(frozen=True)
class WithParts(Wrapper):
    """A combination of norms with arrays that bound the dual norms of their sums. A solver returns it."""

    of: Combination
    # shape (N, k, d_k, d_q), for each of N matrices, one array for each norm
    arrays: np.ndarray = field(compare=False, repr=False)

    def value(self, x: Any, axes: int = 2) -> Any:
        return self.of.value(x, axes)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return self.of.values(x, axes)

    @property
    def dual(self) -> Infimal:
        """The least size of parts that sum to a matrix; of the arrays, if they nearly do."""
        return _BoundedByParts(self.of, self.arrays)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return self.of.frobenius_factor(shape)


@dataclass(frozen=True)
class _BoundedByParts(Infimal):
    arrays: np.ndarray = field(compare=False, repr=False)

    def value(self, x: Any, axes: int = 2) -> float:
        """The bound that the arrays prove if their sum is nearly a multiple of x; otherwise as without them."""
        x, bounds = np.asarray(x, dtype=np.float64), []
        for parts in self.arrays:
            whole = parts.sum(axis=0)
            square = float(np.vdot(whole, whole))
            factor = float(np.vdot(whole, x)) / (square or 1.0)
            if factor > 0 and np.linalg.norm(x - factor * whole) <= NEAR * factor * math.sqrt(square):
                bounds.append(bound_by_parts(self.of, x, factor * parts))
        return min(bounds) if bounds else super().value(x, axes)
