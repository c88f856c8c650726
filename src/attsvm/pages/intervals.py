"""Intervals that pages state: of a share of test rows, and of a mean over seeds."""

import numpy as np
import scipy

from attsvm.statistics import LEVEL, share


def share_interval(value: float, count: int) -> tuple[float, float]:
    """Wilson interval, at 95 %, of a share of ``count`` independent rows.

    Examples
    --------
    >>> from attsvm.pages.intervals import share_interval
    >>> low, high = share_interval(0.9, 100)
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    found = share(value * count, count)
    return float(found.low), float(found.high)


def mean_interval(values: np.ndarray) -> tuple[float, float] | None:
    """Student's interval, at 95 %, of the mean of shares, within 0 and 1.

    None for a single share, and for shares that are all equal: the interval would have zero width, which says too much.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.pages.intervals import mean_interval
    >>> low, high = mean_interval(np.array([0.5, 0.6, 0.7]))
    >>> round(low, 3), round(high, 3)
    (0.352, 0.848)
    """
    if np.ptp(values) == 0:
        return None
    half = scipy.stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    low, high = np.clip([values.mean() - half, values.mean() + half], 0, 1)
    return float(low), float(high)
