"""Numbers, shares and their intervals as text: the same spelling on every page and on the terminal."""

import math
from typing import Any

import numpy as np

from attsvm._utils.text import layer_kinds
from attsvm.statistics import share as wilson
from attsvm.statistics import student_half_width

Rows = list[tuple[str, str]]
"""Names and values of a table."""


FEW_ROWS = 20
"""With fewer test rows than this a page states counts and no percentage."""


def layer_labels(names: list[str]) -> list[str]:
    """The number of each layer, with its name where a model has several kinds, as encoder, decoder and towers."""
    several = len(layer_kinds(names)) > 1
    return [f"{k} {name}" if several else str(k) for k, name in enumerate(names)]


def kinds_of_layers(names: list[str]) -> list[str]:
    """A note about the layers of a model that has several kinds; none of another."""
    kinds = layer_kinds(names)
    of_kinds = "; ".join(f"{listed([*map(str, numbers)])} {kind}" for kind, numbers in kinds.items())
    return [f"The layers are of several kinds: {of_kinds}."] if len(kinds) > 1 else []


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{share:.1%}"


def rate(share: float, count: int, interval: tuple[float, float]) -> str:
    """A share of counted rows with its interval; of few rows the counts, because a percentage would say too much.

    Examples
    --------
    >>> from attsvm.pages.words import rate
    >>> rate(0.93, 1000, (0.9125, 0.9442)), rate(0.75, 12, (0.47, 0.91))
    ('93.0% (91.2-94.4%)', '9 of the 12')
    """
    return counts(share, count) if count < FEW_ROWS else with_interval(share, interval)


def counts(share: float, count: int) -> str:
    """How many of the counted rows the share is."""
    return f"{round(share * count)} of the {count}"


def with_interval(share: float, interval: tuple[float, float]) -> str:
    """A share and its interval, as percentages."""
    low, high = interval
    return f"{share:.1%} ({100 * low:.1f}-{high:.1%})"


def split_interval(share: str) -> tuple[str, str]:
    """A share of :func:`rate` and its interval in words, which is empty if it has none.

    Examples
    --------
    >>> from attsvm.pages.words import split_interval
    >>> split_interval("93.0% (91.2-94.4%)"), split_interval("9 of the 12")
    (('93.0%', '95% interval 91.2-94.4%'), ('9 of the 12', ''))
    """
    value, _, interval = share.partition(" (")
    return value, f"95% interval {interval.rstrip(')')}" if interval else ""


def number(value: float | None) -> str:
    """A number with three or four digits; a probability just below 1 is written as its distance to 1.

    Examples
    --------
    >>> from attsvm.pages.words import number
    >>> number(0.5), number(123456.0), number(1 - 1e-6), number(None)
    ('0.5', '1.23e+05', '1 − 1.0e-06', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if 0.999 < value < 1:
        return f"1 − {1 - value:.1e}"
    return f"{value:z.4g}" if value == 0 or 1e-3 <= abs(value) < 9999.5 else f"{value:.2e}"


def short(value: float) -> str:
    """A number with two or three digits, for wide tables.

    Examples
    --------
    >>> from attsvm.pages.words import short
    >>> short(0.1234), short(12.34), short(17312.0), short(123456.0), short(1e-4)
    ('0.12', '12.3', '17300', '1.23e+05', '1.0e-04')
    """
    if value == 0:
        return "0"
    if 1000 <= abs(value) < 99950:
        return f"{float(f'{value:.3g}'):.0f}"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:z.2g}" if abs(value) < 1 else f"{value:z.3g}"


def listed(names: list[str]) -> str:
    """Names with commas, and "and" before the last.

    Examples
    --------
    >>> from attsvm.pages.words import listed
    >>> listed(["W"]), listed(["K", "Q", "v"])
    ('W', 'K, Q and v')
    """
    *others, last = names
    return f"{', '.join(others)}{' and ' * bool(others)}{last}"


def share_interval(value: float, count: int) -> tuple[float, float]:
    """Wilson interval, at 95 %, of a share of ``count`` independent rows.

    Examples
    --------
    >>> from attsvm.pages.words import share_interval
    >>> low, high = share_interval(0.9, 100)
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    found = wilson(value * count, count)
    return float(found.low), float(found.high)


def mean_interval(values: np.ndarray) -> tuple[float, float] | None:
    """Student's interval, at 95 %, of the mean of shares, within 0 and 1.

    None for a single share, and for shares that are all equal: the interval would have zero width, which says too much.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.pages.words import mean_interval
    >>> low, high = mean_interval(np.array([0.5, 0.6, 0.7]))
    >>> round(low, 3), round(high, 3)
    (0.352, 0.848)
    """
    if np.ptp(values) == 0:
        return None
    half = student_half_width(values)
    low, high = np.clip([values.mean() - half, values.mean() + half], 0, 1)
    return float(low), float(high)


SOFT_BELOW = 0.99
"""Attention counts as saturated if the median over queries of the largest probability is at least this."""


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


def number_of_words(count: float) -> str:
    """An effective number of words, with a decimal where it is small."""
    return f"{count:.1f}" if count < 10 else f"{count:.0f}"


def status_counts(status: Any) -> dict[str, int]:
    """How many results of a batch have each status, by its name."""
    found, counts = np.unique(status, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def status_words(counts: dict[str, int]) -> str:
    """The status of a single result, or how many have each."""
    return ", ".join(name if counts == {name: 1} else f"{n} {name}" for name, n in counts.items())
