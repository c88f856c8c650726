"""Initial weights of the trials of a sweep, each drawn with the generator of its trial."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.sweeps.format import Drawn
from attsvm.training.attention import Attention, parse_attention

Draw = Callable[[Attention, Problem, np.random.Generator], dict[str, np.ndarray]]


def _default(layer: Attention, problem: Problem, generator: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = layer.shapes(problem)
    drawn = layer.initial(problem, generator, problem.heads_shape)
    # equal weights of all heads may be drawn once
    return {name: np.broadcast_to(array, problem.heads_shape + shapes[name]) for name, array in drawn.items()}


def _uniform(layer: Attention, problem: Problem, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Entries U(−d^−1/2, d^−1/2), as in the published experiments."""
    return {
        name: generator.uniform(-(shape[0] ** -0.5), shape[0] ** -0.5, problem.heads_shape + shape)
        for name, shape in layer.shapes(problem).items()
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
