"""Logits and attention of weights, in the shapes of a problem's queries."""

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from attsvm.measures import token_logits
from attsvm.problem import Problem


def logits_and_attention(
    problem: Problem, weights: np.ndarray
) -> tuple[Float[np.ndarray, "*batch n Q T"], Float[np.ndarray, "*batch n Q T"]]:
    """Logits, −inf where masked, and their softmax; padded queries get finite values without meaning."""
    canonical = problem.canonical
    logits = np.where(canonical.allowed, token_logits(problem, weights), -np.inf)
    return logits, softmax(np.where(canonical.active[..., None], logits, 0.0), axis=-1)
