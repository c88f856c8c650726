"""The tokens that training with the token loss keeps, and what is known of its direction."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attsvm.next_token.of_problem import ProblemGraph
from attsvm.norms import Norm
from attsvm.optimizers import Limit, Standing
from attsvm.problem import Problem
from attsvm.theory.standing import EUCLIDEAN, known_limit
from attsvm.theory.trained import Trained
from attsvm.training import Run

NEXT_TOKEN = "Li, Huang, Ildiz, Rawat and Oymak (2024), Mechanics of Next Token Prediction with Self-Attention"


class LabelComponents(NamedTuple):
    """The kept sets of the graph-SVM, the finite part for the ℓ2 norm, and the limit."""

    selected: Bool[np.ndarray, "*queries T"]
    finite: np.ndarray | None
    limit: Limit


def label_components(problem: Problem, run: Run, part: Trained, used: Norm) -> LabelComponents:
    """What the graphs of the problems predict for a run, in its trained parameters ``part``.

    Raises
    ------
    ProblemError
        If equal tokens have different keys, or a context does not contain its label.
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
    limit = _limit(run, used, cyclic=any(graph.graph.is_cyclic for graph in graphs.values()))
    return LabelComponents(
        np.broadcast_to(selected, (*run.batch_shape, *first.shape)),
        np.broadcast_to(finite, (*run.batch_shape, *finite.shape[len(batch) :])) if used == EUCLIDEAN else None,
        limit,
    )


def _limit(run: Run, used: Norm, *, cyclic: bool) -> Limit:
    known = known_limit(run)
    if not used == known.norm == EUCLIDEAN or known.standing is not Standing.PROVED:
        return Limit(used, source="no theorem; by analogy with the limit of a run that selects one token")
    if cyclic:
        return Limit(used, Standing.MEASURED, f"{NEXT_TOKEN}, section on graphs with cycles")
    return Limit(used, Standing.PROVED, f"{NEXT_TOKEN}, global convergence for graphs without cycles")
