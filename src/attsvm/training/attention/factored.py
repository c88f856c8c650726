"""Logits by two factors."""

from dataclasses import dataclass
from typing import Self

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.optimizers.gradient import normalized_gradient_descent
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.transformations import Decaying
from attsvm.problem import Problem
from attsvm.training.attention.base import Attention, Data, Parameters, Reduced, with_logits_of
from attsvm.training.attention.combined import Combined

Array = jax.Array


@dataclass(frozen=True)
class Factored(Attention):
    """s_it = k_it' K Q' z_i, with factors of m columns."""

    rank: int  # m

    name = "factored"
    takes_rank = True

    @classmethod
    def of_rank(cls, rank: int) -> Self:
        """The attention with this number of columns, by default d_k."""
        return cls(rank)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"K": (problem.key_dim, self.rank), "Q": (problem.query_dim, self.rank)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Random entries N(0, 1/d), because zero factors have a zero gradient."""
        return {
            name: generator.normal(scale=shape[0] ** -0.5, size=batch + shape)
            for name, shape in self.shapes(problem).items()
        }

    def logits(self, parameters: Parameters, data: Data) -> Array:
        projected = contract("em,nqe->nqm", parameters["Q"], data.queries)
        return contract("ntk,nqk->nqt", data.keys, contract("km,nqm->nqk", parameters["K"], projected))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return np.asarray(parameters["K"] @ np.swapaxes(parameters["Q"], -1, -2))

    def largest_rank(self, problem: Problem) -> int | None:
        """m, if there are fewer columns than rows."""
        return self.rank if self.rank < min(problem.key_dim, problem.query_dim) else None

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> Reduced:
        """With K fixed, Q' is a matrix W of keys K'k; with Q fixed, K is one of queries Q'z."""
        if "K" in fixed:
            K = fixed["K"]
            keys = problem.canonical.keys @ K[..., None, :, :]
            projected = with_logits_of(problem, K.shape[:-2], keys=keys)
            return Reduced(Combined(), projected, lambda of: np.swapaxes(of["Q"], -1, -2), lambda W: K @ W)
        if "Q" in fixed:
            Q, z = fixed["Q"], problem.queries
            queries = z @ (Q[..., None, :, :] if problem.has_query_axis else Q)
            projected = with_logits_of(problem, Q.shape[:-2], queries=queries)
            return Reduced(Combined(), projected, lambda of: of["K"], lambda W: W @ np.swapaxes(Q, -1, -2))
        return super().reduced(problem, fixed)

    def default_optimizer(self) -> Optimizer:
        """One norm over both gradients, and steps relative to the norm of (K, Q) that decay.

        Directions that the nuclear solution does not use vanish like a power of the norm, so the sum of the steps must
        grow without bound. The run jumps between support tokens, and ends off the solution by about the last step, so
        the steps must decrease to zero. 1/k is the fastest power with both properties.
        """
        return normalized_gradient_descent(Decaying(0.03, 4000), scope="all", relative=True)
