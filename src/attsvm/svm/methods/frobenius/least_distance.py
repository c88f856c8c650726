"""Least-distance programming: the point nearest to 0 under linear inequalities, by non-negative least squares.

Lawson and Hanson reduce min ‖w‖ s.t. Gw ≥ h to one non-negative least-squares problem, min ‖[G'; h'] u − e‖ over
u ≥ 0 with e the last unit vector. Its residual r has r_{1..D} = G'u and r_{D+1} = h'u − 1. The nearest point is
−r_{1..D} / r_{D+1}, and u is parallel to the multipliers. If the residual vanishes, u is a Farkas certificate.

In floating point this loses digits as ‖w‖ grows relative to h, because ‖r‖² = 1/(1 + ‖w‖²). The last digits come from
the equations of the active rows, solved by QR (their Gram matrix would square the condition number). If the rows are
few and well conditioned, as on small random problems, block pivoting on the Gram matrix finds the active rows faster,
and its answer is already accurate. It is tried first, and kept if the optimality conditions hold up to rounding.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dgels, dpotrs
from scipy.optimize import nnls

from attsvm._utils.shapes import Float
from attsvm.svm.certificate import FARKAS_BOUND
from attsvm.svm.constraints.constraints import Rows
from attsvm.svm.methods.frobenius.pivoting import block_pivoting
from attsvm.svm.tolerances import DEPENDENT, EPS, FINEST

PADDING, ROUNDING = 32 * EPS, 16 * EPS
"""Rounding error of a margin, relative to ‖w‖, that is added to the right sides; and one that no method would improve.
Without the padding, rows of very different lengths end with margins that are too small."""


class LeastDistance(NamedTuple):
    """The direction of the nearest point, and of its multipliers; or a ray, μ ≥ 0 with G'μ ≈ 0 and h'μ > 0."""

    point: Float[np.ndarray, " D"]
    multipliers: Float[np.ndarray, " m"]
    is_ray: bool


def solve_rows(rows: Rows) -> LeastDistance:
    """Find the point of least norm under inequalities Gw ≥ h and equalities Ew = 0, which are eliminated by QR.

    On the null space of E only the inequalities remain, with rows G(I − BB') for an orthonormal basis B of the row
    space of E. The components GB determine the multipliers ν of the equalities: E'ν = −BB'G'μ.
    """
    if not np.count_nonzero(rows.equality):
        return least_distance(rows.matrix, rows.right)
    equalities, inequalities = rows.matrix[rows.equality], rows.matrix[~rows.equality]
    # w has no part along the equalities, so the inequalities are projected across them
    basis, triangle, order = qr(equalities.T, mode="economic", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    rank = int((pivots > DEPENDENT * pivots[0]).sum())
    basis, triangle = basis[:, :rank], triangle[:rank, :rank]
    left = inequalities - (inequalities @ basis) @ basis.T
    left -= (left @ basis) @ basis.T  # the second projection removes the rounding error of the first
    size = np.sqrt(np.vecdot(left, left))
    none_left = size <= DEPENDENT
    right = rows.right[~rows.equality]
    multipliers = np.zeros(len(size))
    unattainable = none_left & (right > 0)
    if unattainable.any():
        # any of these rows is a combination of the equalities: the one with the smallest coefficients is the best proof
        coefficients = solve_triangular(triangle, basis.T @ inequalities[unattainable].T)
        multipliers[np.flatnonzero(unattainable)[np.argmin(np.vecdot(coefficients.T, coefficients.T))]] = 1.0
        found = LeastDistance(np.zeros(basis.shape[0]), multipliers, True)
    else:
        kept = ~none_left
        found = least_distance(left[kept] / size[kept, None], right[kept] / size[kept])
        multipliers[kept] = found.multipliers / size[kept]
    # w = A*(λ) has no part along the equalities: their multipliers cancel that of the inequalities
    free = np.zeros(len(equalities))
    free[order[:rank]] = solve_triangular(triangle, -basis.T @ (multipliers @ inequalities))
    both = np.empty(len(rows.equality))
    both[rows.equality], both[~rows.equality] = free, multipliers
    return found._replace(multipliers=both)


def least_distance(G: Float[np.ndarray, "m D"], h: Float[np.ndarray, " m"]) -> LeastDistance:
    """Find the point of least ‖w‖ with Gw ≥ h.

    ``G``: rows of unit norm. ``h``: of any sign; 0 is the point if no entry is positive.

    References: Lawson and Hanson (1974), *Solving Least Squares Problems*, chapter 23, algorithms NNLS and LDP.
    """
    m, D = G.shape
    nothing = LeastDistance(np.zeros(D), np.zeros(m), False)
    largest = np.maximum.reduce(h, initial=0.0)
    if largest == 0:
        return nothing
    # K = GG' is definite as a rule, and pivoting takes a few Cholesky factorisations
    if m <= D:
        multipliers = block_pivoting(G @ G.T, h / largest)
        if multipliers is not None:
            point = multipliers @ G
            if _solves(G, h / largest, point, multipliers):
                return LeastDistance(point, multipliers, False)
    # min ‖[G'; h']u − (0, 1)‖ over u ≥ 0: w is along the residual, which is 0 where there is no w
    system, target = np.vstack([G.T, h / largest]), np.zeros(D + 1)
    target[D] = 1.0
    try:
        u, residual = nnls(system, target, maxiter=10 * (m + 10))
    except RuntimeError:  # it cycles
        return nothing
    # the residual is 1/√(1 + ‖w‖²): from the root of the bound on, w may be a rounding error of no w at all
    if residual <= 1 / math.sqrt(FARKAS_BOUND):
        ray = _ray(G, h / largest)
        if ray is not None:
            return LeastDistance(np.zeros(D), ray, True)
    candidates = ((_gap(G, h, *answer), answer) for answer in _answers(G, h, u))
    _, answer = min(candidates, key=lambda each: each[0])
    return LeastDistance(*answer, False)


def _ray(G: np.ndarray, h: np.ndarray) -> np.ndarray | None:
    """Find multipliers μ ≥ 0 which prove that Gw ≥ h has no solution of reasonable size, or None.

    If no right side is negative, infeasibility does not depend on their sizes, and equal ones lose the fewest digits.
    """
    asked = h if (h < 0).any() else h > 0
    # min ‖G'μ‖² + (h'μ − 1)² over μ ≥ 0: 0 for a ray
    system = np.vstack([G.T, asked])
    target = np.zeros(len(system))
    target[-1] = 1.0
    try:
        u, _ = nnls(system, target, maxiter=10 * system.shape[1] + 100)
    except RuntimeError:
        return None
    pull = u @ G
    return np.asarray(u) if u @ asked > FARKAS_BOUND * math.sqrt(pull @ pull) else None


def _solves(G: np.ndarray, h: np.ndarray, point: np.ndarray, multipliers: np.ndarray) -> bool:
    """Tell whether the active rows hold with equality, and the others with or without slack, to the last digits.

    A small gap is not sufficient, because it determines the point only up to its square root. A small slack is not
    sufficient either if h is even smaller, because the point would have to be scaled up.
    """
    slack = G @ point - h
    allowed = ROUNDING * max(1.0, math.sqrt(point @ point))
    if np.count_nonzero((slack > allowed) & (multipliers > 0)):
        return False
    most = np.minimum(allowed, FINEST * h)
    np.copyto(most, allowed, where=h <= 0)
    return bool(np.count_nonzero(slack >= -most) == len(h))  # False for NaN


def _answers(G: np.ndarray, h: np.ndarray, u: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield points and multipliers that follow from ``u``: by the equations of the active rows, and directly."""
    active = np.flatnonzero(u)
    if len(active) <= G.shape[1]:
        rows, right = G[active], h[active]
        point, R = _least_norm(rows, right)
        if point is not None:
            multipliers = np.zeros(len(u))
            multipliers[active] = dpotrs(R, right)[0]
            multipliers = np.maximum(multipliers, 0.0)
            yield point, multipliers
            # rounding changes a margin by about eps ‖w‖, which is much if h is small; so the right side is slightly
            # increased, which increases ‖w‖ by a factor of the order of eps only
            padded, _ = _least_norm(rows, right + PADDING * math.sqrt(point @ point))
            if padded is not None:
                yield padded, multipliers
    yield u @ G, u


def _least_norm(rows: np.ndarray, right: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Find the w of least norm with rows·w = right, by QR of the transposed rows; None if they are dependent; and R."""
    padded = np.zeros(rows.shape[1])
    padded[: len(right)] = right
    factors, point, failed = dgels(rows.T, padded, trans="T")
    return None if failed else point, factors[: len(right)]


def _gap(G: np.ndarray, h: np.ndarray, point: np.ndarray, multipliers: np.ndarray) -> float:
    """Compute the relative gap after scaling, plus the violation of rows with h ≤ 0; ∞ without a positive margin."""
    slack = G @ point - h
    pull = multipliers @ G
    size, pulled = math.sqrt(point @ point), math.sqrt(pull @ pull)
    # the largest violation of a row, relative to its right side
    asked = h > 0
    short = (slack / np.where(asked, h, 1.0)).min(where=asked, initial=0.0)
    if not (short > -1 and size > 0 and pulled > 0):
        return math.inf
    lacking = -(slack - short * h).min(where=~asked, initial=0.0) / size
    return float(abs(1.0 - (h @ multipliers) * (1 + short) / (pulled * size)) + lacking)
