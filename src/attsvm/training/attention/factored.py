"""Logits by two factors."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.errors import ProblemError
from attsvm.norms import Lp
from attsvm.optimizers import Limit, Optimizer, Steps
from attsvm.problem import Problem, join_blocks
from attsvm.training.attention.base import (
    Attention,
    Parameters,
    ProblemData,
    ReducedProblem,
    descent_on_products,
    random_entries,
    with_logits_of,
)
from attsvm.training.attention.combined import CombinedAttention
from attsvm.training.attention.registry import ATTENTIONS

Array = jax.Array


@dataclass(frozen=True)
class FactoredAttention(Attention):
    """s_it = k_it' K Q' z_i, with factors of m columns, plus biases b if the problem has them."""

    rank: int  # m
    sharing: int = 1  # consecutive attention heads that share one K
    biases: bool = False  # whether biases are trained beside the factors

    name = "factored"
    shares_keys = True
    takes_other_terms = True
    takes_rank = True

    @classmethod
    def of(cls, problem: Problem, rank: int | None) -> Self:
        """Make the parametrization, with the number of heads that share a K, and whether there are biases."""
        found = replace(super().of(problem, rank), biases=problem.num_biases > 0)
        if problem.key_groups is None or problem.num_heads is None:
            return found
        return replace(found, sharing=problem.num_heads // problem.key_groups)

    @classmethod
    def of_rank(cls, rank: int) -> Self:
        """The attention with this number of columns, by default d_k."""
        return cls(rank)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        factors = {"K": (problem.key_dim, self.rank), "Q": (problem.query_dim, self.rank)}
        return factors | ({"b": (problem.num_biases,)} if problem.num_biases else {})

    def shapes_of_heads(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """K has an axis of groups."""
        of_heads = super().shapes_of_heads(problem)
        return of_heads if problem.key_groups is None else of_heads | {"K": (problem.key_groups, *of_heads["K"][1:])}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Random factors, and zeros for biases."""
        shared = batch if self.sharing == 1 else (*batch[:-1], batch[-1] // self.sharing)
        shapes = self.shapes(problem)
        factors = {
            name: random_entries(generator, shared if name == "K" else batch, shapes[name]) for name in ("K", "Q")
        }
        return factors | {"b": np.zeros(shapes["b"])} if "b" in shapes else factors

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        projected = contract("em,nqe->nqm", parameters["Q"], data.queries)
        logits = contract("ntk,nqk->nqt", data.keys, contract("km,nqm->nqk", parameters["K"], projected))
        return data.with_other_terms(logits, parameters.get("b"))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        W = np.asarray(self._of_each_head(parameters["K"]) @ np.swapaxes(parameters["Q"], -1, -2))
        return join_blocks(W, parameters["b"]) if "b" in parameters else W

    def num_factors(self, names: Collection[str]) -> int:
        """K and Q; b is added to their product."""
        return len({"K", "Q"} & set(names))

    def _of_each_head(self, keys: np.ndarray) -> np.ndarray:
        """K of shape (..., H, d_k, m), from that of the groups."""
        return keys if self.sharing == 1 else np.repeat(keys, self.sharing, axis=-3)

    def limit(self, steps: Steps, problem: Problem, queries: int = 0, *, layers: bool = False) -> Limit:
        """Find the limit of the factors. Beside biases it is known for Euclidean steps alone."""
        found = super().limit(steps, problem, queries, layers=layers)
        return replace(found, norm=None) if self.biases and steps.norm != Lp(2.0) else found

    def largest_rank(self, problem: Problem) -> int | None:
        """m, if there are fewer columns than rows."""
        return self.rank if self.rank < min(problem.key_dim, problem.query_dim) else None

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> ReducedProblem:
        """With K fixed, Q' is a matrix W of keys K'k; with Q fixed, K is one of queries Q'z.

        Beside K and Q, of degree 2 together, trained biases b of degree 1 vanish in the direction: the problem is that
        without them, in which a trained sink is one of logit 0.

        Raises ProblemError if Q is fixed and heads share K, whose Att-SVM would be one of all these heads, or
        parameters are fixed beside biases.
        """
        if problem.num_biases:
            if fixed:
                raise ProblemError(f"fixed: expected none for a problem with bias_index, got {', '.join(fixed)}")
            zero = np.zeros(problem.num_biases)
            return ReducedProblem(
                self,
                Problem(**{name: x for name, x in problem.arrays().items() if name != "bias_index"}),
                lambda of: self.weights({"K": of["K"], "Q": of["Q"]}),
                lambda W: join_blocks(W, zero),
            )
        if "K" in fixed:
            K = self._of_each_head(fixed["K"])
            keys = problem.terms.keys @ K[..., None, :, :]
            projected = with_logits_of(problem, K.shape[:-2], keys=keys)
            return ReducedProblem(
                CombinedAttention(), projected, lambda of: np.swapaxes(of["Q"], -1, -2), lambda W: K @ W
            )
        if "Q" in fixed:
            if self.sharing > 1:
                raise ProblemError("fixed: expected K or none for a problem with key_groups, got Q")
            Q, z = fixed["Q"], problem.queries
            queries = z @ (Q[..., None, :, :] if problem.has_query_axis else Q)
            projected = with_logits_of(problem, Q.shape[:-2], queries=queries)
            return ReducedProblem(
                CombinedAttention(), projected, lambda of: of["K"], lambda W: W @ np.swapaxes(Q, -1, -2)
            )
        return super().reduced(problem, fixed)

    def default_optimizer(self) -> Optimizer:
        """One norm over K and Q; the nuclear solution leaves most directions unused."""
        return descent_on_products()


ATTENTIONS.register(FactoredAttention.name, FactoredAttention)
