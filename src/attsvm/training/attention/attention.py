# ruff: noqa: D102 (methods are documented in the protocol Attention)
"""From parameters to logits: one class a parametrisation. Their gradients are pulled back by VJP."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from attsvm.contractions import contract
from attsvm.errors import ProblemError
from attsvm.problem import Problem

Array = jax.Array
Parameters = dict[str, Array]
# in what passes between the engine and its callers: NumPy's outside a compiled program, JAX's inside
AnyArray = Any


class Data(NamedTuple):
    """What the logits and the loss see of a problem; the trailing axis holds the trials, or 1 where they share it."""

    tokens: AnyArray  # (n, T, d, B)
    keys: AnyArray  # (n, T, d_k, B)
    queries: AnyArray  # (n, Q, d_q, B)
    labels: AnyArray  # (n, Q, B)
    query_weight: AnyArray  # (n, Q, B): 1 / number of queries in the mean, 0 for padded ones
    allowed: AnyArray | None  # (n, Q, T, B)


class Attention(Protocol):
    """A parametrisation of the logits s_iqt."""

    @property
    def name(self) -> str: ...

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one trial."""
        ...

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Where training starts, with or without the batch axes."""
        ...

    def logits(self, parameters: Parameters, data: Data) -> Array:
        """Logits, shape (n, Q, T, B)."""
        ...

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        """What the Att-SVM speaks of: W, KQ' or p, with any leading axes."""
        ...


@dataclass(frozen=True)
class Combined:
    """s_it = k_it' W z_i."""

    name: str = "combined"

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"W": (problem.key_dim, problem.query_dim)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        return {name: np.zeros(shape) for name, shape in self.shapes(problem).items()}

    def logits(self, parameters: Parameters, data: Data) -> Array:
        return contract("ntk,nqk->nqt", data.keys, contract("ke,nqe->nqk", parameters["W"], data.queries))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["W"]


@dataclass(frozen=True)
class Factored:
    """s_it = k_it' K Q' z_i, with factors of m columns."""

    rank: int
    name: str = "factored"

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"K": (problem.key_dim, self.rank), "Q": (problem.query_dim, self.rank)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        return {
            name: generator.normal(scale=shape[0] ** -0.5, size=batch + shape)
            for name, shape in self.shapes(problem).items()
        }

    def logits(self, parameters: Parameters, data: Data) -> Array:
        projected = contract("em,nqe->nqm", parameters["Q"], data.queries)
        return contract("ntk,nqk->nqt", data.keys, contract("km,nqm->nqk", parameters["K"], projected))

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["K"] @ np.swapaxes(parameters["Q"], -1, -2)


@dataclass(frozen=True)
class Prompt:
    """s_it = k_it' p."""

    name: str = "prompt"

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {"p": (problem.key_dim,)}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        return {"p": np.zeros(problem.key_dim)}

    def logits(self, parameters: Parameters, data: Data) -> Array:
        return contract("ntk,k->nt", data.keys, parameters["p"])[:, None]

    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        return parameters["p"]


def parse_attention(name: str | None, problem: Problem, rank: int | None) -> Attention:
    """Read ``attention`` and ``rank``, and check that they fit the problem.

    Raises
    ------
    ProblemError
        If the name is unknown, the problem has no queries for W or (K, Q) or has some for a prompt, or a rank is
        given for another parametrisation.
    """
    name = ("combined" if problem.has_queries else "prompt") if name is None else name
    if name not in ("combined", "factored", "prompt"):
        raise ProblemError(f'attention: {name!r} found, "combined", "factored" or "prompt" wanted')
    if (name == "prompt") == problem.has_queries:
        wanted = "without queries" if name == "prompt" else "with queries"
        raise ProblemError(f"attention: {name!r} takes a problem {wanted}")
    if name != "factored":
        if rank is not None:
            raise ProblemError(f"rank: given for {name} attention; only factored attention has one")
        return Prompt() if name == "prompt" else Combined()
    rank = problem.key_dim if rank is None else rank
    if rank < 1:
        raise ProblemError(f"rank: {rank} found, at least 1 wanted")
    return Factored(int(rank))
