"""Convex quadratic programs in a box, many at once: min ½ x'Kx − b'x subject to 0 ≤ x ≤ c."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

MAX_STEPS = 60
TO_THE_BOUNDARY = 0.995
# Complementarity, where the largest right side is 1, at which it is clear which entries are at a bound.
CENTRED = 1e-14
POLISH_ROUNDS = 8
ROUNDING = 16 * float(np.finfo(float).eps)


class BoxPoint(NamedTuple):
    """An approximate optimum, and the steps it took."""

    point: Float[np.ndarray, "*lead m"]
    steps: int


def solve_box(
    matrix: Float[np.ndarray, "*lead m m"],
    right: Float[np.ndarray, "*lead m"],
    upper: Float[np.ndarray, "*lead m"],
    max_steps: int = MAX_STEPS,
) -> BoxPoint:
    """Mehrotra's predictor and corrector, then exact equations on the entries that are inside the box.

    Parameters
    ----------
    matrix : ndarray, shape (*lead, m, m)
        K, symmetric and positive semidefinite.
    right : ndarray, shape (*lead, m)
        b.
    upper : ndarray, shape (*lead, m)
        c ≥ 0; an entry with c = 0 is fixed at 0.
    max_steps : int
        Of the interior point.

    Returns
    -------
    BoxPoint
        Inside the box. Always an answer: the program is feasible and bounded.

    References
    ----------
    Mehrotra (1992), *On the implementation of a primal-dual interior point method*.
    """
    # in units of the box: x = c u, 0 ≤ u ≤ 1; fixed entries are decoupled
    fixed = upper == 0
    size = np.where(fixed, 1.0, upper)
    scaled = matrix * size[..., :, None] * size[..., None, :]
    scaled = np.where(fixed[..., :, None] | fixed[..., None, :], 0.0, scaled)
    target = np.where(fixed, 0.0, right * size)
    unit = np.maximum(np.abs(target).max(axis=-1, keepdims=True), np.finfo(float).tiny)
    scaled, target = scaled / unit[..., None], target / unit
    u = np.full_like(target, 0.5)
    low = np.maximum(1.0, (scaled @ u[..., None])[..., 0] - target)
    high = np.maximum(1.0, target - (scaled @ u[..., None])[..., 0])
    steps = 0
    while steps < max_steps:
        slope = (scaled @ u[..., None])[..., 0] - target
        measure = (u * low + (1 - u) * high).mean(axis=-1, keepdims=True) / 2
        if measure.max() <= CENTRED:
            break
        inverse = np.linalg.inv(scaled + np.eye(u.shape[-1]) * (low / u + high / (1 - u))[..., None])
        change, change_low, change_high = _move(inverse, slope, u, low, high, 0.0, 0.0)
        length = _room(u, low, high, change, change_low, change_high)
        after = (
            (u + length * change) * (low + length * change_low)
            + (1 - u - length * change) * (high + length * change_high)
        ).mean(axis=-1, keepdims=True) / 2
        centre = measure * (after / measure) ** 3
        change, change_low, change_high = _move(
            inverse, slope, u, low, high, centre - change * change_low, centre + change * change_high
        )
        length = np.minimum(1.0, TO_THE_BOUNDARY * _room(u, low, high, change, change_low, change_high))
        u = np.clip(u + length * change, np.finfo(float).tiny, 1 - np.finfo(float).eps / 2)
        low, high = low + length * change_low, high + length * change_high
        steps += 1
    # at the optimum one of the two is zero, the other not: near it, one is much the smaller
    at_low, at_high = low > u, high > 1 - u
    point = np.where(fixed, 0.0, u * size)
    for index in np.ndindex(point.shape[:-1]):
        point[index] = _polished(matrix[index], right[index], upper[index], point[index], at_low[index], at_high[index])
    return BoxPoint(point, steps)


def _move(
    inverse: np.ndarray,
    slope: np.ndarray,
    u: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    of_low: np.ndarray | float,
    of_high: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Newton's step to the complementarity u·low = of_low and (1 − u)·high = of_high."""
    change = (inverse @ (of_low / u - of_high / (1 - u) - slope)[..., None])[..., 0]
    return change, (of_low - low * change) / u - low, (of_high + high * change) / (1 - u) - high


def _room(u: np.ndarray, low: np.ndarray, high: np.ndarray, change: np.ndarray, *of_dual: np.ndarray) -> np.ndarray:
    """The longest step that keeps everything positive, at most 1/TO_THE_BOUNDARY."""
    longest = np.full((*u.shape[:-1], 1), 1 / TO_THE_BOUNDARY)
    for value, by in ((u, change), (1 - u, -change), (low, of_dual[0]), (high, of_dual[1])):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(by < 0, -value / by, np.inf)
        longest = np.minimum(longest, ratio.min(axis=-1, keepdims=True, initial=np.inf))
    return longest


def _polished(
    matrix: np.ndarray,
    right: np.ndarray,
    upper: np.ndarray,
    point: np.ndarray,
    at_low: np.ndarray,
    at_high: np.ndarray,
) -> np.ndarray:
    """The optimum of the face that the point lies near, exchanging entries that break a condition."""
    best, least = point, _excess(matrix, right, upper, point)
    for _ in range(POLISH_ROUNDS):
        inside = np.flatnonzero(~at_low & ~at_high)
        exact = np.where(at_high, upper, 0.0)
        if len(inside):
            rest = right[inside] - matrix[inside] @ exact
            found = np.linalg.lstsq(matrix[np.ix_(inside, inside)], rest, rcond=1e-14)[0]
            exact[inside] = found
        kept = np.clip(exact, 0.0, upper)
        slope = matrix @ kept - right
        below, above = exact < 0, exact > upper
        # where the terms of a slope are large, so is its rounding
        noise = ROUNDING * (np.abs(matrix) @ kept + np.abs(right))
        freed_low, freed_high = at_low & (slope < -noise) & (upper > 0), at_high & (slope > noise)
        if not (below | above | freed_low | freed_high).any():
            return kept
        excess = _excess(matrix, right, upper, kept)
        if excess < least:
            best, least = kept, excess
        at_low, at_high = (at_low & ~freed_low) | below, (at_high & ~freed_high) | above
    return best


def _excess(matrix: np.ndarray, right: np.ndarray, upper: np.ndarray, point: np.ndarray) -> float:
    """How far the objective may lie above the optimum: a sum of terms that are not negative."""
    slope = matrix @ point - right
    return float(np.sum(np.where(slope > 0, point * slope, (point - upper) * slope)))
