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
    tens of milliseconds at 10 rows, and is a bound from above with a relative error of 1e-10 to 1e-8. Att-SVMs in it
    therefore reach gaps of 1e-9 to 1e-7: pass ``tol=1e-6`` to :func:`attsvm.solve_svm`.

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
        """A bound from above: σ √(Σ u Σ v) for the largest singular value σ of D(u)^(−1/2) G D(v)^(−1/2)."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        scale = float(np.abs(x).max(initial=0.0))
        if scale == 0 or not np.isfinite(scale):
            return scale
        rows, columns = np.abs(x).max(axis=1) > 0, np.abs(x).max(axis=0) > 0
        return scale * _scaled_spectral_norm(x[rows][:, columns] / scale)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """√(d_k d_q)."""
        return float(np.sqrt(shape[0] * shape[1]))


def _least_diagonal(corner: np.ndarray) -> float:
    """The least largest entry on the diagonal of a positive semidefinite matrix with this corner."""
    rows, columns = corner.shape
    triangle = Triangle(rows + columns)
    # the variables are the entries of the triangle, of which those of the corner are given, and t
    free = ~triangle.is_in_corner(rows)
    given = triangle.of_corner(corner)
    number = int(free.sum())
    weights = np.zeros(number + 1)
    weights[-1] = 1.0
    cone = np.zeros((len(given), number + 1))
    cone[free, np.arange(number)] = -triangle.scales[free]
    diagonal = np.zeros((rows + columns, number + 1))
    diagonal[np.arange(rows + columns), np.searchsorted(np.flatnonzero(free), triangle.diagonal)] = 1.0
    diagonal[:, -1] = -1.0
    found, _ = solved(weights, diagonal, np.zeros(rows + columns), cone, given * triangle.scales, triangle.size)
    entries = given.copy()
    entries[free] = found[:number]
    matrix = triangle.matrix(entries)
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    largest = float(np.diagonal(matrix).max())
    # the computed eigenvalues are those of a matrix that differs by a few rounding errors
    return largest + max(0.0, -lowest) + 4 * EPS * float(np.trace(matrix))


def _scaled_spectral_norm(matrix: np.ndarray) -> float:
    """σ √(Σ u Σ v) for the best u and v that were found."""
    rows, columns = matrix.shape
    triangle = Triangle(rows + columns)
    number = rows + columns
    cone = np.zeros((len(triangle.scales), number))
    cone[triangle.diagonal, np.arange(number)] = -1.0
    given = -triangle.of_corner(matrix) * triangle.scales
    nothing = np.zeros((0, number))
    found, _ = solved(np.full(number, 0.5), nothing, np.zeros(0), cone, given, triangle.size)
    positive = np.maximum(found, TOLERANCE * found.max())
    u, v = positive[:rows], positive[rows:]
    sigma = float(np.linalg.norm(matrix / np.sqrt(u)[:, None] / np.sqrt(v), 2))
    return float((1 + 4 * EPS * number) * sigma * np.sqrt(u.sum() * v.sum()))


NORMS.register("gamma2", Gamma2)
