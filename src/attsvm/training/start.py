"""The initial parameters: those given as ``init``, or those of the attention."""

from collections.abc import Collection
from typing import Any

import numpy as np

from attsvm._utils.checks import weights_of
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training.attention import Attention
from attsvm.training.run import Run

Arrays = dict[str, np.ndarray]


def starting_point(
    problem: Problem, layer: Attention, of_head: Arrays, init: Any, seed: int, *, train_head: bool
) -> tuple[Arrays, tuple[int, ...]]:
    """Parameters of the attention and of a trained head, one row per trial, and the batch axes of the run."""
    batch, head_names = problem.model_shape, tuple(of_head) if train_head else ()
    shapes = {name: problem.heads_shape + shape for name, shape in layer.shapes(problem).items()}
    shapes |= {name: of_head[name].shape[len(batch) :] for name in head_names}
    given = _read_init(init, list(layer.shapes(problem)), list(of_head), head_names)
    lead = batch
    for name, array in given.items():
        core = shapes[name]
        axes = array.shape[: array.ndim - len(core)]
        if array.ndim < len(core) or array.shape[len(axes) :] != core:
            raise ProblemError(f"init: expected {name} of shape (..., {str(core)[1:-1]}), got {array.shape}")
        if not np.isfinite(array).all():
            raise ProblemError(f"init: expected finite entries of {name}")
        if axes and axes[len(axes) - len(batch) :] != batch:
            raise ProblemError(
                f"init: expected axes of {name} that end with the batch axes {batch} of the problem, got {axes}"
            )
        lead = axes if len(axes) > len(lead) else lead
    generator = np.random.default_rng(seed)
    start = {name: of_head[name] for name in head_names}
    if set(given) < set(layer.shapes(problem)) | set(start):
        start |= layer.initial(problem, generator, lead + problem.heads_shape)
    values = {}
    for name, core in shapes.items():
        array = given[name] if name in given else start[name]
        try:
            values[name] = np.broadcast_to(array, lead + core).reshape(-1, *core)
        except ValueError:
            raise ProblemError(f"init: expected {name} of shape {lead + core}, got {array.shape}") from None
    return values, lead


def initial_exponent(init: Any, num_trained: int, batch: tuple[int, ...]) -> np.ndarray:
    """The power of two by which each trial's trained parameters of the attention are multiplied: 0, or a run's."""
    if not isinstance(init, Run) or not num_trained:
        return np.zeros(int(np.prod(batch, dtype=np.int64)), np.int64)
    power = np.rint(np.asarray(init.log_scale) / (num_trained * np.log(2.0)))
    return np.broadcast_to(power.astype(np.int64), batch).reshape(-1)


def _read_init(init: Any, of_attention: list[str], of_head: list[str], head_names: tuple[str, ...]) -> Arrays:
    if init is None:
        return {}
    if isinstance(init, Run):
        kept = {name: x for name, x in init.parameters.items() if name in of_attention or name in head_names}
        missing = [name for name in of_attention if name not in kept]
        if missing:
            raise ProblemError(f"init: expected a run with {missing[0]}, got one of {init.attention} attention")
        return kept
    if isinstance(init, dict):
        unknown = [name for name in init if name not in of_attention + of_head]
        if unknown:
            raise ProblemError(f"init: expected parameters {', '.join(of_attention + of_head)}, got {unknown[0]!r}")
        fixed = [name for name in init if name in of_head and name not in head_names]
        if fixed:
            raise ProblemError(f"init: expected train_head=True with {fixed[0]}, got a head that is not trained")
        parts = init
    elif len(of_attention) == 1:
        parts = {of_attention[0]: init}
    else:
        if not (isinstance(init, tuple | list) and len(init) == len(of_attention)):
            raise ProblemError(
                f"init: expected a tuple ({', '.join(of_attention)}), a dict or a Run, got {type(init).__name__}"
            )
        parts = dict(zip(of_attention, init, strict=True))
    return {name: np.array(weights_of(x, "init")) for name, x in parts.items()}


def described_start(init: Any, of_attention: Collection[str]) -> str:
    """Where the initial parameters of the attention come from; those that are multiplied with each other are drawn."""
    if init is None:
        return "random" if len(of_attention) > 1 else "zeros"
    return "run" if isinstance(init, Run) else "given"
