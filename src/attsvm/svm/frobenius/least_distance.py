"""Least-distance programming: the point nearest to 0 under linear inequalities, by non-negative least squares.

Lawson and Hanson reduce min ‖w‖ s.t. Gw ≥ h to one non-negative least-squares problem, min ‖[G'; h'] u − e‖ over
u ≥ 0 with e the last unit vector. Its residual r has r_{1..D} = G'u and r_{D+1} = h'u − 1. The nearest point is
−r_{1..D} / r_{D+1}, and u is parallel to the multipliers. If the residual vanishes, u is a Farkas certificate.

In floating point this loses digits as ‖w‖ grows relative to h, because ‖r‖² = 1/(1 + ‖w‖²). So if the value is large, h
is divided by it and the problem is solved again. The last digits come from the equations of the active rows, solved by
QR (their Gram matrix would square the condition number). If the rows are few and well conditioned, as on small random
problems, block pivoting on the Gram matrix finds the active rows faster, and its answer is already accurate. It is
tried first, and kept if the optimality conditions hold up to rounding.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dgels, dpotrs
from scipy.optimize import nnls

from attsvm.svm.certificate import FARKAS_BOUND
from attsvm.svm.constraints.constraints import Rows
from attsvm.svm.frobenius.pivoting import block_pivoting

# Pivots of the equalities below this, relative to the largest, count as rounding errors; so does what is left of a row
# after its projection on the equalities.
DEPENDENT = 1e-13
# If ‖w‖ is this much larger than h, the residual has lost four digits: rescale and solve again.
RESCALE_ABOVE = 1e2
# With a residual below this the problem may be infeasible.
SUSPICIOUS = 1e-6
# A gap that is not improved further; rounding allows about eps times the value.
GOOD_GAP = 1e-14
# Rounding error of a margin, relative to ‖w‖, that is added to the right sides.
PADDING = 32 * float(np.finfo(float).eps)
# Error of a margin, relative to ‖w‖, that no method would improve.
ROUNDING = 16 * float(np.finfo(float).eps)
# Largest violation of a margin, relative to its right side, that needs no further attempt.
SHORTFALL = 1e-13
MAX_ROUNDS = 6


class LeastDistance(NamedTuple):
    """The direction of the nearest point, and of its multipliers; or a ray, μ ≥ 0 with G'μ ≈ 0 and h'μ > 0."""

    point: Float[np.ndarray, " D"]
    multipliers: Float[np.ndarray, " m"]
    is_ray: bool
    rounds: int


def solve_rows(rows: Rows) -> LeastDistance:
    """The point of least norm under inequalities and equalities, which are eliminated by QR."""
    if not np.count_nonzero(rows.equality):
        return least_distance(rows.matrix, rows.right)
    # on the null space of the equalities only the inequalities remain; the components of their rows outside of it
    # determine the free multipliers
    equalities, inequalities = rows.matrix[rows.equality], rows.matrix[~rows.equality]
    basis, triangle, order = qr(equalities.T, mode="economic", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    rank = int((pivots > DEPENDENT * pivots[0]).sum())
    basis = basis[:, :rank]
    left = inequalities - (inequalities @ basis) @ basis.T
    left -= (left @ basis) @ basis.T
    size = np.sqrt(np.vecdot(left, left))
    none_left = size <= DEPENDENT
    right = rows.right[~rows.equality]
    multipliers = np.zeros(len(size))
    unattainable = none_left & (right > 0)
    if unattainable.any():
        # any of these rows is a combination of the equalities: the one with the smallest coefficients is the best proof
        coefficients = solve_triangular(triangle[:rank, :rank], basis.T @ inequalities[unattainable].T)
        multipliers[np.flatnonzero(unattainable)[np.argmin(np.vecdot(coefficients.T, coefficients.T))]] = 1.0
        found = LeastDistance(np.zeros(basis.shape[0]), multipliers, True, 0)
    else:
        kept = ~none_left
        found = least_distance(left[kept] / size[kept, None], right[kept] / size[kept])
        multipliers[kept] = found.multipliers / size[kept]
    if not found.is_ray:
        held = np.concatenate([equalities[order[:rank]], inequalities[multipliers > 0]])
        goal = np.concatenate([np.zeros(rank), right[multipliers > 0]])
        found = found._replace(point=_touched_up(inequalities, right, held, goal, found.point))
    free = np.zeros(len(equalities))
    free[order[:rank]] = solve_triangular(triangle[:rank, :rank], -basis.T @ (multipliers @ inequalities))
    both = np.empty(len(rows.equality))
    both[rows.equality], both[~rows.equality] = free, multipliers
    return found._replace(multipliers=both)


def _touched_up(
    inequalities: np.ndarray, right: np.ndarray, held: np.ndarray, goal: np.ndarray, point: np.ndarray
) -> np.ndarray:
    """The point, or the point of least norm on the rows that hold with equality if its margins are closer to 1.

    Rounding errors in the equalities change the margins, and change them much if a right side is small.
    """
    asked = right > 0
    best, shortest = point, np.inf
    for candidate in (point, least_norm(held, goal), least_norm(held, goal + PADDING * np.linalg.norm(point))):
        if candidate is not None and asked.any():
            margins = inequalities[asked] @ candidate / right[asked]
            shortfall = 1 - np.min(margins)
            if shortfall < shortest:
                best, shortest = candidate, shortfall
        if shortest <= SHORTFALL:
            break
    return best


def least_distance(G: Float[np.ndarray, "m D"], h: Float[np.ndarray, " m"]) -> LeastDistance:
    """The point of least ‖w‖ with Gw ≥ h.

    ``G``: rows of unit norm. ``h``: not negative.

    References: Lawson and Hanson (1974), *Solving Least Squares Problems*, chapter 23, algorithms NNLS and LDP.
    """
    m, D = G.shape
    best = LeastDistance(np.zeros(D), np.zeros(m), False, 0)
    largest = scale = np.maximum.reduce(h, initial=0.0)
    if largest == 0:
        return best
    if m <= D:
        multipliers = block_pivoting(G @ G.T, h / largest)
        if multipliers is not None:
            point = multipliers @ G
            if _solves(G, h / largest, point, multipliers):
                return LeastDistance(point, multipliers, False, 1)
    best_gap = np.inf
    system, target = np.empty((D + 1, m)), np.zeros(D + 1)
    system[:D], target[D] = G.T, 1.0
    for rounds in range(1, MAX_ROUNDS + 1):
        system[D] = h / scale
        try:
            u, residual = nnls(system, target, maxiter=10 * (m + 10))
        except RuntimeError:  # it cycles; another scale takes another path
            scale *= 3.0
            continue
        if residual <= SUSPICIOUS:
            ray = _ray(G, h > 0)
            if ray is not None:
                return LeastDistance(best.point, ray, True, rounds)
        if not 0 < residual < 1:
            break
        value = scale * math.sqrt(1 / residual**2 - 1)
        if value <= RESCALE_ABOVE * scale or rounds == MAX_ROUNDS:
            previous = best_gap
            for point, multipliers in _answers(G, h, u):
                gap = _gap(G, h, point, multipliers)
                if gap < best_gap:
                    best, best_gap = LeastDistance(point, multipliers, False, rounds), gap
                if best_gap <= GOOD_GAP * max(1.0, value / largest):
                    return best
            if best_gap > 0.5 * previous:
                return best
        scale = value
    return best


def _ray(G: np.ndarray, asked: np.ndarray) -> np.ndarray | None:
    """Multipliers μ ≥ 0 which prove that Gw ≥ 1 on the rows ``asked`` has no solution of reasonable size, or None.

    Infeasibility does not depend on the sizes of the right sides, and equal ones lose the fewest digits.
    """
    system = np.vstack([G.T, asked])
    target = np.zeros(len(system))
    target[-1] = 1.0
    try:
        u, _ = nnls(system, target, maxiter=10 * system.shape[1] + 100)
    except RuntimeError:
        return None
    active = np.flatnonzero(u)
    refined = np.zeros(len(u))
    refined[active] = np.maximum(np.linalg.lstsq(system[:, active], target)[0], 0.0)
    for multipliers in (u, refined):
        pull = multipliers @ G
        if multipliers @ asked > FARKAS_BOUND * math.sqrt(pull @ pull):
            return multipliers
    return None


def _solves(G: np.ndarray, h: np.ndarray, point: np.ndarray, multipliers: np.ndarray) -> bool:
    """Whether the active rows hold with equality, and the others with or without slack, to the last digits.

    A small gap is not sufficient, because it determines the point only up to its square root. A small slack is not
    sufficient either if h is even smaller, because the point would have to be scaled up.
    """
    slack = G @ point - h
    allowed = ROUNDING * max(1.0, math.sqrt(point @ point))
    if np.count_nonzero((slack > allowed) & (multipliers > 0)):
        return False
    most = np.minimum(allowed, SHORTFALL * h)
    np.copyto(most, allowed, where=h == 0)
    return bool(np.count_nonzero(slack >= -most) == len(h))  # False for NaN


def _answers(G: np.ndarray, h: np.ndarray, u: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points and multipliers that follow from ``u``: by the equations of the active rows, and directly."""
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


