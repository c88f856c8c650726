"""How far steps changed the logits."""

import math

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.problem import Problem, gathered

_NUMBERS_AT_ONCE = 2_000_000


def logit_changes(
    problem: Problem, steps: Int[np.ndarray, "R"], weights: np.ndarray, power: Int[np.ndarray, "R *batch"]
) -> Float[np.ndarray, "R *batch"]:
    """Compute the largest |k'(W_r − W_{r−1})z| over heads, queries and tokens, W = 2^power · weights, at each record r.

    ``steps``: in increasing order. ``weights``: shape (R, *batch, [H,] d_k, d_q) or (R, *batch, [H,] d_k).

    The changes are at most the largest float, and 0 where the record before is not that of the step before.
    """
    model, shape = problem.model_shape, power.shape
    trials = math.prod(power.shape[1 : power.ndim - len(model)])
    # records and trials as one axis, in which the record before is so many trials away
    weights, power = weights.reshape(-1, *weights.shape[power.ndim - len(model) :]), power.reshape(-1, *model)
    found = np.zeros(power.shape)
    after = ((np.flatnonzero(np.diff(steps) == 1) + 1)[:, None] * trials + np.arange(trials)).ravel()
    length = max(1, _NUMBERS_AT_ONCE // max(1, problem.canonical.allowed.size, weights[:1].size))
    for start in range(0, after.size, length):
        block = after[start : start + length]
        before = block - trials
        # both weights at the larger of their scales
        common = np.maximum(power[block], power[before])
        moved = _times(weights[block], power[block] - common) - _times(weights[before], power[before] - common)
        with np.errstate(over="ignore"):
            changes = np.ldexp(_largest_logits(problem, moved), common)
        found[block] = np.minimum(changes, np.finfo(np.float64).max)
    return found.reshape(shape)


def _times(weights: np.ndarray, power: np.ndarray) -> np.ndarray:
    if not power.any():
        return weights
    return np.asarray(weights * np.ldexp(1.0, power)[(..., *(None,) * (weights.ndim - power.ndim))])


def _largest_logits(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "L *model"]:
    """The largest |k'Wz| over heads, queries and tokens, of weights (L, *model, [H,] d_k[, d_q]).

    The last axis of the products is L, so that each sequence takes one long product instead of L short ones.
    """
    (keys, queries, index, _), allowed = problem.terms, problem.canonical.allowed
    weights = weights if problem.has_queries else weights[..., None]
    weights, b = problem.terms.split(weights)
    last = np.moveaxis(weights, (-1, 0), (-3, -1))  # (*batch, d_q, d_k, L)
    projected = queries @ last.reshape(*last.shape[:-3], 1, last.shape[-3], -1)
    logits = keys[..., None, :, :] @ projected.reshape(*projected.shape[:-1], *last.shape[-2:])
    if index is not None:
        logits += np.moveaxis(gathered(b, index), 0, -1)
    logits[~allowed] = 0.0
    logits = logits.reshape(*problem.model_shape, -1, len(weights))
    return np.moveaxis(np.maximum(logits.max(axis=-2), -logits.min(axis=-2)), -1, 0)
