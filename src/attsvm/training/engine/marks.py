"""The steps of a run that are recorded, and the segments between them."""

from collections.abc import Sequence

import numpy as np

from attsvm._utils.checks import check_integer
from attsvm.errors import ProblemError

DEFAULT_RECORDS = 50
MOST_RECORDS = 10**7


def record_steps(record: int | Sequence[int] | None, start: int, stop: int) -> list[int]:
    """The steps that the history holds; step 0 is one of them unless a run is resumed."""
    record = DEFAULT_RECORDS if record is None else record
    first = start + (start > 0)
    if np.ndim(record) == 0:
        record = check_integer("record", record, 1, MOST_RECORDS)
        if record == 1 or stop <= first:
            return [stop] if stop >= first else []
        spread = np.geomspace(max(first, 1), stop, int(record) - (start == 0))
        return sorted({first, stop, *np.rint(spread).astype(int).tolist()})
    steps = np.asarray(record)
    if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < 0).any() or (steps > stop).any():
        raise ProblemError(f"record: expected a number of records, or steps from 0 to {stop}")
    return sorted({int(step) for step in steps if step >= first})


def observed_steps(recorded: list[int], start: int, stop: int) -> list[int]:
    """The steps to observe: those recorded, each one before them, whose difference is the last step, and the end."""
    return sorted({*recorded, *(step - 1 for step in recorded if step > start), stop})


def segment_lengths(done: int, marks: list[int], budget: int, capacity: int) -> list[int]:
    """Lengths of the next segments, from mark to mark, up to the budget of steps and of records."""
    lengths: list[int] = []
    for mark in marks[:capacity]:
        length = min(mark - done - sum(lengths), budget - sum(lengths))
        if lengths and mark > done and length == 0:
            break
        lengths.append(length)
        if done + sum(lengths) < mark:
            break
    return lengths
