"""Factorisations of stacked matrices, the softmax and random unit vectors, in NumPy.

One matrix goes to LAPACK without NumPy's wrapper, which takes half the time.
"""

import math

import numpy as np
import scipy

from attsvm._utils.shapes import Bool, Float

Stack = Float[np.ndarray, "N rows columns"]
Vectors = Float[np.ndarray, "N k"]


def svd(matrices: Stack) -> tuple[Stack, Vectors, Stack]:
    """All left singular vectors, the singular values, and all right singular vectors, transposed.

    Raises LinAlgError if it fails, as with NaN; so do the others.
    """
    if len(matrices) != 1 or not matrices.size:
        return np.linalg.svd(matrices)
    U, sigma, Vt, failed = scipy.linalg.lapack.dgesdd(matrices[0])
    _check(failed)
    return U[None], sigma[None], Vt[None]


def singular_values(matrices: Float[np.ndarray, "*N rows columns"]) -> Float[np.ndarray, "*N k"]:
    """The singular values; there may be any number of axes in front."""
    *lead, rows, columns = matrices.shape
    if math.prod(lead) != 1 or not matrices.size:
        return np.linalg.svd(matrices, compute_uv=False)
    _, sigma, _, failed = scipy.linalg.lapack.dgesdd(matrices.reshape(rows, columns), compute_uv=False)
    _check(failed)
    return np.asarray(sigma.reshape(*lead, -1))


def eigh(matrices: Stack) -> tuple[Vectors, Stack]:
    """Eigenvalues in ascending order, and eigenvectors."""
    if len(matrices) != 1:
        return np.linalg.eigh(matrices)
    values, vectors, failed = scipy.linalg.lapack.dsyevd(matrices[0], lower=True)
    _check(failed)
    return values[None], vectors[None]


def eigvalsh(matrices: Stack) -> Vectors:
    """Eigenvalues in ascending order."""
    if len(matrices) != 1:
        return np.linalg.eigvalsh(matrices)
    values, _, failed = scipy.linalg.lapack.dsyevd(matrices[0], compute_v=False, lower=True)
    _check(failed)
    return np.asarray(values[None])


def lift(blocks: Stack) -> Stack:
    """[[0, B], [B', 0]] / 2, so that ⟨lift(B), X⟩ is ⟨B, X₁₂⟩ for symmetric X."""
    count, rows, columns = blocks.shape
    both = np.zeros((count, rows + columns, rows + columns))
    both[:, :rows, rows:] = 0.5 * blocks
    both[:, rows:, :rows] = both[:, :rows, rows:].mT
    return both


def orthonormal(matrices: Stack) -> Stack:
    """Orthonormal columns that span the columns of matrices with at least as many rows."""
    if len(matrices) != 1:
        return np.linalg.qr(matrices)[0]
    reflectors, factors, _, failed = scipy.linalg.lapack.dgeqrf(matrices[0])
    _check(failed)
    basis, _, failed = scipy.linalg.lapack.dorgqr(reflectors, factors, overwrite_a=True)
    _check(failed)
    return np.asarray(basis[None])


def solve_definite(matrices: Stack, right: Vectors) -> Vectors:
    """The solutions of linear equations with positive definite matrices, one right side each; they are overwritten."""
    if len(matrices) != 1:
        return np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0])
    # the matrix is symmetric: its transpose is the layout that LAPACK takes without a copy
    _, found, failed = scipy.linalg.lapack.dposv(matrices[0].T, right[0], overwrite_a=True, overwrite_b=True)
    _check(failed)
    return np.asarray(found[None])


def diagonal_of(matrices: Stack) -> Vectors:
    """The diagonals of square matrices, as a view."""
    size, K, _ = matrices.shape
    return matrices.reshape(size, K * K)[:, :: K + 1]


def softmax(
    logits: Float[np.ndarray, "*shape T"], allowed: Bool[np.ndarray, "*shape T"] | None = None
) -> Float[np.ndarray, "*shape T"]:
    """Probabilities over the last axis: 0 where not ``allowed``. A row in which nothing is allowed is zero."""
    if allowed is None:
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))
    logits = np.where(allowed, logits, -np.inf)
    largest = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits - np.where(np.isfinite(largest), largest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0))


def unit_vectors(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Random vectors of length 1 along the last axis."""
    draws = generator.standard_normal(shape)
    return np.asarray(draws / np.linalg.norm(draws, axis=-1, keepdims=True))


def _check(failed: int) -> None:
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK: expected info 0, got {failed}")