def least_norm(rows: Float[np.ndarray, "k D"], right: Float[np.ndarray, " k"]) -> Float[np.ndarray, " D"] | None:
    """The w of least norm with rows·w = right, by QR of the transposed rows; None if they are dependent."""
    return _least_norm(rows, right)[0] if len(right) <= rows.shape[1] else None


def _least_norm(rows: np.ndarray, right: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Solve :func:`least_norm`; return R, too."""
    padded = np.zeros(rows.shape[1])
    padded[: len(right)] = right
    factors, point, failed = dgels(rows.T, padded, trans="T")
    return None if failed else point, factors[: len(right)]


def _gap(G: np.ndarray, h: np.ndarray, point: np.ndarray, multipliers: np.ndarray) -> float:
    """Relative gap of the pair after scaling, plus the violation of rows with h = 0; ∞ without a positive margin."""
    slack = G @ point - h
    pull = multipliers @ G
    size, pulled = math.sqrt(point @ point), math.sqrt(pull @ pull)
    # the largest violation of a row, relative to its right side
    short = (slack / (h + (h == 0))).min(where=h > 0, initial=0.0)
    if not (short > -1 and size > 0 and pulled > 0):
        return math.inf
    lacking = -slack.min(where=h == 0, initial=0.0) / size
    return float(abs(1.0 - (h @ multipliers) * (1 + short) / (pulled * size)) + lacking)
