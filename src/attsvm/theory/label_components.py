"""The tokens that training with the token loss keeps, and what is known of its direction."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attsvm.next_token.of_problem import ProblemGraph
from attsvm.norms import Norm, Nuclear
from attsvm.optimizers import Limit, Standing
from attsvm.problem import Problem
from attsvm.theory.standing import EUCLIDEAN, known_limit
from attsvm.theory.trained import Trained
from attsvm.training import Run

NEXT_TOKEN = "Li, Huang, Ildiz, Rawat and Oymak (2024), Mechanics of Next Token Prediction with Self-Attention"

MEASURED_AT = "next-token-norms, 20 graphs each with n = 6, T = 4, K = 6, d = 8"

Known = tuple[Standing, str]
"""What is known, for acyclic and for cyclic graphs."""

EUCLIDEAN_STANDING: tuple[Known, Known] = (
    (Standing.PROVED, f"{NEXT_TOKEN}: global convergence for graphs without cycles"),
    (Standing.MEASURED, f"{NEXT_TOKEN}: graphs with cycles"),
)

MIRROR_STANDING: tuple[Known, Known] = (
    (Standing.MEASURED, f"no theorem; measured: 1 − correlation at most 2e-4 for p = 1.75 and 3 ({MEASURED_AT})"),
    (
        Standing.MEASURED,
        "no theorem; measured: correlation above 0.98 off the cyclic subspace after steps of constant length for "
        f"p = 1.75 and 3, and the graph-SVM in this norm is the nearest of four ({MEASURED_AT})",
    ),
)

FACTORS_STANDING: tuple[Known, Known] = (
    (
        Standing.MEASURED,
        f"no theorem; measured: 1 − correlation at most 2e-4, steps relative to the norm ({MEASURED_AT})",
    ),
    (
        Standing.CONJECTURE,
        "no theorem; measured: median correlation 0.944 off the cyclic subspace after short steps, and another norm is "
        f"nearer for 8 of 20 graphs ({MEASURED_AT})",
    ),
)


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
    proved = known.standing is Standing.PROVED
    if used != known.norm or known.rank is not None or not (proved or used == Nuclear()):
        return Limit(used, source="no theorem; by analogy with the limit of a run that selects one token")
    if used == EUCLIDEAN:
        standing, source = EUCLIDEAN_STANDING[cyclic]
    else:
        standing, source = (MIRROR_STANDING if proved else FACTORS_STANDING)[cyclic]
    return Limit(used, standing, source)
