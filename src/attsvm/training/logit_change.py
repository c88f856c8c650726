"""How far a step changes the logits."""

import numpy as np
from jaxtyping import Float, Int

from attsvm.measures import token_logits
from attsvm.problem import Problem

_NUMBERS_AT_ONCE = 4_000_000


def logit_changes(
    problem: Problem, steps: Int[np.ndarray, "R"], weights: np.ndarray, power: Int[np.ndarray, "R *batch"]
) -> Float[np.ndarray, "R *batch"]:
    """The largest |k'(W_r − W_{r−1})z| over heads, queries and tokens, W = 2^power · weights, at each record r.

    Parameters
    ----------
    problem : Problem
    steps : int ndarray, shape (R,)
        In increasing order.
    weights : ndarray, shape (R, *batch, [H,] d_k, d_q) or (R, *batch, [H,] d_k)
    power : int ndarray, shape (R, *batch)

    Returns
    -------
    ndarray, shape (R, *batch)
        At most the largest float; 0 where the record before is not that of the step before.
    """
    found = np.zeros(power.shape)
    after = np.flatnonzero(np.diff(steps) == 1) + 1
    allowed = problem.canonical.allowed
    of_one = max(1, allowed.size, weights[:1].size)
    for chunk in np.array_split(after, -(-len(after) * of_one // _NUMBERS_AT_ONCE)) if after.size else ():
        # both weights at the larger of their scales
        common = np.maximum(power[chunk], power[chunk - 1])
        moved = _scaled(weights[chunk], power[chunk] - common) - _scaled(weights[chunk - 1], power[chunk - 1] - common)
        logits = np.where(allowed, np.abs(token_logits(problem, moved)), 0.0)
        largest = logits.max(axis=tuple(range(power.ndim, logits.ndim)))
        with np.errstate(over="ignore"):
            found[chunk] = np.minimum(np.ldexp(largest, common), np.finfo(np.float64).max)
    return found


def _scaled(weights: np.ndarray, power: np.ndarray) -> np.ndarray:
    return np.asarray(np.ldexp(weights, power[(..., *(None,) * (weights.ndim - power.ndim))]))
