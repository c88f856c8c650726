"""How long something takes: the best of several runs in turn, and a step of a training."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

Clock = Callable[[], float]


def seconds_of(work: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    """Seconds of one call."""
    began = clock()
    work()
    return clock() - began


def best(works: Mapping[str, Callable[[], Any]], repeats: int, clock: Clock = time.process_time) -> dict[str, float]:
    """Seconds of the fastest run of each. They take turns, so that other work on the machine affects all of them."""
    found = dict.fromkeys(works, np.inf)
    for _ in range(repeats):
        for name, work in works.items():
            found[name] = min(found[name], seconds_of(work, clock))
    return found


def seconds_of_step(
    run: Callable[[int], object],
    *,
    short: int = 2,
    least: float = 0.3,
    repeats: int = 1,
    clock: Clock = time.perf_counter,
) -> float:
    """Seconds of one step, from the difference of a long and a short run, which removes what both share.

    The long one has as many steps as take ``least`` seconds. The fastest of the repeats of each counts.
    """

    def spent(steps: int) -> float:
        return best({"": partial(run, steps)}, repeats, clock)[""]

    run(short)
    base, steps, taken = spent(short), 2 * short, 0.0
    while taken < least and steps <= 1 << 20:
        steps *= 4
        taken = spent(steps) - base
    return taken / (steps - short)
