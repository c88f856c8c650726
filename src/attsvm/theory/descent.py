"""The direction of steepest descent of the training loss at given weights, however saturated the softmax is."""

import numpy as np
from jaxtyping import Float

from attsvm.losses import OutputLoss
from attsvm.measures import token_logits
from attsvm.problem import Problem
from attsvm.theory.smoothness import log_slopes, scores_of_queries


def descent_direction(
    problem: Problem, weights: Float[np.ndarray, "*lead"], loss: OutputLoss
) -> Float[np.ndarray, "*lead"]:
    """−∇L(W)/‖∇L(W)‖ of the mean loss with the linear head; zero where the gradient is zero.

    With the winner * of a query and D_t = γ_* − γ_t, the output is f = γ_* − r for r = Σ a_t D_t, and ∂f/∂s_t =
    a_t (r − D_t). Over the tokens that are not the winner these are sums of small terms without cancellation; the
    common factor exp(c) is taken out, so that nothing underflows.

    ``problem``: with labels ±1 and a head.
    """
    keys, queries, allowed, active = problem.canonical
    logits = np.where(allowed, token_logits(problem, weights), -np.inf)
    winner = np.argmax(logits, axis=-1)[..., None]
    largest = np.max(logits, axis=-1, keepdims=True)
    below = np.where(allowed, logits - np.where(np.isfinite(largest), largest, 0.0), -np.inf)
    share = np.exp(below)
    total = np.maximum(share.sum(axis=-1, keepdims=True), 1.0)
    gamma = np.broadcast_to(np.where(allowed, scores_of_queries(problem), 0.0), logits.shape)
    won = np.take_along_axis(gamma, winner, axis=-1)
    lost = np.where(allowed, won - gamma, 0.0)
    mean_lost = np.sum(share * lost, axis=-1, keepdims=True) / total

    others = allowed & (np.arange(problem.num_tokens) != winner)
    log_size = np.where(others, below + log_slopes(loss, won - mean_lost), -np.inf)
    common = np.max(log_size, axis=(-3, -2, -1), keepdims=True, initial=-np.inf)
    size = np.exp(log_size - np.where(np.isfinite(common), common, 0.0))
    push = np.where(active[..., None], size * (mean_lost - lost) / total, 0.0)
    # relative to the winner's key, whose own term is minus the sum of the others
    of_keys = push - (np.arange(problem.num_tokens) == winner) * push.sum(axis=-1, keepdims=True)
    direction = np.einsum("...nqt,...ntk,...nqe->...ke", of_keys, keys, queries)
    length = np.sqrt(np.sum(direction**2, axis=(-2, -1), keepdims=True))
    unit = direction / np.where(length > 0, length, 1.0)
    return np.asarray(unit if problem.has_queries else unit[..., 0])
