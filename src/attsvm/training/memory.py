"""The device that a training runs on, and the memory that it needs."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from attsvm.devices import Needs, free_memory, out_of_memory, parse_device
from attsvm.problem import Problem
from attsvm.training.setup import Setup

EXHAUSTED = "RESOURCE_EXHAUSTED"
"""How the message of XLA's error begins if memory does not suffice."""

ARRAYS_OF_LOGITS = 8
"""So many arrays of the size of the logits a step holds at once: logits, attention, their gradients and masks."""

ARRAYS_OF_PARAMETERS = 8
"""Parameters, their gradient, the state of the optimizer, and the new and the old of each."""


def find_device(name: str | None) -> Any:
    """JAX's device of a name; None, its default device, if there is no name.

    Raises
    ------
    ProblemError
        If there is no such device.
    """
    if name is None:
        return None
    gpus = _gpus()
    found = parse_device(name, len(gpus))
    return jax.devices("cpu")[0] if found.kind == "cpu" else gpus[found.number]


def _gpus() -> list[Any]:
    try:
        return jax.devices("gpu")
    except RuntimeError:  # JAX has been installed without support of GPUs, or there is none
        return []


def _name(device: Any) -> str:
    return "cpu" if device.platform == "cpu" else f"cuda:{device.id}"


@contextlib.contextmanager
def on_device(device: Any, setup: Setup) -> Iterator[None]:
    """Compute on a device, or on JAX's default device if it is None.

    The errors of memory that does not suffice become one, which says how many trials would fit.

    Raises
    ------
    MemoryError
    """
    try:
        with contextlib.nullcontext() if device is None else jax.default_device(device):
            yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not (isinstance(error, MemoryError) or EXHAUSTED in str(error)):
            raise
        home = device or jax.devices()[0]
        raise out_of_memory(_name(home), available(home), needs(setup), setup.num_trials) from error


def available(device: Any) -> int:
    """Bytes that a device has free."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"] if stats else free_memory()


def needs(setup: Setup) -> Needs:
    """An estimate of the memory of a training, without the records of the history."""
    problem, size = setup.problem, setup.dtype.itemsize
    one = math.prod(problem.model_shape)
    data = sum(x.size for x in _arrays(problem)) * size
    of_trial = sum(x[0].size for x in setup.trained.values())
    logits = math.prod(problem.query_shape[len(problem.batch_shape) :]) * problem.num_tokens
    # XLA's programs hold an array as large as the tokens for each query and trial: benchmarks/training_memory.py
    products = logits * problem.dim
    working = (ARRAYS_OF_LOGITS * logits + products + ARRAYS_OF_PARAMETERS * of_trial) * size
    # the data of a batch of problems belong to its trials
    return Needs(data, working) if one == 1 else Needs(0, working + data // one)


def _arrays(problem: Problem) -> list[np.ndarray]:
    return [x for x in (problem.tokens, problem.queries, problem.keys, problem.labels) if x is not None]
