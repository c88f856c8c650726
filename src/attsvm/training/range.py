"""The sizes of weights for which logits, outputs and gradients are floats."""

import math
from typing import Any, NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training.attention.base import AnyArray, ProblemData
from attsvm.training.objective import Objective

STEPS_BETWEEN_BORDERS = 32
"""After so many steps powers of two are taken out of weights that have grown beyond the border."""


class Range(NamedTuple):
    """Sizes of the trained parameters; the trailing axis of each array holds the trials, or has length 1."""

    # the largest allowed entry of each trained parameter, so that no logit and no output can overflow
    limits: dict[str, AnyArray]
    # the power of two above which powers of two are taken out of the attention's parameters; every softmax is saturated
    border: AnyArray


def range_of(
    objective: Objective,
    trained: dict[str, AnyArray],
    fixed: dict[str, AnyArray],
    data: ProblemData,
    dtype: np.dtype[Any],
) -> Range:
    """The range of the parameters of one slice of trials, with the trials last."""
    heads = objective.heads
    longest = np.log2(np.finfo(dtype).max) - 3
    of_attention, of_head = objective.split(trained, fixed)

    def products(of_piece: dict[str, Any], *factors: np.ndarray) -> np.ndarray:
        # each parameter at most once in a product, which sums over all its axes but the trials'
        terms = math.prod(math.prod(x.shape[:-1]) for x in of_piece.values())
        constant = (x for name, x in of_piece.items() if name in fixed)
        return np.asarray(math.log2(terms) + sum((log_largest(x) for x in (*factors, *constant)), np.zeros(1)))

    moved = [name for name in of_attention if name not in fixed]
    k = max(len(moved), 1)
    logits = products(of_attention, data.keys, data.queries)
    most = (longest - np.maximum(logits, 0.0)) / k
    limits = dict.fromkeys(moved, most)
    if objective.head_names:
        outputs = products(of_head, data.tokens) + np.log2(heads.count)
        limits |= dict.fromkeys(objective.head_names, (longest - np.maximum(outputs, 0.0)) / len(objective.head_names))
    # products of the parameters have squares that are floats, and relative steps of size 1 double them at most
    border = np.minimum(half_range(dtype) // k, np.floor(most) - STEPS_BETWEEN_BORDERS - 1).astype(np.int64)
    smallest = {name: heads.reduced(np.min, np.exp2(x).astype(dtype)) for name, x in limits.items()}
    return Range(smallest, heads.reduced(np.min, border))


def half_range(dtype: Any) -> int:
    """The exponent of two whose square is still a float."""
    return int(np.finfo(dtype).maxexp // 2 - 2)


def check_range(problem: Problem, dtype: np.dtype[Any]) -> None:
    """Check that logits and gradients of a problem are floats for weights of about 1.

    Raises ProblemError if they are not.
    """
    (keys, queries, *_), allowed = problem.terms, problem.canonical.allowed
    head = np.ones(1) if problem.head is None else problem.head
    sizes = [float(np.max(np.abs(x), initial=0.0)) for x in (keys, queries, problem.tokens, head)]
    # a gradient sums, over all tokens, products of a key, a query and a difference of two outputs
    terms = 16.0 * problem.key_dim * problem.query_dim * problem.dim * allowed[(0,) * len(problem.batch_shape)].size
    excess = np.log2(terms) + sum(np.log2(max(size, 1.0)) for size in sizes) - np.log2(np.finfo(dtype).max)
    if excess > 0:
        most = sizes[2] * 2.0 ** -(excess / 2)
        raise ProblemError(
            f"tokens: expected entries up to about {most:.1g}, got {sizes[2]:.3g}: products of keys, queries and "
            f"outputs must be numbers of {dtype}; rescale the problem"
        )


def log_largest(x: np.ndarray) -> np.ndarray:
    """Logarithm to base 2 of the largest entry of each trial, which the trailing axis holds; -inf for zeros."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log2(np.max(np.abs(x), axis=tuple(range(x.ndim - 1)), initial=0.0).astype(np.float64)))
