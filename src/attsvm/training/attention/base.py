"""The base class of parametrizations of the logits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.checks import check_integer
from attsvm._utils.contractions import LARGEST_WRITTEN_OUT, contract
from attsvm.errors import ProblemError
from attsvm.optimizers import Decaying, Limit, Optimizer, Steps, limit_of, normalized_gradient_descent
from attsvm.problem import ARRAY_NAMES, Problem

Array = jax.Array
Parameters = dict[str, Array]
# between the loop and its callers: NumPy's outside a compiled program, JAX's inside
AnyArray = Any


class ProblemData(NamedTuple):
    """The data of a problem for logits and loss. The trailing axis holds the trials, or has length 1 if they share."""

    tokens: AnyArray  # (n, T, d, B)
    keys: AnyArray  # (n, T, d_k, B)
    queries: AnyArray  # (n, Q, d_q, B)
    labels: AnyArray  # (n, Q, B)
    query_weight: AnyArray  # (n, Q, B): 1 / number of queries in the mean, 0 for padded ones
    allowed: AnyArray | None  # (n, Q, T, B)
    copies: AnyArray | None  # (n, Q, T, B): the first token with an equal key; None if no two keys are equal
    bias_index: AnyArray | None = None  # (n, Q, T, B): the number of the bias of a token, -1 for none
    offsets: AnyArray | None = None  # (n, Q, T, B): what is added to the logits

    def blocks(self, weights: Array) -> tuple[Array, Array | None]:
        """W (d_k, d_q, B) and b (m, B) of weights; None without biases."""
        if self.bias_index is None:
            return weights, None
        d_k, d_q = self.keys.shape[2], self.queries.shape[2]
        return weights[:d_k, :d_q], weights[d_k:, d_q]

    def with_other_terms(self, logits: Array, b: Array | None = None) -> Array:
        """Logits with the trained biases b and the fixed offsets of the problem."""
        if b is not None:
            logits = logits + _biases_of(b, self.bias_index)
        return logits if self.offsets is None else logits + self.offsets


def _biases_of(b: Array, index: AnyArray) -> Array:
    """The bias of each token (n, Q, T, B)."""
    m = len(b)
    if index[..., 0].size * m <= LARGEST_WRITTEN_OUT:
        # the derivative of a gather is a sum over places one after the other, which is slower
        one_hot = (index[:, :, :, None] == jnp.arange(m)[:, None]).astype(b.dtype)
        return contract("nqtm,m->nqt", one_hot, b)
    padded = jnp.concatenate([b, jnp.zeros_like(b[:1])])  # 0 for a token without a bias
    index = jnp.where(index < 0, m, index)
    if index.shape[-1] == 1:
        return padded[index[..., 0]]
    rows = index.reshape(-1, index.shape[-1])
    return jnp.take_along_axis(padded, rows, axis=0).reshape(index.shape)


class ReducedProblem(NamedTuple):
    """The problem of the parameters that are trained, with the same logits."""

    attention: "Attention"  # the parametrization of that problem, whose limits and default optimiser apply
    problem: Problem  # with other keys or queries, into which the parameters that are not trained are multiplied
    # from the trained parameters to the weights of that problem; both with any leading axes
    weights: Callable[[dict[str, np.ndarray]], np.ndarray]
    whole: Callable[[np.ndarray], np.ndarray]  # from the weights of that problem to those of the attention


class Attention(ABC):
    """A parametrization of the logits s_iqt, which are linear in each parameter.

    Gradients are pulled back by vector-Jacobian products.
    """

    name: ClassVar[str]

    takes_queries: ClassVar[bool] = True
    """Whether it is for problems with queries, or for those without."""

    shares_keys: ClassVar[bool] = False
    """Whether attention heads can share a parameter of keys."""

    takes_other_terms: ClassVar[bool] = False
    """Whether its logits include the biases and offsets of a problem."""

    takes_rank: ClassVar[bool] = False
    """Whether the number of columns of its factors can be chosen."""

    rank: int | None = None
    """The number of columns of its factors; None without factors."""

    frequencies: int | None = None
    """The number of frequencies of rotations; None without rotations."""

    @classmethod
    def of(cls, problem: Problem, rank: int | None) -> Self:
        """The parametrization for a problem.

        Raises ProblemError if the attention needs queries and the problem has none, or the reverse, if the problem has
        groups of heads that share keys and the attention has no keys, if it does not take a rank, or if the problem has
        biases or offsets that the attention does not take.
        """
        if cls.takes_queries != problem.has_queries:
            expected = "with queries" if cls.takes_queries else "without queries"
            raise ProblemError(f"attention: expected a problem {expected} for {cls.name!r}")
        if problem.key_groups is not None and not cls.shares_keys:
            raise ProblemError(
                f"attention: expected 'factored' for a problem with key_groups, got {cls.name!r}, which has no keys K"
            )
        if problem.other_terms and not cls.takes_other_terms:
            raise ProblemError(f"problem: expected one without {problem.other_terms} for {cls.name} attention")
        if rank is not None and not cls.takes_rank:
            raise ProblemError(f"rank: expected None for {cls.name} attention, got {rank}; it has no factors")
        return cls.of_rank(problem.key_dim if rank is None else check_integer("rank", rank, 1))

    @classmethod
    def of_rank(cls, rank: int) -> Self:
        """The parametrization with factors of this number of columns; without factors it has no meaning."""
        return cls()

    @abstractmethod
    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one attention head in one trial."""

    def shapes_of_heads(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of all attention heads, with their axis in front."""
        return {name: problem.heads_shape + shape for name, shape in self.shapes(problem).items()}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """The initial parameters, with or without the batch axes, of which the heads' is the last; zeros by default."""
        return {name: np.zeros(shape) for name, shape in self.shapes(problem).items()}

    @abstractmethod
    def logits(self, parameters: Parameters, data: ProblemData) -> Array:
        """The logits, shape (n, Q, T, B)."""

    @abstractmethod
    def weights(self, parameters: dict[str, np.ndarray]) -> np.ndarray:
        """The weights of the Att-SVM: W, KQ', p or Wp, with any leading axes."""

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> ReducedProblem:
        """The problem of the parameters that are trained, where others are fixed.

        A parametrization with several parameters overrides it for the case that some are fixed.

        ``fixed``: shape (*lead, ...), some of the parameters, not all; ``lead`` ends with the batch axes of the
        problem.
        """
        assert not fixed, f"{self.name} has one parameter, which is trained"
        return ReducedProblem(self, problem, self.weights, lambda weights: weights)

    def num_factors(self, names: Collection[str]) -> int:
        """How many of these trained parameters are multiplied with each other in the weights."""
        return len(names)

    def limit(self, steps: Steps, problem: Problem, queries: int = 0, *, layers: bool = False) -> Limit:
        """The limit of the weights after such steps, of all heads together.

        ``queries``: their number, for weights of bounded rank. ``layers``: whether there are several.
        """
        heads, groups, rank = problem.num_heads, problem.key_groups, self.largest_rank(problem)
        J = self.frequencies
        return limit_of(steps, self.name, heads, groups, rank=rank, queries=queries, layers=layers, frequencies=J)

    def largest_rank(self, problem: Problem) -> int | None:
        """The largest rank that the weights can have, if that is less than their shape allows."""
        return None

    def default_optimizer(self) -> Optimizer:
        """The default optimiser of :func:`attsvm.train`."""
        return normalized_gradient_descent(0.1)


def descent_on_products() -> Optimizer:
    """One norm over the gradients of parameters that are multiplied, and steps relative to their norm that decay.

    Directions that the solution does not use vanish like a power of the norm, so the sum of the steps must grow without
    bound. The run jumps between support tokens, and ends off the solution by about the last step, so the steps must
    decrease to zero. 1/k is the fastest power with both properties.
    """
    return normalized_gradient_descent(Decaying(0.03, 4000), scope="all", relative=True)


def random_entries(generator: np.random.Generator, batch: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Random entries N(0, 1/d) of a parameter with d rows: where all factors of a product are 0, the gradient is 0."""
    return generator.normal(scale=shape[0] ** -0.5, size=batch + shape)


def with_logits_of(problem: Problem, lead: tuple[int, ...], **replaced: np.ndarray | None) -> Problem:
    """The problem with other keys or queries, whose leading axes are ``lead``. Equal keys stay equal."""
    batch = len(problem.batch_shape)
    own = {name: getattr(problem, name) for name in ARRAY_NAMES}
    spread = {name: np.broadcast_to(x, lead + x.shape[batch:]) for name, x in own.items() if x is not None}
    keys = replaced.get("keys")
    first = None if keys is None else Problem(problem.terms.keys).copies.first
    if keys is not None and first is not None:  # products with equal rows may differ in the last digit
        of = np.broadcast_to(first[..., 0, :, None], keys.shape)
        replaced["keys"] = np.take_along_axis(keys, of, axis=-2)
    return Problem(**(spread | replaced))
