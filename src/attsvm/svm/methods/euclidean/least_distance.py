"""Least-distance programming: the point nearest to 0 under linear inequalities, by non-negative least squares.

Lawson and Hanson reduce min ‖w‖ s.t. Gw ≥ h to one non-negative least-squares problem, min ‖[G'; h'] u − e‖ over
u ≥ 0 with e the last unit vector: its residual r has r_{1..D} = G'u and r_{D+1} = h'u − 1, the nearest point is
−r_{1..D} / r_{D+1}, and u is parallel to the multipliers; a vanishing residual makes u a Farkas certificate.
In floating point this loses digits as ‖w‖ grows against h, for ‖r‖² = 1/(1 + ‖w‖²). So h is divided by the value
found and the problem solved again where that is large, and the last digits come from the equations of the active rows,
by QR (their Gram matrix would square the condition). Where the rows are few and well conditioned, as on small random
problems, block pivoting on the Gram matrix finds the active rows faster and its answer already has all its digits: it
is tried first, and kept if the optimality conditions hold to rounding.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dgels, dpotrs
from scipy.optimize import nnls

from attsvm.svm.certificate import FARKAS_BOUND
from attsvm.svm.methods.euclidean.block_pivoting import block_pivoting

# Where ‖w‖ is this much larger than h, the residual has lost four digits: rescale and solve again.
RESCALE_ABOVE = 1e2
# At a residual as small as this there may be no solution at all.
SUSPICIOUS = 1e-6
# A gap that is left alone; rounding allows about eps times the value.
GOOD_GAP = 1e-14
# What the last digits of a margin may lack, relative to ‖w‖.
PADDING = 32 * float(np.finfo(float).eps)
# Error of a margin, relative to ‖w‖, that no method would improve.
ROUNDING = 16 * float(np.finfo(float).eps)
# Part of its right side that a margin may lack without another attempt.
SHORTFALL = 1e-13
MAX_ROUNDS = 6


class LeastDistance(NamedTuple):
    """The direction of the nearest point, and of its multipliers; or a ray, μ ≥ 0 with G'μ ≈ 0 and h'μ > 0."""

    point: Float[np.ndarray, " D"]
    multipliers: Float[np.ndarray, " m"]
    is_ray: bool
    rounds: int


def least_distance(G: Float[np.ndarray, "m D"], h: Float[np.ndarray, " m"]) -> LeastDistance:
    """The point of least ‖w‖ with Gw ≥ h.

    Parameters
    ----------
    G : ndarray, shape (m, D)
        Rows of unit norm.
    h : ndarray, shape (m,)
        Not negative.

    Returns
    -------
    LeastDistance

    References
    ----------
    Lawson and Hanson (1974), *Solving Least Squares Problems*, chapter 23, algorithms NNLS and LDP.
    """
    m, D = G.shape
    best = LeastDistance(np.zeros(D), np.zeros(m), False, 0)
    largest = scale = h.max(initial=0.0)
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
    """Multipliers μ ≥ 0 which prove that Gw ≥ 1 on the rows asked for has no solution of reasonable size, or None.

    How large the right sides are does not matter then, and equal ones keep the most digits.
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

    A small gap would not do: it leaves the point free by its square root. Nor would a small slack where h is still
    smaller: the point would have to grow to make up for it.
    """
    slack = G @ point - h
    allowed = ROUNDING * max(1.0, math.sqrt(point @ point))
    if np.abs(slack).max(where=multipliers > 0, initial=0.0) > allowed:
        return False
    return bool((slack >= -np.where(h > 0, np.minimum(allowed, SHORTFALL * h), allowed)).all())


def _answers(G: np.ndarray, h: np.ndarray, u: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points and multipliers that ``u`` leads to: from the equations of the active rows, and as it stands."""
    active = np.flatnonzero(u)
    if len(active) <= G.shape[1]:
        rows, right = G[active], h[active]
        point, R = _least_norm(rows, right)
        if point is not None:
            multipliers = np.zeros(len(u))
            multipliers[active] = dpotrs(R, right)[0]
            multipliers = np.maximum(multipliers, 0.0)
            yield point, multipliers
            # rounding moves a margin by about eps ‖w‖, much where h is small against it: a little more than h is
            # asked for, at a price of the order of eps
            padded, _ = _least_norm(rows, right + PADDING * math.sqrt(point @ point))
            if padded is not None:
                yield padded, multipliers
    yield u @ G, u


def least_norm(rows: Float[np.ndarray, "k D"], right: Float[np.ndarray, " k"]) -> Float[np.ndarray, " D"] | None:
    """The w of least norm with rows·w = right, by QR of the transposed rows; None if they are dependent."""
    return _least_norm(rows, right)[0] if len(right) <= rows.shape[1] else None


def _least_norm(rows: np.ndarray, right: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """:func:`least_norm`, and R."""
    padded = np.zeros(rows.shape[1])
    padded[: len(right)] = right
    factors, point, failed = dgels(rows.T, padded, trans="T")
    return None if failed else point, factors[: len(right)]


def _gap(G: np.ndarray, h: np.ndarray, point: np.ndarray, multipliers: np.ndarray) -> float:
    """Relative gap of the pair after scaling, plus what rows with h = 0 lack; ∞ without a positive margin."""
    slack = G @ point - h
    pull = multipliers @ G
    size, pulled = math.sqrt(point @ point), math.sqrt(pull @ pull)
    # the most that a row lacks, as a part of its right side
    short = (slack / (h + (h == 0))).min(where=h > 0, initial=0.0)
    if not (short > -1 and size > 0 and pulled > 0):
        return math.inf
    lacking = -slack.min(where=h == 0, initial=0.0) / size
    return float(abs(1.0 - (h @ multipliers) * (1 + short) / (pulled * size)) + lacking)
