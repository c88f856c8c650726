"""The least number from which on a condition holds, in many trials at once."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

HALVINGS = 60
"""Steps of a bisection; the interval shrinks below the rounding of its ends."""


def least_radius(
    holds: Callable[[np.ndarray], np.ndarray], possible: Bool[np.ndarray, "*trials"], doublings: int
) -> Float[np.ndarray, "*trials"]:
    """The smallest radius with ``holds``, which then holds at every larger one, too.

    ∞ where it is not possible, or no radius up to 2^doublings is large enough.
    """
    high = np.ones(possible.shape)
    for _ in range(doublings):
        more = possible & ~holds(high)
        if not more.any():
            break
        high = np.where(more, 2.0 * high, high)
    low = np.zeros(possible.shape)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        fine = holds(middle)
        low, high = np.where(fine, low, middle), np.where(fine, middle, high)
    return np.where(possible & holds(high), high, np.inf)
