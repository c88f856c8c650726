"""By how much weights separate the tokens they keep from those they drop."""

from typing import Any

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem
from attsvm.selection import selection_sets


def margin(problem: Problem, selected: Any, weights: Any, norm: str | float | Norm = "frobenius") -> np.ndarray | float:
    """Smallest margin of the selected tokens over the others, relative to the norm: min_it A(W)_it / N(W).

    Parameters
    ----------
    problem : Problem
    selected : array
        One token a query, or sets of tokens, as for :func:`attsvm.solve_svm`.
    weights : array, shape (*lead, d_k, d_q), or (*lead, d_k) for a prompt
        Leading axes may be any that broadcast against those of problem and selection (many iterates, one problem).
    norm : str, float or Norm
        "frobenius", "nuclear", "spectral", or p of an entrywise ℓp norm.

    Returns
    -------
    float or ndarray, shape (*lead,)
        Positive if and only if the weights separate the selection; 0 for zero weights.

    Raises
    ------
    ProblemError
        If shapes do not fit, an entry is not finite, or no query has a token to drop.
    """
    norm = parse_norm(norm)
    weights = check_weights(problem, weights)
    sets = selection_sets(problem, selected)
    rest = problem.canonical.allowed & ~sets
    if not rest.any(axis=(-3, -2, -1)).all():
        raise ProblemError("selected: no query has a token to drop, so there is no margin")
    axes = 2 if problem.has_queries else 1
    size = norm.value(weights, axes)
    # relative to the largest entry, so that the logits of weights as large as 1e300 stay finite
    largest = np.max(np.abs(weights), axis=tuple(range(-axes, 0)), keepdims=True)
    logits = token_logits(problem, weights / np.where(largest > 0, largest, 1.0))
    lowest_kept = np.min(np.where(sets, logits, np.inf), axis=-1)
    highest_dropped = np.max(np.where(rest, logits, -np.inf), axis=-1)
    gaps = np.where(rest.any(axis=-1), lowest_kept - np.where(rest.any(axis=-1), highest_dropped, 0.0), np.inf)
    smallest = gaps.min(axis=(-2, -1))
    relative = size / np.where(largest > 0, largest, 1.0).reshape(size.shape)
    value = np.where(relative > 0, smallest / np.where(relative > 0, relative, 1.0), 0.0)
    return float(value) if value.ndim == 0 else value


def check_weights(problem: Problem, weights: Any) -> np.ndarray:
    """The weights as float64, if they are of the shape that the problem's logits take."""
    weights = np.asarray(weights, dtype=np.float64)
    shape = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    if weights.shape[weights.ndim - len(shape) :] != shape or weights.ndim < len(shape):
        raise ProblemError(f"weights: shape {weights.shape} does not fit the problem: (..., {str(shape)[1:-1]}) wanted")
    if not np.isfinite(weights).all():
        raise ProblemError("weights: an entry is not finite")
    return weights


def token_logits(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*lead n Q T"]:
    """Logits s_iqt = k_it' W z_iq with the Q axis spelled out; masked tokens included."""
    canonical = problem.canonical
    weights = weights if problem.has_queries else weights[..., None]
    projected = canonical.queries @ np.swapaxes(weights, -1, -2)[..., None, :, :]
    return projected @ np.swapaxes(canonical.keys, -1, -2)
