"""The problem whose Att-SVM a run converges to, given which parameters the run trained."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.theory.conditions import Hypothesis, at_most
from attsvm.training import Run, parse_attention

VANISHED = 1e-3
"""The largest |b|/‖KQ'‖ of biases that count as vanished."""


class TrainedPart(NamedTuple):
    """The problem of the attention's trained parameters, and their weights along a run."""

    problem: Problem  # that of the run, unless parameters of the attention are fixed, or biases vanish
    weights: np.ndarray  # shape (*batch_shape, ...), those of that problem at the end of the run
    history: np.ndarray  # shape (R, *batch_shape, ...), the weights of that problem at the records of the run
    whole: Callable[[np.ndarray], np.ndarray]  # from weights of that problem to those of the run
    trains_head: bool  # whether the run trained parameters of the head, too
    attention: str  # the parametrization of that problem, with what is added to its logits


def trained_part(problem: Problem, run: Run) -> TrainedPart:
    """The run in its trained parameters.

    Raises ProblemError if the run did not train its attention, or does not fit the problem.
    """
    layer = parse_attention(run.attention, problem, None)
    names = list(layer.shapes(problem))
    fixed = {name: run.parameters[name] for name in names if name in run.fixed}
    if len(fixed) == len(names):
        raise ProblemError(f"run: expected trained attention, got a run with {', '.join(names)} fixed")
    reduced = layer.reduced(problem, fixed)
    history, weights = run.history["weights"], run.weights
    if fixed:
        # the weights of W, p, K or Q alone, on the keys or queries that the fixed parameters give
        history = reduced.weights({name: run.history[name] for name in names if name not in fixed})
        weights = history[-1]
    elif reduced.problem is not problem:
        # of block-diagonal weights KQ' alone: the biases vanish beside it
        history, weights = (problem.terms.split(x)[0] for x in (history, weights))
    trains_head = any(name in run.history for name in run.parameters if name not in names)
    attention = reduced.attention.name + (f" with {problem.other_terms}" if problem.other_terms else "")
    return TrainedPart(reduced.problem, weights, history, reduced.whole, trains_head, attention)


def biases_vanish(problem: Problem, run: Run) -> list[Hypothesis]:
    """State that trained biases are negligible beside KQ', whose degree is larger; nothing for other runs."""
    if run.attention != "factored" or not problem.num_biases:
        return []
    axes = tuple(range(len(run.batch_shape), run.weights.ndim))
    W, b = problem.terms.split(run.weights)
    part = np.sqrt(np.sum(b**2, axis=axes[:-1]) / np.maximum(np.sum(W**2, axis=axes), np.finfo(float).tiny))
    statement = "beside KQ' of degree 2 the biases b of degree 1 vanish, so that the limit has b = 0: |b| over its norm"
    return [at_most("biases_vanish", statement, part, VANISHED)]
