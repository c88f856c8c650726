"""Logits without queries: by a prompt, or by a matrix of keys and a prompt."""

from dataclasses import dataclass
from typing import Self

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.problem import Problem
from attsvm.training.attention.base import (
    Attention,
    Parameters,
    ProblemData,
    ReducedProblem,
    random_entries,
    with_logits_of,
)
from attsvm.training.attention.combined import CombinedAttention
from attsvm.training.attention.registry import ATTENTIONS

Array = jax.Array


@dataclass(frozen=True)
class PromptTuningAttention(Attention):
    """s_it = k_it' p."""

    name = "prompt"
    takes_queries = False
    takes_other_terms = True

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"p": (problem.key_dim,)}

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        return data.with_other_terms(contract("ntk,k->nt", data.keys, parameters["p"])[:, None])

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["p"]


@dataclass(frozen=True)
class KeyPromptAttention(Attention):
    """s_it = k_it' W p: the model ⟨Xv, softmax(XWp)⟩, for problems without queries.

    References: Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, section 1.
    """

    rank: int  # m, the length of p and the number of columns of W

    name = "key_prompt"
    takes_queries = False
    takes_other_terms = True
    takes_rank = True

    @classmethod
    def of_rank(cls, rank: int) -> Self:
        """The attention with this number of columns, by default d_k."""
        return cls(rank)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"W": (problem.key_dim, self.rank), "p": (self.rank,)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        return {name: random_entries(generator, batch, shape) for name, shape in self.shapes(problem).items()}

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        u = contract("km,m->k", parameters["W"], parameters["p"])
        return data.with_other_terms(contract("ntk,k->nt", data.keys, u)[:, None])

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        """The vector u = Wp."""
        return np.asarray((parameters["W"] @ parameters["p"][..., None])[..., 0])

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> ReducedProblem:
        """With W fixed, p is the prompt of keys W'k; with p fixed, W is the matrix of the one query p."""
        if "W" in fixed:
            W = fixed["W"]
            keys = problem.terms.keys @ W[..., None, :, :]
            projected = with_logits_of(problem, W.shape[:-2], keys=keys)
            return ReducedProblem(
                PromptTuningAttention(), projected, lambda of: of["p"], lambda p: (W @ p[..., None])[..., 0]
            )
        if "p" in fixed:
            p = fixed["p"]
            lead = p.shape[:-1]
            queries = np.broadcast_to(p[..., None, :], (*lead, problem.num_sequences, p.shape[-1]))
            projected = with_logits_of(problem, lead, queries=queries)
            return ReducedProblem(
                CombinedAttention(), projected, lambda of: of["W"], lambda W: (W @ p[..., None])[..., 0]
            )
        return super().reduced(problem, fixed)


ATTENTIONS.register(PromptTuningAttention.name, PromptTuningAttention)
ATTENTIONS.register(KeyPromptAttention.name, KeyPromptAttention)
