"""Small non-negative quadratic programs, min ½μ'Kμ − h'μ over μ ≥ 0, by block principal pivoting: one or many.

The optimum satisfies the conditions μ ≥ 0, s = Kμ − h ≥ 0 and μ's = 0. A guess F of the positive multipliers gives the
linear system K_FF μ_F = h_F. All entries that violate a condition (μ ≥ 0 inside F, s ≥ 0 outside) then change sides at
once. On most problems this ends after a few exchanges, but it can cycle.

References
----------
Júdice and Pires (1994), *A block principal pivoting algorithm for large-scale strictly monotone linear complementarity
problems*; Kim and Park (2011), *Fast nonnegative matrix factorization*, section 3.
"""

import numpy as np
from scipy.linalg.lapack import dposv, dpotrf, dtrtrs
from scipy.optimize import nnls

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.tolerances import EPS, ROUNDED

FEW_ROWS = 500
"""With at most this many rows, pivoting alone is the fastest method."""

RIDGE, SMALL = 0.3, 0.2
"""The first guess is where the solution without bounds, for K with a ridge of this part of the mean diagonal, is above
this part of its largest entry. On random problems with 20 to 90 rows these values need the fewest exchanges. Without
the ridge, rows that are nearly parallel have large multipliers of both signs there."""

SINGULAR = 1e-7
"""A pivot below this, relative to the largest, shows that K may be singular."""

MAX_EXCHANGES = 15
"""Random problems with 20 to 300 rows need at most seven exchanges; otherwise they cycle."""

Vector = Float[np.ndarray, " m"]
Mask = Bool[np.ndarray, " m"]


def block_pivoting(gram: Float[np.ndarray, "m m"], right: Vector, free: Mask | None = None) -> Vector | None:
    """Solve one program; None if a factorisation fails, K is nearly singular, or the exchanges do not end.

    ``gram``: K, symmetric and positive definite. ``right``: h, its largest entry about 1. ``free``: multipliers of any
    sign, whose slack is 0.
    """
    count = len(right)
    system = gram.copy()
    diagonal = system.reshape(-1)[:: count + 1]
    diagonal += RIDGE / count * np.add.reduce(diagonal)
    _, guess, failed = dposv(system.T, right, overwrite_a=True)
    positive = guess > SMALL * np.maximum.reduce(guess, initial=0.0)
    if free is not None:
        positive |= free
    for _ in range(MAX_EXCHANGES):
        inside = positive.nonzero()[0]
        if failed or len(inside) == 0:
            return None
        rows = gram.take(inside, axis=0)
        # K_FF μ_F = h_F; the matrix is symmetric: its transpose is the layout that LAPACK takes without a copy
        system, own = rows.take(inside, axis=1).T, right.take(inside)
        factor, solved, failed = dposv(system, own, overwrite_a=True, overwrite_b=True)
        # outside F: s = Kμ − h ≥ 0; inside: μ ≥ 0
        condition = solved @ rows
        condition -= right
        condition[inside] = solved
        if free is not None:
            condition[free] = 0.0
        broken = condition < -ROUNDED
        if not np.count_nonzero(broken):
            pivots = factor.diagonal()
            if failed or np.minimum.reduce(pivots) <= SINGULAR * np.maximum.reduce(pivots):
                return None
            multipliers = np.zeros(count)
            multipliers[inside] = solved if free is not None else np.maximum(solved, 0.0)
            return multipliers
        positive = positive ^ broken
    return None


