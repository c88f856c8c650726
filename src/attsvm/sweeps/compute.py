"""The computation of a sweep: the trials of a chunk, with the same bits in every process."""

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from attsvm._utils.jax_devices import find_device, on_device
from attsvm._utils.threads import num_threads, thread_map, threads_for
from attsvm.errors import ProblemError
from attsvm.heads import parse_head
from attsvm.losses import parse_loss
from attsvm.norms import parse_norm
from attsvm.sweeps.block import Block
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import Output, check_names, undeclared
from attsvm.sweeps.sources import drawn_block, find_source
from attsvm.sweeps.training import start
from attsvm.training import Setup

ATTEMPTS = 3
"""How often a chunk is computed before its error is recorded; once after a :class:`ProblemError`."""


class SweepChunk(NamedTuple):
    """A chunk of trials of one cell."""

    cell: int
    first: int
    stop: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.cell}-{self.first}"

    @property
    def size(self) -> int:
        """The number of its trials."""
        return self.stop - self.first


def tasks(num_cells: int, trials: int, chunk: int) -> list[SweepChunk]:
    """All chunks of a sweep, cell by cell."""
    firsts = range(0, trials, chunk)
    return [SweepChunk(cell, first, min(first + chunk, trials)) for cell in range(num_cells) for first in firsts]


class Failure(NamedTuple):
    """The error of a chunk as text: not every exception can be sent from one process to another."""

    error: str  # the type of the exception and its message
    traceback: str
    attempts: int

    @classmethod
    def of(cls, error: BaseException, attempts: int) -> "Failure":
        """The failure that an exception describes."""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return cls(f"{type(error).__name__}: {error}", "".join(lines), attempts)


def attempt(call: Callable[[SweepChunk], object], task: SweepChunk) -> Failure | None:
    """Make a call, again where it fails, and return how it failed the last time."""
    failure = None
    for number in range(1, ATTEMPTS + 1):
        try:
            call(task)
        except ProblemError as error:  # another attempt would fail, too
            return Failure.of(error, number)
        except Exception as error:  # a measure may fail in any way
            failure = Failure.of(error, number)
        else:
            return None
    return failure


def compute(definition: Definition, task: SweepChunk) -> dict[str, np.ndarray]:
    """The outputs of a chunk, block by block."""
    blocks = [block_outputs(definition, task.cell, first) for first in range(task.first, task.stop, definition.width)]
    # the last block is computed as a whole, and what is beyond the trials is dropped
    return {name: np.concatenate([each[name] for each in blocks])[: task.size] for name in blocks[0]}


def block_outputs(definition: Definition, cell: int, first: int) -> dict[str, np.ndarray]:
    """The outputs of a block, as they are stored."""
    arguments = definition.arguments(cell)
    generators = definition.generators(cell, first)
    drawn = drawn_block(find_source(definition.data)(generators, **arguments.data), definition.width)
    block = Block(drawn, arguments, generators, definition.training_seed(cell, first))
    found: dict[str, np.ndarray] = {}
    for measure in definition.measures:
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


def measured(definition: Definition, device: str | None = None) -> dict[str, np.ndarray]:
    """Compute a sweep in this process, its cells side by side on all cores. No extra is needed.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    definition : Definition
    device : str, optional
        As for :func:`attsvm.train`.

    Returns
    -------
    dict of str to ndarray
        An array (*grid, trials, ...) for each output, with the bits that :func:`attsvm.sweep` stores.

    Raises
    ------
    ProblemError
        If there is no such device.

    See Also
    --------
    attsvm.sweep : Stores what it computes.

    Examples
    --------
    >>> from attsvm.sweeps import Definition, measured
    >>> measured(Definition({"dim": [2, 5]}, ["feasible"], trials=40))["feasible"].mean(axis=1)
    array([0.225, 1.   ])
    """
    home = find_device(device)

    def compute_there(task: SweepChunk) -> dict[str, np.ndarray]:
        with on_device(home):  # of this thread
            return compute(definition, task)

    whole = tasks(definition.num_cells, definition.trials, definition.trials)
    number = min(num_threads(), len(whole))
    with one_thread(), thread_map(number) as spread:
        # values are mostly given from small to large: the longest cells first, so that the threads end together
        cells = spread(compute_there, whole[::-1])[::-1]
    return {
        name: np.stack([cell[name] for cell in cells]).reshape(*definition.shape, *array.shape)
        for name, array in cells[0].items()
    }


def check_values(definition: Definition) -> None:
    """Draw a trial for each value of the grid, and read the arguments of training and of solves.

    A value may fit no more than some values of the other axes, as a rank does. So it is refused only if it can be used
    neither with the first nor with the last values of the others.

    Raises ProblemError if a value cannot be used.
    """
    lengths = definition.shape
    for axis, (name, values) in enumerate(definition.grid.items()):
        for i, value in enumerate(values):
            others = ([0] * len(lengths), [length - 1 for length in lengths])
            refused = [_refused(definition, [*other[:axis], i, *other[axis + 1 :]]) for other in others]
            if all(refused):
                raise ProblemError(f"{name}: expected values that the sweep can use, got {value!r} ({refused[0]})")


def _refused(definition: Definition, place: list[int]) -> str:
    """Why a cell cannot be computed; "" if nothing is known against it."""
    cell = int(np.ravel_multi_index(place, definition.shape))
    arguments = definition.arguments(cell)
    try:
        generators = [definition.generator(cell, 0)]
        drawn = drawn_block(find_source(definition.data)(generators, **arguments.data), 1)
        training = arguments.of_train()
        if {"attention", "rank", "init"} & set(training):
            start(drawn.problem, training, generators)
        if "loss" in training:
            parse_loss(training["loss"], drawn.problem.num_classes)
        Setup.check_numbers(training.get("steps", 0), training.get("dtype", "float64"), training.get("penalty", 0.0), 0)
        if training.get("head") is not None:
            parse_head(training["head"])
        if "norm" in arguments.svm:
            parse_norm(arguments.svm["norm"])
    except (TypeError, ProblemError) as error:  # what else a source raises may depend on more than the values
        return str(error)
    return ""
