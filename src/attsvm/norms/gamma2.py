"""The γ2 norm (max-norm) and its dual, by semidefinite programs whose bounds are certified."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.norms.base import Norm
from attsvm.norms.conic import TOLERANCE, Triangle, solved
from attsvm.norms.lp import Lp
from attsvm.norms.registry import NORMS

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Gamma2(Norm):
    """γ2(W), the least max_i ‖x_i‖ max_j ‖y_j‖ over W = X Y', where x_i and y_j are the rows of X and Y.

    It is the smallest t for which some matrix with W in its corner, [[A, W], [W', B]], is positive semidefinite and has
    a diagonal of at most t. Its value is a program: it needs Clarabel (``pip install attsvm[conic]``), takes a few
    tens of milliseconds at 10 rows, and is a bound from above with a relative error of about 1e-10.

    References
    ----------
    Srebro and Shraibman (2005), *Rank, Trace-Norm and Max-Norm*; Linial, Mendelson, Schechtman and Shraibman (2007),
    *Complexity measures of sign matrices*.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Gamma2
    >>> round(Gamma2().value(np.array([[1.0, 1.0], [1.0, -1.0]])), 6)
    1.414214
    """

    name = "gamma2"

    @property
    def dual(self) -> "DualGamma2":
        """Half the least Σ u + Σ v over the diagonals with [[D(u), G], [G', D(v)]] positive semidefinite."""
        return DualGamma2()

    @property
    def of_vectors(self) -> Norm:
        """ℓ∞."""
        return Lp(np.inf)

    def value(self, x: Any, axes: int = 2) -> float:
        """A bound from above, from a matrix that is positive semidefinite up to rounding."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        scale = float(np.abs(x).max(initial=0.0))
        if scale == 0 or not np.isfinite(scale):
            return scale
        return scale * _least_diagonal(x / scale)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """1: γ2 is at most the spectral norm."""
        return 1.0


@dataclass(frozen=True)
class DualGamma2(Norm):
    """The dual of γ2: the largest Σ g_ij ⟨x_i, y_j⟩ over unit vectors x_i and y_j.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Gamma2
    >>> round(Gamma2().dual.value(np.eye(3)), 6)
    3.0
    """

    name = "dual of gamma2"

    @property
    def dual(self) -> Gamma2:
        """γ2."""
        return Gamma2()

    @property
    def of_vectors(self) -> Norm:
        """ℓ1."""
        return Lp(1.0)

    def value(self, x: Any, axes: int = 2) -> float:
        """A bound from above, from a diagonal that is repaired.

        It is σ √(Σ u Σ v) for the largest singular value σ of D(u)^(−1/2) G D(v)^(−1/2), or half the sum of u and v,
        each raised until the matrix is semidefinite.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        scale = float(np.abs(x).max(initial=0.0))
        if scale == 0 or not np.isfinite(scale):
            return scale
        rows, columns = np.abs(x).max(axis=1) > 0, np.abs(x).max(axis=0) > 0
        return scale * _least_sum(x[rows][:, columns] / scale)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """√(d_k d_q)."""
        return float(np.sqrt(shape[0] * shape[1]))


def _least_diagonal(corner: np.ndarray) -> float:
    """A bound on γ2 from above: the largest entry on the diagonal of a semidefinite matrix with nearly this corner.

    The matrix is the multiplier of the program for the dual norm, ⟨W, G⟩ over [[D(u), −G], [−G', D(v)]] ⪰ 0 and
    Σ u + Σ v = 2. Clarabel finds it with more digits than as the variable of a program of its own. What the corner
    lacks is added by its spectral norm, which is at least its γ2.
    """
    rows, columns = corner.shape
    number = rows + columns
    triangle = Triangle(number)
    inside = np.flatnonzero(triangle.is_in_corner(rows))
    weights = np.concatenate([np.zeros(number), -triangle.of_corner(corner)[inside]])
    total = np.zeros((1, len(weights)))
    total[0, :number] = 1.0
    cone = np.zeros((len(triangle.scales), len(weights)))
    cone[triangle.diagonal, np.arange(number)] = -1.0
    cone[inside, number + np.arange(len(inside))] = triangle.scales[inside]
    given = np.zeros(len(triangle.scales))
    _, multipliers = solved(weights, total, np.array([2.0]), cone, given, number, equalities=1)
    matrix = 2 * triangle.matrix(multipliers[1:] / triangle.scales)
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    lacking = float(np.linalg.norm(corner - matrix[:rows, rows:], 2))
    # the computed eigenvalues are those of a matrix that differs by a few rounding errors
    return float(np.diagonal(matrix).max() + max(0.0, -lowest) + lacking + 4 * EPS * np.trace(matrix))


def _least_sum(matrix: np.ndarray) -> float:
    """A bound on the dual of γ2 of a matrix without rows or columns of zeros."""
    rows, columns = matrix.shape
    triangle = Triangle(rows + columns)
    number = rows + columns
    cone = np.zeros((len(triangle.scales), number))
    cone[triangle.diagonal, np.arange(number)] = -1.0
    given = -triangle.of_corner(matrix) * triangle.scales
    nothing = np.zeros((0, number))
    found, _ = solved(np.full(number, 0.5), nothing, np.zeros(0), cone, given, triangle.size)
    return min(_stretched(matrix, found), _shifted(matrix, found))


def _stretched(matrix: np.ndarray, diagonal: np.ndarray) -> float:
    """The bound of a diagonal that is multiplied by σ; good to the last digits where all entries are positive."""
    rows = len(matrix)
    positive = np.maximum(diagonal, TOLERANCE * diagonal.max())
    u, v = positive[:rows], positive[rows:]
    sigma = float(np.linalg.norm(matrix / np.sqrt(u)[:, None] / np.sqrt(v), 2))
    return float((1 + 4 * EPS * len(diagonal)) * sigma * np.sqrt(u.sum() * v.sum()))


def _shifted(matrix: np.ndarray, diagonal: np.ndarray) -> float:
    """The bound of a diagonal to which the smallest eigenvalue is added; good where an entry is nearly 0."""
    rows = len(matrix)
    whole = np.diag(diagonal)
    whole[:rows, rows:], whole[rows:, :rows] = -matrix, -matrix.T
    lowest = float(np.linalg.eigvalsh(whole)[0]) - 4 * EPS * float(diagonal.sum())
    return 0.5 * float(diagonal.sum() + len(diagonal) * max(0.0, -lowest))


NORMS.register("gamma2", Gamma2)
