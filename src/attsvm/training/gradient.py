"""The gradient of the training loss at given weights."""

from collections.abc import Callable
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Float

from attsvm.heads import Linear
from attsvm.losses import parse_loss
from attsvm.problem import Problem
from attsvm.training.attention import parse_attention
from attsvm.training.engine.objective import Evaluation, Objective
from attsvm.training.engine.trials import TrialData


def loss_gradient(
    problem: Problem, weights: Float[np.ndarray, "*lead"], loss: str = "logistic"
) -> tuple[Float[np.ndarray, "*lead"], Float[np.ndarray, "*batch"]]:
    """Gradient of the mean loss in W or p, with the scale taken out, so that it does not underflow.

    Parameters
    ----------
    problem : Problem
        With labels and a linear head.
    weights : ndarray, shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt
    loss : str
        As for :func:`attsvm.train`.

    Returns
    -------
    gradient : ndarray, shape of the weights
        Times exp(−log_scale).
    log_scale : ndarray, shape (*trials, *batch)
    """
    layer = parse_attention(None, problem, None)
    (name,) = layer.shapes(problem)
    objective = Objective(layer, Linear(), parse_loss(loss, problem.num_classes))
    core = 2 if problem.has_queries else 1
    lead = weights.shape[: weights.ndim - core]
    flat = weights.reshape(-1, *weights.shape[weights.ndim - core :])
    with jax.enable_x64(True):
        data = TrialData(problem, np.dtype(np.float64))
        trials = np.arange(len(flat))
        fixed = {key: data.last(x, trials) for key, x in Linear().initial(problem).items()}
        found = _evaluation(objective)({name: np.moveaxis(flat, 0, -1)}, fixed, data.take(trials), 0.0)
        gradient = np.moveaxis(np.asarray(found.gradient[name]), -1, 0)
        log_scale = np.asarray(found.log_scale[name])
    return gradient.reshape(weights.shape), np.broadcast_to(log_scale, len(flat)).reshape(lead)


@lru_cache(maxsize=32)
def _evaluation(objective: Objective) -> Callable[..., Evaluation]:
    """Compiled once for each shape."""
    compiled: Callable[..., Evaluation] = jax.jit(objective.evaluate)
    return compiled
