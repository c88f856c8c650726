"""Whether the numbers of new tokens are there and in the ranges of the fit; another unit is named."""

from typing import Any

import numpy as np

from attsvm._utils.callers import warn_caller
from attsvm._utils.shapes import Float
from attsvm.datasets import Sequences, map_vectors, shown
from attsvm.errors import ProblemError
from attsvm.estimator.coordinates import regular_sample

FITTED, COMPARED = 10_000, 1_000
"""Most tokens of a fit whose ranges are kept, and most new tokens that are compared with them."""

FEWEST, DIFFERENT = 20, 5
"""Fewest numbers of a column, in the fit and among new tokens, that are compared, and fewest different new ones."""

BEYOND = 10.0
"""A number is far away if it is this many lengths of the range beyond it, or this factor nearer to zero."""


def ranges_of(sequences: Sequences, before: Float[np.ndarray, "d 2"] | None = None) -> Float[np.ndarray, "d 2"]:
    """The smallest and the largest number of each column, and of the ranges ``before``; NaN for few numbers, and words.

    The ranges are those of at most :data:`FITTED` tokens.
    """
    entries = _sample(sequences, FITTED)
    few = np.isfinite(entries).sum(axis=0) < FEWEST
    low = np.where(few, np.nan, np.where(np.isnan(entries), np.inf, entries).min(axis=0))
    high = np.where(few, np.nan, np.where(np.isnan(entries), -np.inf, entries).max(axis=0))
    if before is not None:
        low, high = np.fmin(low, before[:, 0]), np.fmax(high, before[:, 1])
    return np.column_stack([low, high])


def check_ranges(sequences: Sequences, ranges: Float[np.ndarray, "d 2"], columns: Any = None) -> None:
    """Raise ProblemError if more than half of the numbers of a column are far from its range in the fit.

    Far away is ten lengths of the range beyond it; or ten times nearer to zero than any number of a column whose
    numbers have one sign. Numbers of one distribution are not: half of the new ones would have to be extremes of that
    size, which the fit has not seen. A column with one value in the fit is not compared. Neither are fewer than five
    different new numbers, since a number that all tokens of a bag share is one draw.

    Warns of a column that is less far, but has more than half of its numbers outside its range, and at least 20
    different ones: mmol/l in place of mg/dl, for example. Fewer than five sequences are no reason to warn, because the
    numbers of one sequence are often alike. However few there are, it warns if all numbers of a column are beyond its
    range by more than the length of the range; one number by ten lengths.

    ``columns``: their names.
    """
    entries, (low, high) = _sample(sequences, COMPARED), ranges.T
    length = high - low
    with np.errstate(invalid="ignore", over="ignore"):
        far = (entries < low - BEYOND * length) | (entries > high + BEYOND * length)
        far |= (np.abs(entries) < np.minimum(np.abs(low), np.abs(high)) / BEYOND) & (np.sign(low) == np.sign(high))
        outside = far | (entries < low) | (entries > high)
        beyond = (entries < low - length) | (entries > high + length)
    counts = np.isfinite(entries).sum(axis=0)
    all_beyond = np.asarray((counts > 0) & (beyond.sum(axis=0) == counts))
    many, half = counts >= FEWEST, counts / 2
    for column in np.flatnonzero((length > 0) & (all_beyond | many & (outside.sum(axis=0) > half))):
        found = entries[np.isfinite(entries[:, column]), column]
        different, is_far = len(np.unique(found)), far[:, column].sum() > half[column]
        name = column if columns is None else repr(columns[column])
        of_fit, of_new = (f"{least:.4g} to {most:.4g}" for least, most in (ranges[column], (found.min(), found.max())))
        numbers = f"its numbers are from {of_fit}, got numbers from {of_new}"
        if is_far and many[column] and different >= DIFFERENT:
            raise ProblemError(
                f"X: expected column {name} in the unit of the fit, where {numbers}; if they are right, set ranges_ = "
                "None in the fitted estimator, or give --any-unit to attsvm predict"
            )
        if (all_beyond[column] and (is_far or different > 1)) or (different >= FEWEST and len(sequences) >= DIFFERENT):
            warn_caller(f"X: column {name} may be in another unit than in the fit, where {numbers}", RuntimeWarning)


def warn_of_missing(sequences: Sequences, ranges: Float[np.ndarray, "d 2"], columns: Any = None) -> None:
    """Warn of sequences without any entry, and of columns without one, which a ``token_net`` would fill in silence.

    ``ranges``: of the fit, NaN for words and for columns with few numbers. Few tokens may lack one by chance.
    """
    missing, ids = map_vectors(sequences, np.isnan)
    names = np.arange(len(sequences)) if sequences.names is None else sequences.names
    empty = names[np.logical_and.reduceat(np.asarray(missing.all(axis=1))[ids], sequences.offsets[:-1])]
    if len(empty):
        warn_caller(f"X: every entry is missing in bag {shown(empty)}", RuntimeWarning)
    if len(ids) >= FEWEST and len(sequences) >= DIFFERENT:
        places = np.flatnonzero(np.asarray(missing).all(axis=0) & ~np.isnan(ranges[:, 0]))
        if len(places):
            found = shown([str(place) if columns is None else repr(columns[place]) for place in places])
            warn_caller(f"X: every entry is missing in column {found}, unlike in the fit", RuntimeWarning)


def _sample(sequences: Sequences, most: int) -> Float[np.ndarray, "N d"]:
    """The entries of some tokens, at regular places; NaN for words and for what is not finite."""
    entries = regular_sample(sequences, most).astype(np.float64)
    entries[~np.isfinite(entries)] = np.nan
    if sequences.words:
        entries[:, np.isin(sequences.columns or (), list(sequences.words))] = np.nan
    return entries
