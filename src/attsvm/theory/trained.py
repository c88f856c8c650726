"""The problem whose Att-SVM a run converges to, given which parameters the run trained."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training import Run, parse_attention


class TrainedPart(NamedTuple):
    """The problem of the attention's trained parameters, and their weights along a run."""

    problem: Problem  # that of the run, unless parameters of the attention are fixed
    history: np.ndarray  # shape (R, *batch_shape, ...), the weights of that problem at the records of the run
    whole: Callable[[np.ndarray], np.ndarray]  # from weights of that problem to those of the run
    trains_head: bool  # whether the run trained parameters of the head, too
    attention: str  # the parametrization of that problem


def trained_part(problem: Problem, run: Run) -> TrainedPart:
    """The run in its trained parameters.

    Raises ProblemError if the run did not train its attention, or does not fit the problem.
    """
    layer = parse_attention(run.attention, problem, None)
    names = list(layer.shapes(problem))
    fixed = {name: run.parameters[name] for name in names if name in run.fixed}
    if len(fixed) == len(names):
        raise ProblemError(f"run: expected one that trains the attention, got one with {', '.join(names)} fixed")
    reduced = layer.reduced(problem, fixed)
    history = run.history["weights"]
    if fixed:
        # the weights of W, p, K or Q alone, on the keys or queries that the fixed parameters give
        history = reduced.weights({name: run.history[name] for name in names if name not in fixed})
    trains_head = any(name in run.history for name in run.parameters if name not in names)
    return TrainedPart(reduced.problem, history, reduced.whole, trains_head, reduced.attention.name)
