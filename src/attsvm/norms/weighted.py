"""Norms of P W R for invertible matrices P and R, such as the weighted Frobenius norm."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms.base import Norm
from attsvm.norms.lp import Lp

FROBENIUS = Lp(2.0)

MOST_STEPS = 60

LARGEST_CONDITION = 1e12
"""A matrix with a larger condition number counts as singular."""


@dataclass(frozen=True, eq=False)
class Weighted(Norm):
    """N(P W R), where N is the Frobenius norm by default.

    Its Att-SVM is that of N for keys P⁻ᵀ k and queries R⁻¹ z, so it is solved by the solver of N.

    Parameters
    ----------
    left : array, shape (d_k, d_k), or None
        P, invertible; None for the identity.
    right : array, shape (d_q, d_q), or None
        R, the same.
    of : Norm
        N.

    Raises
    ------
    ProblemError
        If a matrix is not square, not finite or not invertible, or if both are None.

    See Also
    --------
    attsvm.norms.Scaled

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Nuclear, Weighted
    >>> round(Weighted(np.diag([1.0, 2.0]), None).value(np.ones((2, 2))) ** 2, 9)
    10.0
    >>> Weighted(np.diag([1.0, 2.0]), None, Nuclear()).dual.name
    'weighted spectral'
    """

    left: np.ndarray | None
    right: np.ndarray | None
    of: Norm = FROBENIUS

    def __post_init__(self) -> None:
        if self.left is None and self.right is None:
            raise ProblemError("left, right: expected at least one matrix, got None for both")
        for name in ("left", "right"):
            object.__setattr__(self, name, _checked(name, getattr(self, name)))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.of, *(None if each is None else each.tobytes() for each in (self.left, self.right))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def name(self) -> str:
        """Such as "weighted frobenius"."""
        return f"weighted {self.of.name}"

    @property
    def parts(self) -> tuple[Norm, ...]:
        return (self.of,)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the matrices for which P and R are; a side without a matrix may have any length."""
        sides = [None if each is None else len(each) for each in (self.left, self.right)]
        return sides[0] or 3, sides[1] or 3

    @property
    def dual(self) -> "Weighted":
        """Return the norm N*(P⁻ᵀ A R⁻ᵀ)."""
        left, right = (None if each is None else each.T for each in self._inverses)
        return Weighted(left, right, self.of.dual)

    @property
    def of_vectors(self) -> Norm:
        """N(P w) of the norm for vectors.

        Raises ProblemError if there is a matrix R.
        """
        if self.right is not None:
            raise ProblemError(f"norm: {self.name}: expected no matrix on the right for vectors")
        return Weighted(self.left, None, self.of.of_vectors)

    @cached_property
    def _inverses(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        left, right = (None if each is None else np.linalg.inv(each) for each in (self.left, self.right))
        return left, right

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that arrays of a shape can be multiplied with P and R.

        Raises
        ------
        ProblemError
            If they cannot.
        """
        sides = [None if each is None else len(each) for each in (self.left, self.right)]
        if any(side not in (None, length) for side, length in zip(sides, shape, strict=False)):
            expected = " x ".join("any" if side is None else str(side) for side in sides)
            raise ProblemError(f"norm: {self.name}: expected matrices of {expected} entries, got shape {shape}")

    def inner(self, weights: Any, axes: int = 2) -> Any:
        """P W R, over the last ``axes`` axes."""
        self.check_shape(weights.shape[weights.ndim - axes :])
        return _between(self.left, weights, self.right, axes)

    def outer(self, weights: Any, axes: int = 2) -> Any:
        """P⁻¹ V R⁻¹, over the last ``axes`` axes."""
        left, right = self._inverses
        return _between(left, weights, right, axes)

    def adjoint_of_outer(self, matrices: Any, axes: int = 2) -> Any:
        """P⁻ᵀ A R⁻ᵀ, over the last ``axes`` axes."""
        left, right = (None if each is None else each.T for each in self._inverses)
        return _between(left, matrices, right, axes)

    def value(self, x: Any, axes: int = 2) -> Any:
        values = self.values(x, min(axes, np.ndim(x)))
        return values if values.ndim else float(values)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return self.of.values(self.inner(np.asarray(x, dtype=np.float64), axes), axes)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """By one scalar equation in the singular vectors of P and R, if N is the Frobenius norm.

        Raises MissingPiece for another norm N.
        """
        if self.of != FROBENIUS:
            raise self._missing("prox", "proximal methods cannot use it")
        (left, by_row), (right, by_column) = self._bases(x)
        turned = _between(left.T, x, None if right is None else right, x.ndim)
        stretch = by_row**2 if by_column is None else np.outer(by_row**2, by_column**2)
        return np.asarray(_between(left, turned * _shrinkage(turned, stretch, step), _transposed(right), x.ndim))

    def _bases(self, x: np.ndarray) -> Any:
        """The right singular vectors and the singular values of P, and the left ones of R."""
        left = np.eye(len(x)) if self.left is None else self.left
        _, by_row, Vt = np.linalg.svd(left)
        if x.ndim == 1:
            return (Vt.T, by_row), (None, None)
        right = np.eye(x.shape[1]) if self.right is None else self.right
        U, by_column, _ = np.linalg.svd(right)
        return (Vt.T, by_row), (U, by_column)

    def steepest(self, g: Any) -> Any:
        """P⁻¹ D R⁻¹ with the direction D of N for P⁻ᵀ g R⁻ᵀ."""
        return self.outer(self.of.steepest(self.adjoint_of_outer(g, g.ndim)), g.ndim)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """That of N times the largest singular values of P and R."""
        sizes = [1.0 if each is None else float(np.linalg.norm(each, 2)) for each in (self.left, self.right)]
        return self.of.frobenius_factor(shape) * sizes[0] * sizes[1]


def _checked(name: str, matrix: Any) -> np.ndarray | None:
    """The matrix as an array of its own that cannot be changed."""
    if matrix is None:
        return None
    array = np.array(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ProblemError(f"{name}: expected a square matrix, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ProblemError(f"{name}: expected finite numbers, got {array[~np.isfinite(array)][0]}")
    condition = float(np.linalg.cond(array))
    if not condition < LARGEST_CONDITION:
        raise ProblemError(f"{name}: expected an invertible matrix, got one with condition number {condition:.1e}")
    array.setflags(write=False)
    return array


def _between(left: np.ndarray | None, x: Any, right: np.ndarray | None, axes: int) -> Any:
    """Left x right for matrices, left x for vectors; the identity for None."""
    xp = x.__array_namespace__()
    if axes == 1:
        return x if left is None else xp.einsum("ij,...j->...i", xp.asarray(left, dtype=x.dtype), x)
    if left is not None:
        x = xp.asarray(left, dtype=x.dtype) @ x
    return x if right is None else x @ xp.asarray(right, dtype=x.dtype)


def _transposed(matrix: np.ndarray | None) -> np.ndarray | None:
    return None if matrix is None else matrix.T


def _shrinkage(x: np.ndarray, stretch: np.ndarray, step: float) -> np.ndarray:
    """The factors v/(v + step·e) of the proximal map of v(w) = √(Σ e w²), with v that of the proximal point itself.

    v solves Σ e x²/(v + step·e)² = 1. Newton's method on the inverse root of the sum, which is nearly linear in v,
    rises from 0 to it.
    """
    if float((x * x / stretch).sum()) <= step**2:
        return np.zeros_like(x)
    value = 0.0
    for _ in range(MOST_STEPS):
        denominator = value + step * stretch
        total = float((stretch * (x / denominator) ** 2).sum())
        slope = float((stretch * (x / denominator) ** 2 / denominator).sum())
        change = (total**1.5 - total) / slope
        value += change
        if abs(change) <= 1e-15 * value:
            break
    return np.asarray(value / (value + step * stretch))
