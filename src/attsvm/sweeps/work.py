"""The computation of one chunk, the same in every process."""

import atexit
import contextlib
import gc
import os
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from attsvm._utils.compiled_programs import keep_programs
from attsvm._utils.jax_devices import find_device, on_device
from attsvm.errors import ProblemError
from attsvm.svm.threads import threads_for
from attsvm.sweeps.arguments import find_source
from attsvm.sweeps.block import Block, drawn_block
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.format import Output, check_names, undeclared
from attsvm.sweeps.store import Store, Task


def run_chunk(definition: Definition, path: Path, chunk: int, identity: str, device: str | None, task: Task) -> None:
    """Compute a chunk on one thread and on a device, and commit it to the store."""
    with one_thread(), on_device(find_device(device)):
        arrays = compute(definition, task)
    Store(path).write(definition, chunk, identity, task, arrays)


class Failure(NamedTuple):
    """The error of a chunk as text: not every exception can be sent from one process to another."""

    error: str  # the type of the exception and its message
    traceback: str
    final: bool  # whether another attempt would fail, too

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """The failure that an exception describes."""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return cls(f"{type(error).__name__}: {error}", "".join(lines), isinstance(error, ProblemError))


def attempt(call: Callable[[Task], object], task: Task) -> Failure | None:
    """Make a call, and return how it failed."""
    try:
        call(task)
    except Exception as error:  # a measure may fail in any way
        return Failure.of(error)
    return None


def in_worker(call: Callable[[Task], object], task: Task) -> Failure | None:
    """Make a call in a process that does nothing else. Dask would print the traceback of each exception."""
    _prepare_worker()
    return attempt(call, task)


def compute(definition: Definition, task: Task) -> dict[str, np.ndarray]:
    """The outputs of a chunk, block by block."""
    blocks = [block_outputs(definition, task.cell, first) for first in range(task.first, task.stop, definition.width)]
    wanted = task.stop - task.first
    return {name: np.concatenate([each[name] for each in blocks])[:wanted] for name in blocks[0]}


def block_outputs(definition: Definition, cell: int, first: int) -> dict[str, np.ndarray]:
    """The outputs of a block, as they are stored."""
    arguments = definition.arguments(cell)
    generators = definition.generators(cell, first)
    drawn = drawn_block(find_source(definition.data)(generators, **arguments.data), definition.width)
    block = Block(drawn, arguments, generators, definition.training_seed(cell, first), definition.budget)
    found: dict[str, np.ndarray] = {}
    for measure in definition.parsed_measures:
        declared = measure.declared()
        if drawn.problem.heads_shape and not measure.several_heads:
            heads = drawn.problem.heads_shape[0]
            raise ProblemError(f"{measure.name}: expected problems with one attention head, got {heads} heads")
        arrays = measure.measure(block)
        if declared and set(arrays) != set(declared):
            expected, got = ", ".join(declared), ", ".join(map(str, arrays))
            raise ProblemError(f"{measure.name}: expected the outputs {expected}, got {got}")
        check_names([*definition.names, *(set(found) - set(definition.names)), *(set(arrays) - set(declared))])
        found |= {name: _checked(name, array, declared.get(name), definition) for name, array in arrays.items()}
    return found


def _checked(name: str, array: np.ndarray, output: Output | None, definition: Definition) -> np.ndarray:
    output = output or undeclared(np.asarray(array))
    expected = (definition.width, *(len(values) for values in output.axes.values()))
    if np.shape(array) != expected:
        raise ProblemError(f"{name}: expected an array of shape {expected}, got {np.shape(array)}")
    return output.stored(name, array)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: how a batch is sliced depends on their number, and a worker has one core."""
    before = os.environ.get("ATTSVM_THREADS")
    os.environ["ATTSVM_THREADS"] = "1"
    try:
        with threads_for(0):
            yield
    finally:
        if before is None:
            del os.environ["ATTSVM_THREADS"]
        else:
            os.environ["ATTSVM_THREADS"] = before


@cache
def _prepare_worker() -> None:
    """Compute on one thread, keep compiled programs, and end without delay."""
    keep_programs()
    atexit.register(gc.freeze)  # the last collections take seconds with JAX
    # for good, because a worker may have several threads
    os.environ["ATTSVM_THREADS"] = "1"
    threadpool_limits(1, user_api="blas")
