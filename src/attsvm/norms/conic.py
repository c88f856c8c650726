"""Semidefinite programs by Clarabel, which is an optional dependency."""

from typing import Any

import numpy as np
from scipy.sparse import csc_matrix

from attsvm.errors import ProblemError

TOLERANCE = 1e-13
"""What Clarabel is asked for. It stops earlier where it makes no progress; the bounds are computed from its answer."""


class Triangle:
    """The upper triangle of symmetric matrices, column after column, as Clarabel stores it.

    Parameters
    ----------
    size : int
        Number of rows.

    Attributes
    ----------
    scales : ndarray
        √2 for entries off the diagonal, so that products of vectors are those of matrices.
    diagonal : ndarray
        The places of the diagonal.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.columns, self.rows = (part for part in np.tril_indices(size))
        self.scales = np.where(self.rows == self.columns, 1.0, np.sqrt(2.0))
        self.diagonal = np.flatnonzero(self.rows == self.columns)

    def is_in_corner(self, rows: int) -> np.ndarray:
        """Whether an entry is in the corner above the diagonal that begins after this many rows and columns."""
        return np.asarray((self.rows < rows) & (self.columns >= rows))

    def of_corner(self, corner: np.ndarray) -> np.ndarray:
        """The triangle of the matrix [[0, C], [C', 0]]."""
        rows = len(corner)
        entries = np.zeros(len(self.rows))
        inside = self.is_in_corner(rows)
        entries[inside] = corner[self.rows[inside], self.columns[inside] - rows]
        return entries

    def matrix(self, entries: np.ndarray) -> np.ndarray:
        """The symmetric matrix."""
        matrix = np.zeros((self.size, self.size))
        matrix[self.rows, self.columns] = matrix[self.columns, self.rows] = entries
        return matrix


def solved(
    weights: np.ndarray,
    inequalities: np.ndarray,
    right: np.ndarray,
    cone: np.ndarray,
    given: np.ndarray,
    size: int,
    equalities: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise weights·x subject to inequalities·x ≤ right, and given − cone·x in the cone of semidefinite matrices.

    Parameters
    ----------
    weights : ndarray, shape (k,)
    inequalities : ndarray, shape (m, k)
    right : ndarray, shape (m,)
    cone : ndarray, shape (s, k)
    given : ndarray, shape (s,)
        A scaled triangle.
    size : int
        Rows of the semidefinite matrix.
    equalities : int
        How many of the inequalities, the first ones, hold with equality.

    Returns
    -------
    x : ndarray, shape (k,)
    multipliers : ndarray, shape (m + s,)
        Of the inequalities, and the scaled triangle of the multiplier of the cone.

    Raises
    ------
    ProblemError
        If Clarabel is not installed.
    """
    try:
        import clarabel
    except ImportError:
        raise ProblemError("norm: gamma2 needs Clarabel; install it with: pip install attsvm[conic]") from None
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    cones: list[Any] = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(right) - equalities)]
    cones.append(clarabel.PSDTriangleConeT(size))
    answer = clarabel.DefaultSolver(
        csc_matrix((len(weights), len(weights))),
        weights,
        csc_matrix(np.concatenate([inequalities, cone])),
        np.concatenate([right, given]),
        cones,
        settings,
    ).solve()
    return np.asarray(answer.x), np.asarray(answer.z)
