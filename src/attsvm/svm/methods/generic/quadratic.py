"""A small quadratic program with signs: min ½x'Kx − h'x, x_i ≥ 0 except where x_i is free."""

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg.lapack import dpotrf, dtrtrs
from scipy.optimize import nnls

from attsvm.svm.frobenius.pivoting import block_pivoting


def least_quadratic(
    matrix: Float[np.ndarray, "m m"], right: Float[np.ndarray, " m"], free: Bool[np.ndarray, " m"]
) -> Float[np.ndarray, " m"] | None:
    """Solve the quadratic program; return None if the matrix is not numerically positive definite.

    ``matrix``: K, symmetric. ``right``: h.
    """
    solution = np.zeros(len(right))
    if not free.any():
        return _not_negative(matrix, right)
    signed = ~free
    own, failed = dpotrf(matrix[np.ix_(free, free)], lower=True)
    if failed:
        return None
    # the free entries follow from the others: what remains is the Schur complement
    crossed, _ = dtrtrs(own, matrix[np.ix_(free, signed)], lower=True)
    rest, _ = dtrtrs(own, right[free], lower=True)
    if signed.any():
        found = _not_negative(matrix[np.ix_(signed, signed)] - crossed.T @ crossed, right[signed] - crossed.T @ rest)
        if found is None:
            return None
        solution[signed] = found
    solution[free], _ = dtrtrs(own, rest - crossed @ solution[signed], lower=True, trans=True)
    return solution


def _not_negative(matrix: Float[np.ndarray, "m m"], right: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"] | None:
    """Solve it without free entries: by block pivoting, or else as a non-negative least-squares problem."""
    largest = right.max(initial=0.0)
    if largest <= 0:  # 0 is optimal
        return np.zeros(len(right))
    found = block_pivoting(matrix, right / largest)
    if found is not None:
        return np.asarray(largest * found)
    factor, failed = dpotrf(matrix, lower=True)
    if failed:
        return None
    target, _ = dtrtrs(factor, right, lower=True)
    try:
        return np.asarray(nnls(factor.T, target, maxiter=10 * len(right))[0])
    except RuntimeError:  # it cycles
        return None
