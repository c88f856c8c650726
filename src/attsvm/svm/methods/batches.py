"""Run one solver on a batch: which problems are left to solve, and how many at a time."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int

from attsvm.svm.certificate import unattainable
from attsvm.svm.constraints.constraints import Constraints

CACHED = 1_000_000
"""Numbers in arrays that are computed together: more would not fit into the processor's cache."""


def undecided(constraints: Constraints) -> Bool[np.ndarray, "*batch"]:
    """Problems that are not decided at first sight: 0 is not the solution, and no row of zeros makes it infeasible."""
    impossible = constraints.flat(unattainable(constraints))
    return np.asarray(constraints.asks_margin & ~np.logical_or.reduce(impossible, axis=-1))


def chunks(chosen: Bool[np.ndarray, " N"], numbers: int, most_numbers: int) -> Iterator[Int[np.ndarray, " chunk"]]:
    """Indices of the chosen problems, as many at a time as stay in the processor's cache, but at least one.

    ``numbers``: numbers that one problem stores. ``most_numbers``: numbers that the problems of a chunk may store; 0
    for one problem at a time.
    """
    index = np.flatnonzero(chosen)
    length = max(1, most_numbers // max(1, numbers))
    for first in range(0, len(index), length):
        yield index[first : first + length]
