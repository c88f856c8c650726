"""The training loop: shuffled batches, regular checks of the validation sequences, and the best parameters kept."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax

from attsvm._utils.jax_devices import available, default_device, name_of, quick_to_compile
from attsvm._utils.memory import batch_out_of_memory, is_out_of_memory
from attsvm._utils.progress import Progress, is_recorded
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.batches import BYTES, Parameters, Room, TrainingBatch, batches, gather, sampled
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import Network
from attsvm.estimator.settings import Settings
from attsvm.estimator.task import SequenceTask
from attsvm.results import Status

AVERAGED = 100
"""Number of steps over which the parameters are averaged."""

CHECK_EVERY = 25
"""Steps between two checks of the validation sequences; more where their vectors are those of several batches."""

WATCHED = 1000
"""Without validation sequences, most training sequences whose attention is recorded; fewer if they are large."""

PATIENCE, TOLERANCE = 500, 1e-4
"""Training stops once the loss has not decreased by the tolerance for this many steps."""

History = dict[str, list[float]]


@dataclass(frozen=True, eq=False)
class FitState:
    """Parameters and the state of the optimiser, from which ``partial_fit`` continues."""

    network: Network
    coordinates: Coordinates
    parameters: Parameters  # in these coordinates
    # their average over about the last 100 steps, which predicts, because single steps fluctuate with their batches
    average: Parameters
    optimizer: Any  # the state of the optimiser
    steps: int = 0  # steps made since the start
    # the n of the penalty: the sequences of the fit, or ``num_sequences`` of the last call of ``partial_fit``
    num_sequences: int = 0
    # sequences of the largest batch so far, which makes a full step. Steps of smaller batches are smaller, so that a
    # sequence counts as much in a small chunk as in a large one.
    full: int = 0

    @property
    def model(self) -> Any:
        """The average as a model of the original tokens."""
        return self.network.model(self.average, self.coordinates)

    def on_host(self, steps: int) -> "FitState":
        """The same with NumPy arrays and another number of steps."""
        return replace(
            self,
            parameters=jax.device_get(self.parameters),
            average=jax.device_get(self.average),
            optimizer=jax.device_get(self.optimizer),
            steps=steps,
        )


def start(
    network: Network,
    task: SequenceTask,
    optimizer: optax.GradientTransformation,
    generator: np.random.RandomState,
    by_column: bool,
) -> FitState:
    """The initial state of a network for these sequences; ``by_column`` scales each column by its own spread."""
    coordinates = Coordinates.of(task.sequences, by_column)
    parameters = network.initial(task.sequences.dim, task.num_outputs, task.sequences.table.dtype, generator)
    return begin(FitState(network, coordinates, parameters, parameters, None), optimizer)


def begin(state: FitState, optimizer: optax.GradientTransformation) -> FitState:
    """The same parameters with a new optimiser."""
    with precision(state.parameters["b"].dtype):
        return replace(
            state,
            optimizer=jax.device_get(_initial(optimizer, default_device())(state.parameters)),
            steps=0,
            num_sequences=0,
            full=0,
        )


def resumed(state: FitState, optimizer: optax.GradientTransformation) -> FitState:
    """The state itself, or with a new optimiser where a model file has left that out."""
    return state if state.optimizer is not None else replace(state, optimizer=begin(state, optimizer).optimizer)


@lru_cache(maxsize=32)
def _initial(optimizer: optax.GradientTransformation, device: jax.Device) -> Callable[[Parameters], Any]:
    """The initial state of an optimiser as one program; without it each of its operations is compiled for itself."""
    return jax.jit(optimizer.init, compiler_options=quick_to_compile())


def precision(dtype: Any) -> contextlib.AbstractContextManager[Any]:
    """A context with float64 in JAX if the tokens are float64."""
    context: contextlib.AbstractContextManager[Any] = jax.enable_x64(dtype == np.float64)
    return context


@dataclass(frozen=True)
class Fitted:
    """The result of training."""

    state: FitState
    status: Status  # ``converged``, ``finished`` or ``interrupted``
    kept_step: int  # the step whose parameters are kept
    history: History
    path: dict[int, Parameters]  # the averaged parameters after 0, 1, 2, 4, 8, … steps, by the number of steps


def train(
    state: FitState,
    task: SequenceTask,
    validation: SequenceTask | None,
    settings: Settings,
    generator: np.random.RandomState,
) -> Fitted:
    """Train until the validation loss, or without validation sequences the objective, no longer decreases.

    Raises ProblemError if training diverges.
    """
    watched = validation or task[Room(task.sequences).first(generator.permutation(len(task.labels))[:WATCHED])]
    # a check takes at most about as long as the steps since the last one
    every = max(CHECK_EVERY, -(-_bytes_of(watched.sequences) // (BYTES // 2)))
    began = time.perf_counter()
    state = replace(state, num_sequences=len(task.labels))
    history: History = {}
    _record(history, state, watched, np.nan, validation is not None)
    best, best_value, last_improved, values = state, np.inf, 0, []
    path = {state.steps: state.average}
    for reached, objective in itertools.islice(_steps(state, task, settings, generator), settings.max_steps):
        values.append(objective)
        if is_recorded(reached.steps):
            path[reached.steps] = reached.average
        if reached.steps % every and reached.steps < settings.max_steps:
            continue
        mean, values = float(np.mean(values)), []
        if not all(np.isfinite(x).all() for x in [mean, *jax.tree.leaves(reached.parameters)]):
            raise ProblemError(
                f"learning_rate: training diverged within {reached.steps} steps; use a smaller learning rate"
            )
        entry = _record(history, reached, watched, mean, validation is not None)
        value = mean if validation is None else entry["validation_loss"]
        if value < best_value - TOLERANCE:
            last_improved = reached.steps
        if value < best_value or validation is None:
            best, best_value = reached, min(value, best_value)
        status = Status.FINISHED
        progress = Progress(reached.steps, settings.max_steps, time.perf_counter() - began, loss=mean)
        if settings.callback is not None and settings.callback(progress):
            status = Status.INTERRUPTED
            break
        if reached.steps - last_improved >= PATIENCE:
            status = Status.CONVERGED
            break
    return Fitted(best.on_host(reached.steps), status, best.steps, history, jax.device_get(path))


def epoch(
    state: FitState, task: SequenceTask, settings: Settings, generator: np.random.RandomState
) -> Iterator[tuple[FitState, jax.Array]]:
    """One pass over the sequences in a new order; yields the state after each step and the objective before it."""
    dtype = task.sequences.table.dtype
    centre = state.coordinates.centre.astype(dtype)
    scale: Any = np.asarray(state.coordinates.scale, dtype)
    numbers, most = 1 + task.num_outputs, settings.max_instances
    chunks, targets = batches(task.sequences, numbers, settings.batch_size, most, generator), task.targets
    alpha = settings.alpha / state.num_sequences
    state = replace(state, full=max(state.full, *map(len, chunks)))
    usual = Room(task.sequences, most).lengths.sum() / len(chunks)
    for chosen in chunks:
        part = sampled(task.sequences[chosen], most, generator)
        batch = gather(part, targets[chosen], task.weights[chosen], centre, scale, usual)
        # one batch is gathered during the step of another, and none waits
        jax.block_until_ready(state.average)
        with precision(dtype), _enough_memory(settings.device, len(chosen)):
            step = _step_of(settings.optimizer, state.network, default_device())
            parameters, average, optimizer, value = step(
                state.parameters,
                state.average,
                state.optimizer,
                batch,
                dtype.type(alpha),
                dtype.type(len(chosen) / state.full),
                dtype.type(max(1 / (state.steps + 1), 1 / AVERAGED)),
            )
        state = replace(state, parameters=parameters, average=average, optimizer=optimizer, steps=state.steps + 1)
        yield state, value


@lru_cache(maxsize=32)
def _step_of(optimizer: optax.GradientTransformation, network: Network, device: jax.Device) -> Callable[..., Any]:
    """The step of a network with an optimiser on a device, compiled for each shape.

    It updates the average of the parameters, too, and returns the objective before the step. ``part`` is the size of
    the batch over that of a full one, and ``share`` that of the new parameters in the average.
    """

    def make(
        parameters: Parameters,
        average: Parameters,
        state: Any,
        batch: TrainingBatch,
        alpha: jax.Array,
        part: jax.Array,
        share: jax.Array,
    ) -> tuple[Parameters, Parameters, Any, jax.Array]:
        value, gradient = network.value_and_gradient(parameters, batch, alpha)
        gradient = {name: part * x for name, x in gradient.items()}
        extra = {"value": value} if isinstance(optimizer, optax.GradientTransformationExtraArgs) else {}
        updates, state = optimizer.update(gradient, state, parameters, **extra)
        parameters = network.feasible(optax.apply_updates(parameters, updates))
        average = {name: x + share * (parameters[name] - x) for name, x in average.items()}
        return parameters, average, state, value

    return jax.jit(make)


@contextlib.contextmanager
def _enough_memory(device: jax.Device, size: int) -> Iterator[None]:
    """Make one error of those of a batch that does not fit into the memory of the device."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise batch_out_of_memory(name_of(device), available(device), "sequences of a batch", size) from error


def _steps(
    state: FitState, task: SequenceTask, settings: Settings, generator: np.random.RandomState
) -> Iterator[tuple[FitState, jax.Array]]:
    """Yield the steps of epochs without end."""
    while True:
        for reached, objective in epoch(state, task, settings, generator):
            yield reached, objective
        state = reached


def _record(
    history: History, state: FitState, watched: SequenceTask, objective: float, held_out: bool
) -> dict[str, float]:
    """Add a line to the history: numbers of the network, and loss and scores on held-out sequences."""
    decision, numbers = state.network.watch(state.model, watched.sequences)
    entry = {"steps": state.steps, "objective": objective}
    if held_out:
        entry["validation_loss"] = state.network.mean_loss(decision, watched.labels, watched.weights)
        entry |= watched.scores(decision)
    entry |= numbers
    for name, number in entry.items():
        history.setdefault(name, []).append(number)
    return entry


def _bytes_of(sequences: Sequences) -> int:
    """Bytes of the vectors of sequences; a vector that several have counts once."""
    rows = min(len(sequences.table), len(sequences.ids))
    return int(rows * sequences.dim * sequences.table.dtype.itemsize)
