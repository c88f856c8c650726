"""Training of a block: the initial weights of each trial, and which trials are decided."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.theory import SATURATED, largest_dropped
from attsvm.training import Attention, Run, parse_attention, train


def train_to_the_end(problem: Problem, arguments: Mapping[str, Any], seed: int) -> Run:
    """Train a block: ``train`` returns an interrupted run at Ctrl-C, which is no result of a trial."""
    run = train(problem, **arguments, seed=seed)
    if np.any(np.asarray(run.status) == Status.INTERRUPTED.value):
        raise KeyboardInterrupt
    return run


def first_decided(problem: Problem, run: Run) -> np.ndarray:
    """The first recorded step from which on every softmax of a trial is saturated, shape (B,).

    It is -1 for an undecided trial, whose selection can still change.
    """
    dropped = largest_dropped(problem, run.weights)
    now = dropped.reshape(len(dropped), -1).max(axis=1) <= SATURATED
    kept = run.history["probability"]
    padded = run.history["selected"] < 0
    saturated = (padded | (kept >= 1 - SATURATED)).reshape(*kept.shape[:2], -1).all(axis=2)
    # True from here on: cumulative, from the last record backwards
    lasting = np.flip(np.logical_and.accumulate(np.flip(saturated, 0), axis=0), 0)
    first = run.history["steps"][lasting.argmax(axis=0)]
    return np.where(now, np.where(lasting.any(axis=0), first, run.steps), -1)


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


def start(problem: Problem, arguments: Mapping[str, Any], generators: list[np.random.Generator]) -> dict[str, Any]:
    """The initial parameters of the attention, with the trials in front.

    Raises ProblemError if ``init`` is none of :data:`STARTS`.
    """
    init = arguments.get("init")
    if not (init is None or isinstance(init, str)) or init not in STARTS:
        raise ProblemError(f"init: expected 'uniform' or None in a sweep, got {init!r}")
    layer = parse_attention(arguments.get("attention"), problem, arguments.get("rank"))
    parameters = [STARTS[init](layer, problem, generator) for generator in generators]
    return {name: np.stack([each[name] for each in parameters]) for name in parameters[0]}
