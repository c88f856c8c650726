"""Logits by one weight matrix."""

from dataclasses import dataclass

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.problem import Problem
from attsvm.training.attention.base import Attention, Parameters, ProblemData
from attsvm.training.attention.registry import ATTENTIONS

Array = jax.Array


@dataclass(frozen=True)
class CombinedAttention(Attention):
    """s_it = k_it' W z_i, with biases b as a second block of W."""

    name = "combined"
    takes_other_terms = True

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"W": problem.weights_shape}

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        W, b = data.blocks(parameters["W"])
        logits = contract("ntk,nqk->nqt", data.keys, contract("ke,nqe->nqk", W, data.queries))
        return data.with_other_terms(logits, b)

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["W"]


ATTENTIONS.register(CombinedAttention.name, CombinedAttention)
