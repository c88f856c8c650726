"""Logits by a prompt."""

from dataclasses import dataclass

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.problem import Problem
from attsvm.training.attention.base import Attention, Data, Parameters

Array = jax.Array


@dataclass(frozen=True)
class Prompt(Attention):
    """s_it = k_it' p."""

    name = "prompt"
    takes_queries = False

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"p": (problem.key_dim,)}

    def logits(self, parameters: Parameters, data: Data) -> Array:
        return contract("ntk,k->nt", data.keys, parameters["p"])[:, None]

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["p"]
