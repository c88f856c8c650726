"""The memory that a training needs."""

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from attsvm._utils.jax_devices import available, name_of
from attsvm._utils.memory import in_bytes, is_out_of_memory
from attsvm.problem import Problem
from attsvm.training.setup import Setup

ARRAYS_OF_LOGITS = 8
"""So many arrays of the size of the logits a step holds at once: logits, attention, their gradients and masks."""

ARRAYS_OF_POOLED = 6
"""Queries, their products with the weights, pooled and winning tokens, and the gradients of those."""

ARRAYS_OF_PARAMETERS = 8
"""Parameters, their gradient, the state of the optimiser, and the new and the old of each."""


class Needs(NamedTuple):
    """Bytes of memory that a computation needs: for all trials together, and for each of them."""

    shared: int
    each: int


@contextlib.contextmanager
def enough_memory(setup: Setup) -> Iterator[None]:
    """Make one error, which says how many trials would fit, of the errors of memory that does not suffice.

    Raises MemoryError.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(name_of(setup.device), available(setup.device), needs(setup), setup.num_trials) from error


def needs(setup: Setup) -> Needs:
    """An estimate of the memory of a training, without the records of the history."""
    problem, size = setup.problem, setup.dtype.itemsize
    one = math.prod(problem.model_shape)
    data = sum(x.size for x in _arrays(problem)) * size
    of_trial = sum(x[0].size for x in setup.trained.values())
    logits = math.prod(problem.query_shape[len(problem.batch_shape) :]) * problem.num_tokens
    pooled = math.prod(problem.query_shape[len(problem.batch_shape) :]) * max(problem.dim, problem.key_dim)
    working = (ARRAYS_OF_LOGITS * logits + ARRAYS_OF_POOLED * pooled + ARRAYS_OF_PARAMETERS * of_trial) * size
    # the data of a batch of problems belong to its trials
    return Needs(data, working) if one == 1 else Needs(0, working + data // one)


def out_of_memory(where: str, available: int, needs: Needs, trials: int) -> MemoryError:
    """Return the error of a training that does not fit, which says what would. ``available``: bytes, 0 if unknown."""
    asked = "1 trial needs" if trials == 1 else f"{trials:,} trials need"
    needed = f"{asked} about {in_bytes(needs.shared + trials * needs.each)} on {where}"
    if not available:
        return MemoryError(needed)
    fitting = max(0, (available - needs.shared) // max(1, needs.each))
    most = f"about {fitting:,} would fit" if fitting else "not even one would fit"
    # an estimate that fits was too low
    most = most if fitting < trials else f"fewer would fit: try {max(1, trials // 2):,}"
    return MemoryError(f"{needed}, which has {in_bytes(available)} available; {most}")


def _arrays(problem: Problem) -> list[np.ndarray]:
    return [x for x in (problem.tokens, problem.queries, problem.keys, problem.labels) if x is not None]
