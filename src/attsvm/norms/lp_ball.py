"""The projection on a ball of the ℓq norm, 1 < q < ∞, by one scalar equation."""

import numpy as np
from jaxtyping import Float

MOST_STEPS = 60
TINY = float(np.finfo(float).tiny)

CLOSE = 1e-9
"""After a relative change below this, the next iterate of Newton's method is exact to rounding."""


def project_on_lp_ball(sizes: Float[np.ndarray, "*batch D"], q: float) -> Float[np.ndarray, "*batch D"]:
    """The nearest point with ‖x‖_q ≤ 1 for each vector of sizes ≥ 0.

    The nearest point satisfies x + μ x^(q−1) = s in each entry. Its largest entry m determines μ, lies between
    D^(−1/q) and 1, and ‖x‖_q grows with it: Newton's method with a bracket finds the m at which ‖x‖_q = 1. No power
    of these numbers overflows or underflows, however large s or q is.
    """
    shape = sizes.shape
    sizes = sizes.reshape(-1, shape[-1])
    projected = sizes.copy()
    outside = length_of(sizes, q) > 1
    if outside.any():
        projected[outside] = _boundary_points(sizes[outside], q)
    return projected.reshape(shape)


def length_of(sizes: Float[np.ndarray, "*batch D"], q: float) -> Float[np.ndarray, "*batch"]:
    """‖s‖_q of each vector, without overflow."""
    largest = sizes.max(axis=-1, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return np.asarray(((sizes / scale) ** q).sum(axis=-1) ** (1 / q) * scale[..., 0])


def _boundary_points(sizes: Float[np.ndarray, "N D"], q: float) -> Float[np.ndarray, "N D"]:
    largest = sizes.max(axis=-1, keepdims=True)
    high = np.minimum(largest, 1.0)
    low = np.minimum(sizes.shape[-1] ** (-1 / q), high)
    # x is proportional to s^(1/(q−1)) far outside
    m = np.clip(1 / length_of((sizes / largest) ** (1 / (q - 1)), q)[:, None], low, high)
    x = sizes * (m / largest)
    converged = False
    for _ in range(MOST_STEPS):
        multiplier = (largest - m) / m ** (q - 1)
        x = _entries(sizes, multiplier, m, x, q)
        if converged:
            break
        power = x ** (q - 1)
        total = (power * x).sum(axis=-1, keepdims=True)
        excess = np.log(total) / q
        low, high = np.where(excess < 0, m, low), np.where(excess > 0, m, high)
        # dx/dμ from x + μ x^(q−1) = s, and dμ/dm from m + μ m^(q−1) = max s
        change = -power * x / np.where(x > 0, x + multiplier * (q - 1) * power, 1.0)
        slope_of_multiplier = -(m ** (1 - q)) - (q - 1) * multiplier / m
        slope = (power * change).sum(axis=-1, keepdims=True) * slope_of_multiplier / total
        guess = m * np.exp(-excess / np.where(slope > 0, slope * m, np.inf))
        guess = np.where((guess >= low) & (guess <= high), guess, 0.5 * (low + high))
        converged = bool((np.minimum(np.abs(excess), np.abs(guess - m)) <= CLOSE * m).all())
        m = guess
    return np.asarray(x / np.maximum(length_of(x, q), 1.0)[:, None])


def _entries(
    s: Float[np.ndarray, "N D"],
    multiplier: Float[np.ndarray, "N 1"],
    largest: Float[np.ndarray, "N 1"],
    first: Float[np.ndarray, "N D"],
    q: float,
) -> Float[np.ndarray, "N D"]:
    """The x ≥ 0 with x + μ x^(q−1) = s, by Newton's method on the form that is convex: in x, or in y = x^(q−1)."""
    if q == 3:
        return np.asarray(2 * s / (1 + np.sqrt(1 + 4 * multiplier * s)))
    if q == 1.5:
        return np.asarray((2 * s / np.maximum(multiplier + np.sqrt(multiplier**2 + 4 * s), TINY)) ** 2)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        above = np.minimum(np.minimum(s, largest), np.where(multiplier > 0, (s / multiplier) ** (1 / (q - 1)), np.inf))
    root = 1.0 if q >= 2 else 1 / (q - 1)
    most, y = above ** (1 / root), np.minimum(first, above) ** (1 / root)
    linear, multiplied = (1.0, multiplier) if q >= 2 else (multiplier, 1.0)
    exponent = max(q - 1, root)
    for _ in range(MOST_STEPS):
        power = multiplied * y ** (exponent - 1)
        slope = linear + exponent * power
        change = ((linear + power) * y - s) / np.where(slope > 0, slope, np.inf)
        y = np.clip(y - change, 0.0, most)  # after the first step from above, so that no step is too long
        if (np.abs(change) <= CLOSE * y).all():
            break
    return np.asarray(y if q >= 2 else y**root)
