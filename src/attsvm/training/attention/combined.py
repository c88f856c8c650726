"""Logits by one weight matrix."""

from dataclasses import dataclass

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.problem import Problem
from attsvm.training.attention.base import Attention, Parameters, ProblemData

Array = jax.Array


@dataclass(frozen=True)
class CombinedAttention(Attention):
    """s_it = k_it' W z_i."""

    name = "combined"

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"W": (problem.key_dim, problem.query_dim)}

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        return contract("ntk,nqk->nqt", data.keys, contract("ke,nqe->nqk", parameters["W"], data.queries))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["W"]
