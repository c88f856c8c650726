"""The loop: shuffled batches, a look at the validation sequences now and then, and the best parameters kept."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import jax
import numpy as np
import optax

from attsvm import optimizers
from attsvm.datasets.sequences import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.forward import ROWS_AT_ONCE, Model, Output, effective_number, forward
from attsvm.estimator.steps import Parameters, gather, step

CELLS = 1 << 22
"""Padded tokens of a batch times numbers a token; a batch with longer sequences holds fewer of them."""

AVERAGED = 100
"""Steps that the average of the parameters reaches back."""

CHECK_EVERY = 25
"""Steps between two looks at the validation sequences."""


@dataclass(frozen=True)
class Coordinates:
    """The coordinates that training sees: tokens less their mean, over one number for all entries.

    The softmax does not see a shift and the intercept takes it up; a scale that all entries share leaves every
    direction, and so every Att-SVM, as it is. Results do not depend on either, and one learning rate serves all data.

    Attributes
    ----------
    centre : ndarray, shape (d,)
    scale : float
        Root mean square of the centred entries, or 1 where they all are 0.
    """

    centre: np.ndarray
    scale: float

    @classmethod
    def of(cls, sequences: Sequences) -> "Coordinates":
        """Of the tokens as often as they occur."""
        table, counts = sequences.table, np.bincount(sequences.ids, minlength=len(sequences.table)) / len(sequences.ids)
        centre = counts @ table.astype(np.float64, copy=False)
        used = np.flatnonzero(counts)
        blocks = np.array_split(used, 1 + len(used) // ROWS_AT_ONCE)
        # squares of large or small entries leave the range of a float
        largest = max(np.abs(table[block] - centre).max() for block in blocks)
        if largest == 0:
            return cls(centre, 1.0)
        mean = sum(counts[block] @ (((table[block] - centre) / largest) ** 2).mean(axis=1) for block in blocks)
        return cls(centre, float(largest * np.sqrt(mean)))

    def model(self, parameters: Parameters) -> Model:
        """Parameters as what they do to tokens as they were given."""
        p, V, b = (np.asarray(parameters[name], dtype=np.float64) for name in ("p", "V", "b"))
        head = V / self.scale
        return Model(p / self.scale, head, b - head @ self.centre)


@dataclass(frozen=True, eq=False)
class State:
    """Where training stands; what ``partial_fit`` goes on from.

    Attributes
    ----------
    coordinates : Coordinates
    parameters : dict of str to ndarray
        In these coordinates.
    average : dict of str to ndarray
        Their average over about the last ``AVERAGED`` steps: what predicts, since the last parameters move to and fro
        with the last batches.
    optimizer : pytree of ndarray
        The optimiser's state.
    steps : int
        Taken since the start.
    seen : int
        Sequences that ``partial_fit`` was given in all, or that a fit was.
    """

    coordinates: Coordinates
    parameters: Parameters
    average: Parameters
    optimizer: Any
    steps: int = 0
    seen: int = 0

    @property
    def model(self) -> Model:
        """The average as what it does to tokens as they were given."""
        return self.coordinates.model(self.average)


@dataclass(frozen=True)
class Task:
    """Sequences to fit.

    Attributes
    ----------
    sequences : Sequences
        n sequences.
    labels : ndarray, shape (n,)
        Class numbers.
    weights : ndarray, shape (n,)
    num_classes : int
    """

    sequences: Sequences
    labels: np.ndarray
    weights: np.ndarray
    num_classes: int

    def __getitem__(self, rows: np.ndarray) -> "Task":
        return Task(self.sequences[rows], self.labels[rows], self.weights[rows], self.num_classes)

    @property
    def targets(self) -> np.ndarray:
        """Labels as the loss wants them: ±1 for two classes."""
        return 2.0 * self.labels - 1.0 if self.num_classes == 2 else self.labels

    def loss(self, decision: np.ndarray) -> float:
        """Weighted mean loss of outputs (n, C)."""
        if self.num_classes == 2:
            losses = np.logaddexp(0.0, -self.targets * decision[:, 0])
        else:
            losses = np.logaddexp.reduce(decision, axis=1) - decision[np.arange(len(decision)), self.labels]
        return float(np.average(losses, weights=self.weights) if self.weights.any() else losses.mean())

    def accuracy(self, decision: np.ndarray) -> float:
        """Share of sequences classified correctly."""
        found = decision[:, 0] > 0 if self.num_classes == 2 else decision.argmax(axis=1)
        return float((found == self.labels).mean())


@dataclass(frozen=True)
class Settings:
    """How to train; see :class:`attsvm.AttentionClassifier`."""

    optimizer: optax.GradientTransformation
    alpha: float
    batch_size: int
    max_steps: int
    tol: float
    n_iter_no_change: int
    callback: Callable[[dict[str, float]], Any] | None = None
    verbose: bool = False


@dataclass
class Fitted:
    """What training came to."""

    state: State
    status: str
    kept_step: int
    history: dict[str, list[float]] = field(default_factory=dict)


def start(task: Task, optimizer: optax.GradientTransformation, coordinates: Coordinates | None = None) -> State:
    """Uniform attention and a head of zeros: the mean-token model that has learnt nothing yet."""
    coordinates = coordinates or Coordinates.of(task.sequences)
    rows, dtype = task.num_classes if task.num_classes > 2 else 1, task.sequences.table.dtype
    parameters = {
        "p": np.zeros(task.sequences.dim, dtype),
        "V": np.zeros((rows, task.sequences.dim), dtype),
        "b": np.zeros(rows, dtype),
    }
    return begin(State(coordinates, parameters, parameters, None), optimizer)


def begin(state: State, optimizer: optax.GradientTransformation) -> State:
    """The same parameters with a fresh optimiser."""
    with precision(state.parameters["p"].dtype):
        return replace(state, optimizer=jax.device_get(optimizer.init(state.parameters)), steps=0, seen=0)


def precision(dtype: Any) -> Any:
    """Float64 where the tokens are."""
    return jax.enable_x64(dtype == np.float64)


def epoch(
    state: State, task: Task, settings: Settings, generator: np.random.RandomState
) -> Iterator[tuple[State, float]]:
    """One pass over the sequences in a new order, a step a batch: the state after it, the objective before it."""
    dtype = task.sequences.table.dtype
    centre, targets, alpha = state.coordinates.centre.astype(dtype), task.targets, settings.alpha / state.seen
    for chosen in _batches(task, settings.batch_size, generator):
        batch = gather(task.sequences, chosen, targets, task.weights, centre, dtype.type(state.coordinates.scale))
        with precision(dtype):
            parameters, average, optimizer, value = step(
                state.parameters,
                state.average,
                state.optimizer,
                batch,
                dtype.type(alpha),
                dtype.type(max(1 / (state.steps + 1), 1 / AVERAGED)),
                settings.optimizer,
            )
        state = replace(state, parameters=parameters, average=average, optimizer=optimizer, steps=state.steps + 1)
        yield state, value


def train(
    state: State, task: Task, validation: Task | None, settings: Settings, generator: np.random.RandomState
) -> Fitted:
    """Train until nothing improves: the loss on the validation sequences, or the objective where there are none.

    Raises
    ------
    ProblemError
        If training diverges.
    """
    watched = validation or task[generator.permutation(len(task.labels))[:1000]]
    state = replace(state, seen=len(task.labels))
    history: dict[str, list[float]] = {}
    _record(history, state, watched, np.nan, validation is not None)
    best, best_value, last_improved, values = state, np.inf, 0, []
    for reached, objective in itertools.islice(_steps(state, task, settings, generator), settings.max_steps):
        values.append(objective)
        if reached.steps % CHECK_EVERY and reached.steps < settings.max_steps:
            continue
        mean, values = float(np.mean(values)), []
        if not all(np.isfinite(x).all() for x in [mean, *jax.tree.leaves(reached.parameters)]):
            raise ProblemError(f"learning_rate: training diverged within {reached.steps} steps; a smaller one wanted")
        entry = _record(history, reached, watched, mean, validation is not None)
        value = mean if validation is None else entry["validation_loss"]
        if value < best_value - settings.tol:
            last_improved = reached.steps
        if value < best_value or validation is None:
            best, best_value = reached, min(value, best_value)
        if settings.verbose:
            print(", ".join(f"{name} {number:.4g}" for name, number in entry.items()))
        status = "max_steps"
        if settings.callback is not None and settings.callback(entry):
            status = "interrupted"
            break
        if reached.steps - last_improved >= settings.n_iter_no_change:
            status = "converged"
            break
    kept = replace(
        best,
        parameters=jax.device_get(best.parameters),
        average=jax.device_get(best.average),
        optimizer=jax.device_get(best.optimizer),
        steps=reached.steps,
    )
    return Fitted(kept, status, best.steps, history)


def _steps(
    state: State, task: Task, settings: Settings, generator: np.random.RandomState
) -> Iterator[tuple[State, float]]:
    """Pass after pass, without end."""
    while True:
        for reached, objective in epoch(state, task, settings, generator):
            yield reached, objective
        state = reached


def _record(
    history: dict[str, list[float]], state: State, watched: Task, objective: float, held_out: bool
) -> dict[str, float]:
    """Add a line to the history: how attention concentrates, and what it is worth on sequences held out."""
    output: Output = forward(state.model, watched.sequences)
    effective = effective_number(output.attention, watched.sequences)
    low, median, high = np.quantile(effective, [0.1, 0.5, 0.9])
    entry = {"steps": state.steps, "objective": objective}
    if held_out:
        entry |= {
            "validation_loss": watched.loss(output.decision),
            "validation_accuracy": watched.accuracy(output.decision),
        }
    entry |= {"effective_low": float(low), "effective_median": float(median), "effective_high": float(high)}
    for name, number in entry.items():
        history.setdefault(name, []).append(number)
    return entry


@cache
def named_optimizer(name: str, learning_rate: float, p: float) -> optax.GradientTransformation:
    """An optimiser by name; equal arguments give the same one, and share what is compiled."""
    if name == "adam":
        return optax.adam(learning_rate)
    if name == "mirror_descent":
        return optimizers.mirror_descent(learning_rate, p, normalize=False)
    return optimizers.gradient_descent(learning_rate)


def _batches(task: Task, batch_size: int, generator: np.random.RandomState) -> Iterator[np.ndarray]:
    order = generator.permutation(len(task.labels))
    lengths = task.sequences.lengths[order]
    numbers = 1 + (task.num_classes if task.num_classes > 2 else 1)
    # equal parts: a last batch of a few sequences would take as long a step as the others
    parts = -(-len(order) // batch_size)
    size = -(-len(order) // parts)
    begin = 0
    while begin < len(order):
        longest = np.maximum.accumulate(lengths[begin : begin + size])
        fits = longest * np.arange(1, len(longest) + 1) * numbers <= CELLS
        end = begin + max(1, int(fits.sum()))
        yield order[begin:end]
        begin = end
