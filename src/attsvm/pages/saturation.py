"""Whether attention is saturated, as numbers and as a word."""

from typing import Any

import numpy as np

from attsvm._fit.result import SOFT_BELOW


def saturation_numbers(largest: np.ndarray) -> dict[str, Any]:
    """The field ``saturation`` of a result, from the largest softmax probability of each query."""
    median = np.median(largest)
    return {
        "median_largest_probability": median,
        "share_above_threshold": (largest >= SOFT_BELOW).mean(),
        "threshold": SOFT_BELOW,
        "soft": median < SOFT_BELOW,
    }


def saturation_word(soft: bool) -> str:
    """How pages and the terminal call it."""
    return "not saturated" if soft else "saturated"
