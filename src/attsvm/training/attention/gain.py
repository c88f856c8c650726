"""Logits by one weight matrix behind a gain on the keys."""

from dataclasses import dataclass

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.errors import ProblemError
from attsvm.optimizers import Optimizer
from attsvm.problem import Problem
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
from attsvm.training.attention.prompts import PromptTuningAttention
from attsvm.training.attention.registry import ATTENTIONS

Array = jax.Array


@dataclass(frozen=True)
class GainAttention(Attention):
    """s_it = k_it' diag(g) W z_i: the gain of a normalisation layer in front of the keys alone, trained with W.

    The least ½(‖g‖² + ‖W‖²) of diag(g) W is Σ_r ‖row r‖, attained where |g_r| = ‖row r of W‖.
    """

    name = "gain"

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"g": (problem.key_dim,), "W": (problem.key_dim, problem.query_dim)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """A gain of 1, as of layers that are not trained yet, and a random W."""
        shapes = self.shapes(problem)
        return {"g": np.ones(batch + shapes["g"]), "W": random_entries(generator, batch, shapes["W"])}

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        projected = contract("ke,nqe->nqk", parameters["W"], data.queries)
        return contract("ntk,nqk->nqt", data.keys, contract("k,nqk->nqk", parameters["g"], projected))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        """The matrix diag(g) W."""
        return np.asarray(parameters["g"][..., None] * parameters["W"])

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> ReducedProblem:
        """With g fixed, W is the matrix of keys diag(g) k; with W fixed, g is the prompt of keys k ∘ Wz.

        Raises ProblemError if W is fixed and several queries share a sequence, whose keys k ∘ Wz differ.
        """
        if "g" in fixed:
            g = fixed["g"]
            scaled = with_logits_of(problem, g.shape[:-1], keys=problem.canonical.keys * g[..., None, None, :])
            return ReducedProblem(CombinedAttention(), scaled, lambda of: of["W"], lambda W: g[..., None] * W)
        if "W" in fixed:
            if problem.has_query_axis:
                raise ProblemError("fixed: expected g or none for several queries per sequence, got W")
            W = fixed["W"]
            projected = problem.queries @ np.swapaxes(W, -1, -2)
            keys = problem.canonical.keys * projected[..., None, :]
            of_gain = with_logits_of(problem, W.shape[:-2], keys=keys, queries=None)
            return ReducedProblem(PromptTuningAttention(), of_gain, lambda of: of["g"], lambda g: g[..., None] * W)
        return super().reduced(problem, fixed)

    def default_optimizer(self) -> Optimizer:
        """As for two factors, whose product vanishes in directions that the solution does not use."""
        return descent_on_products()


ATTENTIONS.register(GainAttention.name, GainAttention)
