"""Logits by two factors whose columns are rotated by the positions, as in RoPE."""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
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
from attsvm.training.attention.registry import ATTENTIONS

Array = jax.Array

SAME = 1e-9
"""Rounding of the length of a key, of each entry relative to the largest one, in the block of a frequency."""


@dataclass(frozen=True)
class RotaryAttention(Attention):
    """s_it = (R_t K'x_it)'(R_i Q'z_i), for the keys of :meth:`attsvm.Problem.with_rotations`.

    R rotates the j-th pair of columns (k₁ k₂) and (q₁ q₂) by θ_j times the position. With the difference Δ this is
    cos(θ_jΔ) x'A_j z − sin(θ_jΔ) x'B_j z, A_j = k₁q₁' + k₂q₂', B_j = k₁q₂' − k₂q₁', so that A_j + iB_j is the complex
    matrix (k₁ − ik₂)(q₁ + iq₂)' of rank one.
    """

    frequencies: int  # J

    name = "rotary"

    @classmethod
    def of(cls, problem: Problem, rank: int | None) -> Self:
        """Make the parametrization, with the number of frequencies of the problem.

        Raises ProblemError as for others, and if the keys are not those of rotations.
        """
        super().of(problem, rank)
        number, rest = divmod(problem.key_dim, 2 * problem.dim)
        if problem.keys is None or rest or not _are_rotations(problem.keys, number):
            raise ProblemError(
                "attention: expected the problem of Problem.with_rotations(frequencies) for 'rotary', got one whose "
                "keys are not rotated by each frequency"
            )
        return cls(number)

    @classmethod
    def of_rank(cls, rank: int) -> Self:
        """The parametrization with one frequency, before that of a problem is known."""
        return cls(1)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"K": (problem.dim, 2 * self.frequencies), "Q": (problem.query_dim, 2 * self.frequencies)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        return {name: random_entries(generator, batch, shape) for name, shape in self.shapes(problem).items()}

    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        pairs = contract("em,nqe->nqm", parameters["Q"], data.queries)
        pairs = pairs.reshape(*pairs.shape[:2], -1, 2, pairs.shape[-1])
        K = parameters["K"]
        k = K.reshape(len(K), -1, 2, K.shape[-1])
        # the columns of [A_j; B_j] z in terms of both entries of Q_j'z
        of_blocks = jnp.stack([k, jnp.stack([-k[:, :, 1], k[:, :, 0]], axis=2)])
        turned = contract("fdjc,nqjc->nqjfd", of_blocks, pairs)
        return contract("ntk,nqk->nqt", data.keys, turned.reshape(*turned.shape[:2], -1, turned.shape[-1]))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        """The matrix [A_1; B_1; …; A_J; B_J]."""
        Q = parameters["Q"]
        return self._stacked(parameters["K"], np.swapaxes(Q, -1, -2))

    def _stacked(self, K: np.ndarray, W: np.ndarray) -> np.ndarray:
        """[A_1; B_1; …] of K and W = Q', both with any leading axes."""
        blocks = _of_blocks(K) @ W.reshape(*W.shape[:-2], self.frequencies, 1, 2, W.shape[-1])
        return np.asarray(blocks.reshape(*blocks.shape[:-4], -1, blocks.shape[-1]))

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> ReducedProblem:
        """With K fixed, Q' is the matrix W of the rotated projected keys.

        Raises ProblemError if Q is fixed: the keys of the problem of K would be products with the queries.
        """
        if "Q" in fixed:
            raise ProblemError("fixed: expected K or none for 'rotary', got Q")
        if "K" in fixed:
            K = fixed["K"]
            of = problem.canonical.keys
            of = of.reshape(*of.shape[:-1], self.frequencies, 2, 1, -1)
            keys = (
                (of @ _of_blocks(K)[..., None, None, :, :, :, :])
                .sum(axis=-3)
                .reshape(*K.shape[:-2], *of.shape[-6:-4], -1)
            )
            projected = with_logits_of(problem, K.shape[:-2], keys=keys)
            return ReducedProblem(
                CombinedAttention(),
                projected,
                lambda of: np.swapaxes(of["Q"], -1, -2),
                lambda W: self._stacked(K, W),
            )
        return super().reduced(problem, fixed)

    def default_optimizer(self) -> Optimizer:
        """As for two factors, whose product vanishes in directions that the solution does not use."""
        return descent_on_products()


def _of_blocks(K: np.ndarray) -> np.ndarray:
    """The columns of [A_j; B_j] in terms of the two rows of Q_j': (*lead, J, 2, d, 2), from K (*lead, d, 2J)."""
    k = np.moveaxis(K.reshape(*K.shape[:-1], -1, 2), -2, -3)
    return np.stack([k, np.stack([-k[..., 1], k[..., 0]], axis=-1)], axis=-3)


def _are_rotations(keys: np.ndarray, number: int) -> bool:
    """Whether the real and the imaginary parts of all frequencies have the same length, entry by entry."""
    lengths = np.square(keys.reshape(*keys.shape[:-1], number, 2, -1)).sum(axis=-2)
    return bool((np.abs(lengths - lengths[..., :1, :]) <= SAME * lengths.max()).all())


ATTENTIONS.register(RotaryAttention.name, RotaryAttention)
