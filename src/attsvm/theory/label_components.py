"""The tokens that training with the token loss keeps."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attsvm.next_token.of_problem import ProblemGraph
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.theory.limit_of_run import EUCLIDEAN
from attsvm.theory.trained import Trained
from attsvm.training import Run


class LabelComponents(NamedTuple):
    """The kept sets of the graph-SVM, the finite part for the ℓ2 norm, and whether a graph has a cycle."""

    selected: Bool[np.ndarray, "*queries T"]
    finite: np.ndarray | None
    cyclic: bool


def label_components(problem: Problem, run: Run, part: Trained, used: Norm) -> LabelComponents:
    """What the graphs of the problems predict for a run, in its trained parameters ``part``.

    Raises ProblemError if equal tokens have different keys, or a context does not contain its label.
    """
    batch = problem.batch_shape
    graphs = {index: ProblemGraph.of(problem[index] if batch else problem) for index in np.ndindex(batch)}
    first = next(iter(graphs.values()))
    selected = np.empty((*batch, *first.shape), bool)
    finite = np.zeros((*batch, *part.history.shape[1 + len(run.batch_shape) :]))
    for index, graph in graphs.items():
        selected[index] = graph.kept()
        minimiser = graph.finite_minimiser(part.problem[index] if batch else part.problem)
        finite[index] = minimiser.weights.reshape(finite.shape[len(batch) :])
    return LabelComponents(
        np.broadcast_to(selected, (*run.batch_shape, *first.shape)),
        np.broadcast_to(finite, (*run.batch_shape, *finite.shape[len(batch) :])) if used == EUCLIDEAN else None,
        any(graph.graph.is_cyclic for graph in graphs.values()),
    )
