"""Intervals for shares and means, for all cells of a sweep at once."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError

# for the other packages of attsvm, beside the public names
__door__ = ("LEVEL", "Estimate", "mean", "share", "student_half_width", "student_mean")

LEVEL = 0.95
"""The confidence level of intervals."""

RESAMPLES = 999
"""Resamples of a bootstrap."""

LARGEST_BOOTSTRAP = 2000
"""With more trials the normal interval of the mean is used: bootstrap and normal intervals are then equal to 1 %."""

_BATCH_NUMBERS = 10**7


class Estimate(NamedTuple):
    """An estimate for each cell.

    Attributes
    ----------
    value, low, high : ndarray
        The estimate and its interval; NaN in a cell without trials. The interval is NaN for a mean of one trial, and of
        trials that all have the same value: resampling them would give an interval of zero width, which says too much.
    trials : int ndarray
        Trials of the cell that have a value.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    trials: np.ndarray


def share(successes: ArrayLike, count: ArrayLike, level: float = LEVEL) -> Estimate:
    """Shares with Wilson intervals.

    Parameters
    ----------
    successes, count : int array, the same shape
        Successful trials and all trials of each cell.
    level : float
        The confidence level.

    References
    ----------
    E. B. Wilson (1927), *Probable Inference, the Law of Succession, and Statistical Inference*, Journal of the American
    Statistical Association 22.

    Examples
    --------
    >>> from attsvm.statistics import share
    >>> estimate = share([0, 5], [10, 10])
    >>> estimate.value, estimate.high.round(3)
    (array([0. , 0.5]), array([0.278, 0.763]))
    """
    _check_level(level)
    count = np.asarray(count)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.asarray(successes) / count
        z = scipy.special.ndtri((1 + level) / 2)
        centre = (value + z**2 / (2 * count)) / (1 + z**2 / count)
        half = z / (1 + z**2 / count) * np.sqrt(value * (1 - value) / count + (z / (2 * count)) ** 2)
    # the ends are exactly 0 and 1 for shares 0 and 1; the formula leaves rounding errors of 1e-17
    low = np.where(value == 0, 0.0, np.clip(centre - half, 0, 1))
    high = np.where(value == 1, 1.0, np.clip(centre + half, 0, 1))
    return Estimate(value, low, high, count)


def mean(values: ArrayLike, level: float = LEVEL, seed: int = 0) -> Estimate:
    """Means with percentile intervals of the bootstrap.

    Parameters
    ----------
    values : array, shape (..., trials)
        NaN where a trial has no value. Infinite values are left out, too, and not counted in ``trials``.
    level : float
        The confidence level.
    seed : int
        Seed of the resamples. An interval does not depend on the other cells.

    Raises
    ------
    ProblemError
        If there is no trial, or the level is out of range.

    References
    ----------
    B. Efron and R. J. Tibshirani (1993), *An Introduction to the Bootstrap*, chapter 13.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.statistics import mean
    >>> estimate = mean([[1.0, 2.0, 3.0], [2.0, np.nan, np.nan]])
    >>> estimate.value, estimate.trials
    (array([2., 2.]), array([3, 1]))
    """
    _check_level(level)
    values = np.asarray(values, dtype=float)
    if not values.ndim or not values.shape[-1]:
        raise ProblemError(f"values: expected shape (..., trials) with at least one trial, got {values.shape}")
    cells = values.reshape(-1, values.shape[-1])
    # finite values first, so that the cells with equally many form one array
    cells = np.take_along_axis(cells, np.argsort(~np.isfinite(cells), axis=-1, kind="stable"), axis=-1)
    count = np.isfinite(cells).sum(axis=-1)
    value, low, high = np.full((3, len(cells)), np.nan)
    for trials in np.unique(count[count > 0]):
        rows = count == trials
        group = cells[rows, :trials]
        value[rows] = group.mean(axis=-1)
        different = np.ptp(group, axis=-1) > 0
        if different.any():
            uncertain = np.flatnonzero(rows)[different]
            low[uncertain], high[uncertain] = _interval(group[different], level, seed)
    shape = values.shape[:-1]
    return Estimate(*(x.reshape(shape) for x in (value, low, high, count)))


def student_half_width(values: ArrayLike, level: float = LEVEL) -> np.ndarray:
    """Half the width of Student's interval of the mean over the first axis; infinite for one value."""
    array = np.asarray(values, dtype=np.float64)
    count = len(array)
    if count < 2:
        return np.full(array.shape[1:], np.inf)
    return np.asarray(scipy.special.stdtrit(count - 1, (1 + level) / 2) * array.std(axis=0, ddof=1) / np.sqrt(count))


def student_mean(draws: np.ndarray, level: float = LEVEL) -> Estimate:
    """Means over the last axis, with Student's intervals."""
    value, half = draws.mean(axis=-1), student_half_width(np.moveaxis(draws, -1, 0), level)
    return Estimate(value, value - half, value + half, np.full(value.shape, draws.shape[-1]))


def _interval(group: np.ndarray, level: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of the means of rows without NaN."""
    if group.shape[-1] > LARGEST_BOOTSTRAP:
        half = scipy.special.ndtri((1 + level) / 2) * group.std(axis=-1, ddof=1) / np.sqrt(group.shape[-1])
        return group.mean(axis=-1) - half, group.mean(axis=-1) + half
    interval = scipy.stats.bootstrap(
        (group,),
        np.mean,
        axis=-1,
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="percentile",
        batch=max(1, _BATCH_NUMBERS // group.size),
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return interval.low, interval.high


def _check_level(level: float) -> None:
    check_number("level", level, "a number in (0, 1)", lambda x: 0 < x < 1)
