"""The sizes of weights for which logits, outputs and gradients are floats."""

import math
from typing import Any, NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.optimizers.exponents import Window, half_range
from attsvm.problem import Problem
from attsvm.training.attention import AnyArray, Data
from attsvm.training.engine.objective import Objective


class Range(NamedTuple):
    """The allowed sizes of the trained parameters; the trailing axis of each array holds the trials, or has length
    1.
    """

    # the largest allowed entry of each trained parameter, so that no logit and no output can overflow
    limits: dict[str, AnyArray]
    window: Window  # the sizes of the attention's parameters that have the exponent 0


def range_of(
    objective: Objective, trained: dict[str, AnyArray], fixed: dict[str, AnyArray], data: Data, dtype: np.dtype[Any]
) -> Range:
    """The range of the parameters of one slice of trials, with the trials last."""
    heads = objective.heads
    longest = np.log2(np.finfo(dtype).max) - 3
    of_attention, of_head = objective.split(trained, fixed)

    def products(of_piece: dict[str, Any], *factors: np.ndarray) -> np.ndarray:
        # each parameter at most once in a product, which sums over all its axes but the trials'
        terms = math.prod(math.prod(x.shape[:-1]) for x in of_piece.values())
        constant = (x for name, x in of_piece.items() if name in fixed)
        return np.asarray(np.log2(terms) + sum((log_largest(x) for x in (*factors, *constant)), np.zeros(1)))

    moved = [name for name in of_attention if name not in fixed]
    k = max(len(moved), 1)
    logits = products(of_attention, data.keys, data.queries)
    most = (longest - np.maximum(logits, 0.0)) / k
    limits = dict.fromkeys(moved, most)
    if objective.head_names:
        outputs = products(of_head, data.tokens) + np.log2(heads.number)
        limits |= dict.fromkeys(objective.head_names, (longest - np.maximum(outputs, 0.0)) / len(objective.head_names))
    # logits below a hundredth of the rounding error of 1 do not change a softmax
    uniform = np.floor((np.log2(np.finfo(dtype).eps) - 7 - logits) / k)
    low = np.minimum(-half_range(dtype) // k, uniform).astype(np.int64)
    high = np.minimum(half_range(dtype) // k, np.floor(most) - 1).astype(np.int64)
    limits = heads.spread({name: np.exp2(x).astype(dtype) for name, x in limits.items()})
    return Range(limits, Window(heads.most(low), heads.least(high)))


def check_range(problem: Problem, dtype: np.dtype[Any]) -> None:
    """Check that logits and gradients of a problem are floats for weights of about 1.

    Raises ProblemError if they are not.
    """
    keys, queries, allowed, _ = problem.canonical
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
