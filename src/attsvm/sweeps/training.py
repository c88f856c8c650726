"""Training of a block: initial weights of each trial, and continuation of the undecided ones."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.sweeps.sources import Drawn
from attsvm.theory.kinds import SATURATED, largest_dropped
from attsvm.training import Run, train
from attsvm.training.attention import Attention, parse_attention

SMALLEST_BATCH = 8

_PER_TRIAL = ("weights", "selected", "probability", "loss", "step", "precise_until", "log_scale", "status")


class Trained(NamedTuple):
    """A run, and when its trials were decided.

    ``decided`` (B,) is the first recorded step from which on every softmax of the trial is saturated at all records, -1
    for an undecided trial. Continued trials are looked at once, at the end of each continuation. The history of the run
    ends where the first continuation begins.
    """

    run: Run
    decided: np.ndarray


def train_until_decided(problem: Problem, arguments: Mapping[str, Any], seed: int, budget: int) -> Trained:
    """Train the problems of a batch; double the steps of undecided trials until they are decided or ``budget`` ends."""
    run = _train(problem, arguments, seed)
    decided = _decided(problem, run)
    made = run.steps
    options = {name: value for name, value in arguments.items() if name not in ("init", "steps", "record")}
    while made < budget:
        goes_on = (decided < 0) & (np.asarray(run.status) == Status.FINISHED.value)
        left = np.flatnonzero(goes_on)
        if not left.size:
            break
        chosen, steps = packed(left, len(goes_on)), min(made, budget - made)
        part = problem[chosen]
        longer = _train(part, {**options, "init": run[chosen], "steps": steps, "record": 1}, seed)
        run, made = _merged(run, left, longer), made + steps
        decided[left] = np.where(_dropped(part, longer)[: left.size] <= SATURATED, made, -1)
    return Trained(run, decided)


def packed(left: np.ndarray, width: int) -> np.ndarray:
    """Trials of a block of this width, repeated to one of few numbers, so that few programs are compiled.

    The packing is that of the block alone, so that the bits are.
    """
    return np.resize(left, min(max(SMALLEST_BATCH, 1 << (left.size - 1).bit_length()), width))


def _train(problem: Problem, arguments: Mapping[str, Any], seed: int) -> Run:
    """A run to its end: ``train`` returns an interrupted run at Ctrl-C, which is no result of a trial."""
    run = train(problem, **arguments, seed=seed)
    if np.any(np.asarray(run.status) == Status.INTERRUPTED.value):
        raise KeyboardInterrupt
    return run


def _dropped(problem: Problem, run: Run) -> np.ndarray:
    """The largest probability of a token that is not selected, of each trial."""
    found = largest_dropped(problem, run.weights)
    return np.asarray(found.reshape(len(found), -1).max(axis=1))


def _decided(problem: Problem, run: Run) -> np.ndarray:
    """The first recorded step from which on the probabilities of all selected tokens are saturated."""
    kept = run.history["probability"]
    padded = run.history["selected"] < 0
    saturated = (padded | (kept >= 1 - SATURATED)).reshape(*kept.shape[:2], -1).all(axis=2)
    # True from here on: cumulative, from the last record backwards
    lasting = np.flip(np.logical_and.accumulate(np.flip(saturated, 0), axis=0), 0)
    first = run.history["steps"][lasting.argmax(axis=0)]
    now = _dropped(problem, run) <= SATURATED
    return np.where(now, np.where(lasting.any(axis=0), first, run.steps), -1)


def _merged(run: Run, left: np.ndarray, longer: Run) -> Run:
    """The run, with the trials of ``left`` replaced by the first ones of a longer run."""

    def put(old: Any, new: Any) -> np.ndarray:
        array = np.array(old)
        array[left] = np.asarray(new)[: left.size]
        return array

    changed: dict[str, Any] = {name: put(getattr(run, name), getattr(longer, name)) for name in _PER_TRIAL}
    for name in ("parameters", "optimizer_state"):
        old, new = getattr(run, name), getattr(longer, name)
        changed[name] = {key: put(array, new[key]) for key, array in old.items()}
    return replace(run, **changed)


Draw = Callable[[Attention, Problem, np.random.Generator], dict[str, np.ndarray]]


def _default(layer: Attention, problem: Problem, generator: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = layer.shapes_of_heads(problem)
    drawn = layer.initial(problem, generator, problem.heads_shape)
    # equal weights of all heads may be drawn once
    return {name: np.broadcast_to(array, shapes[name]) for name, array in drawn.items()}


def _uniform(layer: Attention, problem: Problem, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Entries U(−d^−1/2, d^−1/2), as in the published experiments."""
    of_one, of_heads = layer.shapes(problem), layer.shapes_of_heads(problem)
    return {
        name: generator.uniform(-(of_one[name][0] ** -0.5), of_one[name][0] ** -0.5, shape)
        for name, shape in of_heads.items()
    }


STARTS: dict[str | None, Draw] = {None: _default, "uniform": _uniform}
"""What ``init`` can be: None for the default of :func:`attsvm.train`, or "uniform"."""


def start(drawn: Drawn, arguments: Mapping[str, Any], generators: list[np.random.Generator]) -> dict[str, np.ndarray]:
    """The initial parameters of the attention, with the trials in front, and zeros in coordinates that are zero.

    Raises ProblemError if ``init`` is none of :data:`STARTS`.
    """
    init = arguments.get("init")
    if not (init is None or isinstance(init, str)) or init not in STARTS:
        raise ProblemError(f"init: expected 'uniform' or None in a sweep, got {init!r}")
    problem = drawn.problem if drawn.unpadded is None else drawn.unpadded
    layer, trained = (
        parse_attention(arguments.get("attention"), x, arguments.get("rank")) for x in (problem, drawn.problem)
    )
    parameters = [STARTS[init](layer, problem, generator) for generator in generators]
    shapes = trained.shapes(drawn.problem)
    return {name: filled_up(np.stack([each[name] for each in parameters]), shapes[name]) for name in parameters[0]}


def filled_up(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array with zeros behind its entries, so that its last axes have a shape."""
    missing = [more - length for length, more in zip(array.shape[-len(shape) :], shape, strict=True)]
    return np.pad(array, [(0, 0)] * (array.ndim - len(shape)) + [(0, number) for number in missing])
