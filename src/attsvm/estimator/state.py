"""The state of training."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax

from attsvm._utils.contractions import quick_to_compile
from attsvm._utils.jax_devices import default_device
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import Network
from attsvm.estimator.steps import Parameters
from attsvm.estimator.task import Task


@dataclass(frozen=True, eq=False)
class State:
    """Parameters and the state of the optimizer, from which ``partial_fit`` continues."""

    network: Network
    coordinates: Coordinates
    parameters: Parameters  # in these coordinates
    # their average over about the last 100 steps, which predicts, because single steps fluctuate with their batches
    average: Parameters
    optimizer: Any  # the state of the optimizer
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

    def on_host(self, steps: int) -> "State":
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
    task: Task,
    optimizer: optax.GradientTransformation,
    generator: np.random.RandomState,
    by_column: bool,
) -> State:
    """The initial state of a network for these sequences; ``by_column`` scales each column by its own spread."""
    coordinates = Coordinates.of(task.sequences, by_column)
    rows, dtype = task.num_classes if task.num_classes > 2 else 1, task.sequences.table.dtype
    parameters = network.initial(task.sequences.dim, rows, dtype, generator)
    return begin(State(network, coordinates, parameters, parameters, None), optimizer)


def begin(state: State, optimizer: optax.GradientTransformation) -> State:
    """The same parameters with a new optimizer."""
    with precision(state.parameters["b"].dtype):
        return replace(
            state,
            optimizer=jax.device_get(_initial(optimizer, default_device())(state.parameters)),
            steps=0,
            num_sequences=0,
            full=0,
        )


@lru_cache(maxsize=32)
def _initial(optimizer: optax.GradientTransformation, device: jax.Device) -> Callable[[Parameters], Any]:
    """The initial state of an optimizer as one program; without it each of its operations is compiled for itself."""
    return jax.jit(optimizer.init, compiler_options=quick_to_compile())


def precision(dtype: Any) -> AbstractContextManager[Any]:
    """A context with float64 in JAX if the tokens are float64."""
    context: AbstractContextManager[Any] = jax.enable_x64(dtype == np.float64)
    return context