def least_quadratic(gram: Float[np.ndarray, "m m"], right: Vector, free: Mask) -> Vector | None:
    """Solve one program of any scale; None if the matrix is not numerically positive definite."""
    largest = np.abs(right).max(initial=0.0)
    if largest == 0 or not ((right > 0) | free).any():
        return np.zeros(len(right))  # 0 is optimal
    found = block_pivoting(gram, right / largest, free if free.any() else None)
    if found is not None:
        return np.asarray(largest * found)
    factor, failed = dpotrf(gram, lower=True)
    if failed:
        return None
    # with K = LL', min ½‖L'μ − L⁻¹h‖²; a free entry is the difference of two that are not negative
    target, _ = dtrtrs(factor, right, lower=True)
    try:
        both = nnls(np.hstack([factor.T, -factor.T[:, free]]), target, maxiter=20 * len(right))[0]
    except RuntimeError:  # it cycles
        return None
    solution = both[: len(right)]
    solution[free] -= both[len(right) :]
    return np.asarray(solution)


def exchange(
    grams: Float[np.ndarray, "N m m"],
    right: Float[np.ndarray, "N m"],
    inside: Bool[np.ndarray, "N m"],
    free: Bool[np.ndarray, "N m"] | None = None,
) -> tuple[Float[np.ndarray, "N m"], Bool[np.ndarray, "N m"], Int[np.ndarray, " N"]]:
    """Solve many programs from a guess of their positive multipliers; all violated entries change sides each time.

    Returns the multipliers, NaN where they are not found, the positive entries, and the number of exchanges.
    """
    multipliers, inside = np.full(right.shape, np.nan), inside.copy()
    allowed = -ROUNDED * np.max(np.abs(right), axis=-1, keepdims=True, initial=0.0)
    exchanges = np.zeros(len(right), int)
    left = np.arange(len(right))
    for _ in range(MAX_EXCHANGES):
        exchanges[left] += 1
        whole = len(left) == len(right)
        own, guess = (grams, inside) if whole else (grams[left], inside[left])
        solved = _on_face(own, right if whole else right[left], guess)
        condition = np.where(guess, solved, np.matmul(own, solved[..., None])[..., 0] - right[left])
        broken = ~(condition >= allowed[left])  # also where it is NaN
        if free is not None:
            broken &= ~free[left]
        settled = ~broken.any(axis=-1)
        multipliers[left[settled]] = solved[settled]
        alive = ~settled & np.isfinite(solved).all(axis=-1)
        left = left[alive]
        if len(left) == 0:
            break
        inside[left] ^= broken[alive]
    np.maximum(multipliers, 0.0, out=multipliers, where=True if free is None else ~free)
    return multipliers, inside, exchanges


def _on_face(
    grams: Float[np.ndarray, "N m m"], right: Float[np.ndarray, "N m"], inside: Bool[np.ndarray, "N m"]
) -> Float[np.ndarray, "N m"]:
    """Solve K_FF μ_F = h_F for the entries F inside, with 0 elsewhere; NaN or large where they are dependent."""
    solved = np.zeros(right.shape)
    if len(grams) == 1:  # without padding, in a third of the time
        rows = inside[0].nonzero()[0]
        if len(rows):  # LAPACK's interface refuses none
            own = grams[0].take(rows, axis=0).take(rows, axis=1).T
            _, values, failed = dposv(own, right[0].take(rows), overwrite_a=True, overwrite_b=True)
            solved[0, rows] = np.nan if failed else values
        return solved
    numbers = np.count_nonzero(inside, axis=-1)
    # the places of F first; missing ones are those of other entries, with the equation μ = 0
    place = np.argsort(~inside, axis=-1, kind="stable")[:, : np.max(numbers, initial=0)]
    there = np.arange(place.shape[1]) < numbers[:, None]
    system = grams[np.arange(len(grams))[:, None, None], place[:, :, None], place[:, None, :]]
    system *= there[:, :, None] & there[:, None, :]
    diagonal = np.einsum("nii->ni", system)
    diagonal *= 1 + 4 * EPS  # rows that depend on each other must not divide by 0
    diagonal += ~there
    values = np.linalg.solve(system, (np.take_along_axis(right, place, axis=-1) * there)[..., None])[..., 0]
    np.put_along_axis(solved, place, values * there, axis=-1)
    return solved
