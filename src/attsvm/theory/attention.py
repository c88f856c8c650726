"""Logits and attention of weights, in the shapes of a problem's queries."""

import numpy as np
from jaxtyping import Float

from attsvm.measures import token_logits
from attsvm.problem import Problem
from attsvm.softmax import softmax


def logits_and_attention(
    problem: Problem, weights: np.ndarray
) -> tuple[Float[np.ndarray, "*batch n Q T"], Float[np.ndarray, "*batch n Q T"]]:
    """Logits, −inf where masked, and their softmax, 0 where masked."""
    canonical = problem.canonical
    logits = np.where(canonical.allowed, token_logits(problem, weights), -np.inf)
    return logits, softmax(logits, canonical.allowed)
