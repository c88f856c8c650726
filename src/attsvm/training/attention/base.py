"""What a parametrization of the logits provides."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np

from attsvm.errors import ProblemError
from attsvm.optimizers import Optimizer, normalized_gradient_descent
from attsvm.problem import Problem

Array = jax.Array
Parameters = dict[str, Array]
# between the engine and its callers: NumPy's outside a compiled program, JAX's inside
AnyArray = Any


class Data(NamedTuple):
    """The data of a problem for logits and loss. The trailing axis holds the trials, or has length 1 if they share."""

    tokens: AnyArray  # (n, T, d, B)
    keys: AnyArray  # (n, T, d_k, B)
    queries: AnyArray  # (n, Q, d_q, B)
    labels: AnyArray  # (n, Q, B)
    query_weight: AnyArray  # (n, Q, B): 1 / number of queries in the mean, 0 for padded ones
    allowed: AnyArray | None  # (n, Q, T, B)


class Attention(ABC):
    """A parametrization of the logits s_iqt. Gradients are pulled back by vector-Jacobian products."""

    name: ClassVar[str]

    takes_queries: ClassVar[bool] = True
    """Whether it is for problems with queries, or for those without."""

    degree: ClassVar[int] = 1
    """The number of parameters whose product the weights are."""

    @classmethod
    def of(cls, problem: Problem, rank: int | None) -> Self:
        """The parametrization for a problem.

        Raises
        ------
        ProblemError
            If the attention needs queries and the problem has none, or the reverse, or if it does not take a rank.
        """
        if cls.takes_queries != problem.has_queries:
            expected = "with queries" if cls.takes_queries else "without queries"
            raise ProblemError(f"attention: expected a problem {expected} for {cls.name!r}")
        if rank is not None:
            raise ProblemError(f"rank: expected None for {cls.name} attention, got {rank}; only factored has a rank")
        return cls()

    @abstractmethod
    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one trial."""

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """The initial parameters, with or without the batch axes; zeros by default."""
        return {name: np.zeros(shape) for name, shape in self.shapes(problem).items()}

    @abstractmethod
    def logits(self, parameters: Parameters, data: Data) -> Array:
        """The logits, shape (n, Q, T, B)."""

    @abstractmethod
    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        """The weights of the Att-SVM: W, KQ' or p, with any leading axes."""

    def largest_rank(self, problem: Problem) -> int | None:
        """The largest rank that the weights can have, if that is less than their shape allows."""
        return None

    def default_optimizer(self) -> Optimizer:
        """The default optimizer of :func:`attsvm.train`."""
        return normalized_gradient_descent(0.1)
