"""Newton's method for the least nuclear norm among weights of one rank, from a point nearby."""

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg.lapack import dgesv

MAX_UNKNOWNS = 250
"""Above this size it is not tried."""

MAX_STEPS = 12

NEAR = 1e-2
"""Residual below which the set of held rows is updated."""

CONVERGED = 1e-13
"""Residual at which the iteration ends, for weights of size 1."""

TURN = 1e-10
"""Added to the equations, which are singular because U and V can be rotated together without changing U V'."""


def solve_at_rank(
    left: Float[np.ndarray, "m d_k"],
    queries: Float[np.ndarray, "m d_q"],
    right: Float[np.ndarray, " m"],
    equality: Bool[np.ndarray, " m"],
    weights: Float[np.ndarray, "d_k d_q"],
    multipliers: Float[np.ndarray, " m"],
    held: Bool[np.ndarray, " m"],
    threshold: float,
) -> tuple[Float[np.ndarray, "d_k d_q"], Float[np.ndarray, " m"]] | None:
    """Least ½‖U‖² + ½‖V‖² with U V' in the constraints, from a point nearby.

    The minimum is ‖U V'‖_*. With G = A*(λ), and if the rows that hold with equality are known, the optimum solves

        U = G V,    V = G'U,    l_a'U V'z_a = b_a,

    and if it is strictly complementary, Newton's method converges quadratically. Violated rows are added to the held
    rows, and rows whose multipliers become negative are removed.

    ``left``, ``queries``, ``right``, ``equality``: the rows l_a z_a' of one problem, b_a, and which of them are
    equalities. ``weights``, ``multipliers``: a point nearby, ‖weights‖_* about 1. ``held``: the initial set of rows
    that hold with equality. ``threshold``: singular values of the weights below it are dropped at the start; the rank
    is then constant.

    Returns weights and multipliers, or None if the iteration does not converge. The point may be a local minimum.

    References: Burer and Monteiro (2003), *A nonlinear programming algorithm for solving semidefinite programs via
    low-rank factorization*.
    """
    # balanced factors: U = P√Σ and V = Q√Σ of W = PΣQ'
    basis, sigma, other = np.linalg.svd(weights, full_matrices=False)
    rank = int(np.count_nonzero(sigma > threshold))
    root = np.sqrt(sigma[:rank])
    U, V, full = basis[:, :rank] * root, other[:rank].T * root, np.where(held, multipliers, 0.0)
    corner = U.size
    size = corner + V.size
    before = np.inf
    for _ in range(MAX_STEPS):
        own, own_left, own_queries = full[held], left[held], queries[held]
        count = len(own)
        # with more rows than unknowns the equations have no solution in general
        if not 0 < count <= size or size + count > MAX_UNKNOWNS:
            return None
        # the residual of the three equations, with G = A*(λ) over the held rows
        pull = (own_left * own[:, None]).T @ own_queries
        images, partners = own_left @ U, own_queries @ V
        residual = np.concatenate(
            [(pull @ V - U).ravel(), (pull.T @ U - V).ravel(), right[held] - np.vecdot(images, partners)]
        )
        error = np.abs(residual).max()
        # far from the solution Newton's method diverges, and the caller goes on
        if not error <= 10 * before:
            return None
        if error <= NEAR:
            # rows outside the set that are violated enter, rows with λ < 0 leave
            short = np.vecdot(left @ U, queries @ V) < right - np.maximum(10 * error, 1e-12)
            wrong = np.where(held, (full < 0) & ~equality, short)
            if wrong.any():
                held, before = held ^ wrong, np.inf
                full = np.where(held, full, 0.0)
                continue
            if error <= CONVERGED or error > 0.5 * before:
                return U @ V.T, full
        before = error
        # Newton: H (ΔU, ΔV, Δλ) = residual
        system = _system(pull, own_left, own_queries, images, partners)
        _, _, step, failed = dgesv(system, residual, overwrite_a=True, overwrite_b=True)
        if failed:
            return None
        U = U + step[:corner].reshape(U.shape)
        V = V + step[corner:size].reshape(V.shape)
        full[held] += step[size:]
    return None


def _system(
    pull: Float[np.ndarray, "d_k d_q"],
    left: Float[np.ndarray, "k d_k"],
    queries: Float[np.ndarray, "k d_q"],
    images: Float[np.ndarray, "k r"],
    partners: Float[np.ndarray, "k r"],
) -> Float[np.ndarray, "s s"]:
    """The matrix of Newton's equations in U, V and the multipliers of the held rows; images l'U, partners z'V."""
    count, rank = images.shape
    corner, size = rank * pull.shape[0], rank * (pull.shape[0] + pull.shape[1])
    system = np.zeros((size + count, size + count))
    # of column k of U and V: U − G V and V − G'U, linear in both
    for k in range(rank):
        system[k:corner:rank, corner + k : size : rank] = -pull
        system[corner + k : size : rank, k:corner:rank] = -pull.T
    system.reshape(-1)[: size * (size + count + 1) : size + count + 1] = 1 + TURN
    # of row a: l_a'ΔU V'z_a + l_a'U ΔV'z_a, and its transpose with −Δλ_a
    by_row = system[size:]
    by_row[:, :corner] = (left[:, :, None] * partners[:, None, :]).reshape(count, -1)
    by_row[:, corner:size] = (queries[:, :, None] * images[:, None, :]).reshape(count, -1)
    system[:size, size:] = -by_row[:, :size].T
    return system
