"""The start and the optimizer that conditions are computed for: those of a run, or those given."""

from typing import Any

import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.losses import OutputLoss
from attsvm.measures import attention_of, check_weights
from attsvm.optimizers import Rule, parse_optimizer
from attsvm.problem import Problem
from attsvm.theory.smoothness import loss_values, scores_of_queries
from attsvm.training import Run
from attsvm.training.run import optimizer_of

AGREEMENT = 1e-9
"""The loss of a run may differ by this, relative to the largest, from that computed from its weights."""


def given_start(
    problem: Problem, init: Any, loss: OutputLoss, optimizer: str | optax.GradientTransformation | Rule | None
) -> tuple[np.ndarray, optax.GradientTransformation | None]:
    """The initial weights, and the optimizer; zeros and None if they are not given.

    Raises ProblemError if they do not fit, or the run is of another objective.
    """
    given = None if optimizer is None else parse_optimizer(optimizer)
    if isinstance(init, Run):
        weights = _first_weights(problem, init, loss)
        return weights, optimizer_of(init) if given is None else given
    core = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    return np.zeros(problem.batch_shape + core) if init is None else check_weights(problem, init), given


def _first_weights(problem: Problem, run: Run, loss: OutputLoss) -> np.ndarray:
    if not {"W", "p"} & set(run.parameters):
        raise ProblemError(f"init: expected a run of W or p, got one of {run.attention} attention")
    if run.history["steps"][0] != 0:
        raise ProblemError(f"init: expected a run whose history starts at step 0, got {run.history['steps'][0]}")
    for record in (0, -1):
        weights = check_weights(problem, run.history["weights"][record])
        expected, found = _mean_loss(problem, weights, loss), run.history["loss"][record]
        if (
            run.history["log_scale"][record].any()
            or np.abs(expected - found).max() > AGREEMENT * np.abs(expected).max()
        ):
            raise ProblemError(
                f"init: expected a run of the {loss.name} loss of this problem, without penalty and with the head "
                "fixed, got one with other losses"
            )
    return check_weights(problem, run.history["weights"][0])


def _mean_loss(problem: Problem, weights: np.ndarray, loss: OutputLoss) -> np.ndarray:
    gamma, active = scores_of_queries(problem), problem.canonical.active
    outputs = np.sum(attention_of(problem, weights) * np.where(np.isfinite(gamma), gamma, 0.0), axis=-1)
    total = np.sum(np.where(active, loss_values(loss, outputs), 0.0), axis=(-2, -1))
    return np.asarray(total / active.sum(axis=(-2, -1)))
