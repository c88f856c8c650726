"""The sequences that early stopping validates on: a share of each stratum, such as a class, given ones, or none."""

from typing import Any

import numpy as np

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError
from attsvm.estimator.task import SequenceTask

SHARE = 0.1
"""The share of each stratum that is held out by default."""

FEWEST = 10
"""By default fewest of each required stratum: with two sequences of a class, early stopping chose steps by chance."""


def held_out(
    task: SequenceTask, share: float | None, groups: np.ndarray | None, generator: np.random.RandomState
) -> np.ndarray:
    """Which sequences are held out, (n,); none if a required stratum has too few.

    ``share``: of each stratum; by default :data:`SHARE`, and none with fewer than :data:`FEWEST` of a required one.
    ``groups``: (n,), whose sequences stay together.

    Raises ProblemError if the share is out of range.
    """
    part = SHARE if share is None else check_number("validation", share, "a number in (0, 1)", lambda x: 0 < x < 1)
    strata = task.strata
    counts = np.bincount(strata, minlength=task.num_required)
    wanted = np.array([min(round(part * count), count - 1) for count in counts.tolist()])
    chosen = np.zeros(len(task.labels), dtype=bool)
    if groups is None:
        for number, size in enumerate(wanted):
            chosen[generator.permutation(np.flatnonzero(strata == number))[: max(size, 0)]] = True
    else:
        names, owners = np.unique(groups, return_inverse=True)
        for group in generator.permutation(len(names)):
            own = owners == group
            before, with_it = (np.bincount(strata[rows], minlength=len(counts)) for rows in (chosen, chosen | own))
            # a stratum still lacks some, and none gets more than twice its share
            if ((with_it > before) & (before < wanted)).any() and (with_it <= np.minimum(2 * wanted, counts - 1)).all():
                chosen |= own
    found = np.bincount(strata[chosen], minlength=task.num_required)[: task.num_required]
    return chosen if share is not None or (found >= FEWEST).all() else np.zeros_like(chosen)


def read_groups(groups: Any, number: int) -> np.ndarray:
    """The groups of ``number`` sequences; raises ProblemError if there is not one for each of them."""
    found = np.asarray(groups)
    # None, NaN, NaT, and NA of pandas, which is not even comparable
    missing = [group for group in found.ravel() if group is None or type(group).__name__ == "NAType" or group != group]
    if found.shape != (number,) or missing:
        got = f"{missing[0]} for {len(missing)} of them" if missing else f"shape {found.shape}"
        raise ProblemError(f"groups: expected one for each of {number} sequences, got {got}")
    return found.astype(str) if found.dtype == object else found


def rows_held_out(validation: Any, names: np.ndarray | None, number: int) -> np.ndarray:
    """Which of ``number`` sequences are given, (number,): by a mask, by positions, or by the names of bags of a table.

    Raises ProblemError if they are something else, none, or all.
    """
    try:
        given = np.asarray(validation)
    except ValueError:  # entries of several shapes
        given = np.empty(0)
    chosen = np.zeros(number, dtype=bool)
    if given.ndim == 1 and names is not None and given.dtype != bool:
        unknown = [name for name in given.tolist() if name not in set(names.tolist())]
        if unknown:
            raise ProblemError(f"validation: expected names of bags in the table, got {unknown[0]!r}")
        chosen = np.isin(names, given)
    elif given.shape == (number,) and given.dtype == bool:
        chosen = given
    elif given.ndim == 1 and given.dtype.kind in "iu" and len(given) and -number <= given.min() <= given.max() < number:
        chosen[given] = True
    if not chosen.any() or chosen.all():
        raise ProblemError(
            f"validation: expected a share, some of the {number} sequences by their positions, those of a table by the "
            f"names of bags, or a tuple of sequences and labels, got {' '.join(repr(validation).split()):.60}"
        )
    return chosen
