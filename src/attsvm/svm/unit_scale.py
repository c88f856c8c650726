"""Problems whose squares overflow or underflow: solved at unit scale, and the answer scaled back."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from attsvm.problem import Problem
from attsvm.problem.checks import of_one_head
from attsvm.results import Status, plain, plain_status
from attsvm.svm.solution import Solution

USUAL = 40
"""Tokens and queries between 2^-40 and 2^40 are left as they are."""

SMALLEST = 1e-290
"""Smaller values have lost digits to underflow, or their smaller entries have."""


class UnitScale(NamedTuple):
    """A problem with keys and queries divided by powers of two, which changes no digit."""

    problem: Problem
    # the rows were divided by 2**exponent, so the weights are larger by this factor
    exponent: Int[np.ndarray, "*batch"]
    slack: float | None  # C for the scaled rows: larger by the square of this factor


def unit_scale(problem: Problem, slack: float | None) -> UnitScale | None:
    """The problem with a largest key and query between 1/2 and 1.

    None if its scale is usual, or if C would overflow or underflow or would not be the same for a whole batch.
    """
    keys, queries = problem.tokens if problem.keys is None else problem.keys, problem.queries
    exponents = [_exponent(keys, 3)]
    if queries is not None:
        exponents.append(_exponent(queries, 3 if problem.has_query_axis else 2))
    if max(int(np.abs(each).max()) for each in exponents) <= USUAL:
        return None
    batch = problem.batch_shape
    total = sum(np.broadcast_to(each.reshape(each.shape[: len(batch)]), batch) for each in exponents)
    if slack is not None:
        slack = float(np.ldexp(float(slack), 2 * int(np.ravel(total)[0])))
        if np.ptp(total) > 0 or not np.finfo(np.float64).tiny <= slack < np.inf:  # below, C would lose digits
            return None
    arrays = {
        "tokens": np.ldexp(keys, -exponents[0]),
        "queries": None if queries is None else np.ldexp(queries, -exponents[1]),
        "mask": problem.mask,
        "query_mask": problem.query_mask,
    }
    given = {name: array for name, array in arrays.items() if array is not None}
    if problem.num_heads is not None:
        given = of_one_head(given, len(problem.model_shape))
    return UnitScale(Problem(**given), np.asarray(total), slack)


def _exponent(array: np.ndarray, own_axes: int) -> Int[np.ndarray, "*own"]:
    """Return the exponent of the largest number in the last axes, which are kept with length 1."""
    largest = np.abs(array).max(axis=tuple(range(-own_axes, 0)), keepdims=True)
    return np.asarray(np.frexp(largest)[1])


def at_own_scale(solution: Solution, exponent: Int[np.ndarray, "*batch"]) -> Solution:
    """The solution of the problem before it was scaled; ``inaccurate`` and 0 where its numbers are no floats."""
    infeasible = np.asarray(solution.status) == Status.INFEASIBLE
    of_first_head: tuple[Any, ...] = (..., *[0] * solution.norm.head_axes)
    exponent = exponent[of_first_head]  # all heads have the same tokens and queries
    exponent = np.where(infeasible, 0, np.broadcast_to(exponent, infeasible.shape))
    of_dual = exponent if solution.slack is None else 2 * exponent

    def times(array: np.ndarray | float, power: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        return np.asarray(np.ldexp(array, power.reshape(power.shape + (1,) * (array.ndim - power.ndim))))

    value, dual = times(solution.value, -exponent), times(solution.dual, -of_dual)
    sizes = np.stack([value, np.abs(dual).reshape(*value.shape, -1).max(axis=-1, initial=0.0)])
    before = np.asarray(solution.value)
    kept = infeasible | (before == 0) | (np.isfinite(sizes).all(axis=0) & (value >= SMALLEST) & (sizes[1] != 0))

    def where_kept(array: np.ndarray, otherwise: float) -> np.ndarray:
        return np.where(kept.reshape(kept.shape + (1,) * (array.ndim - kept.ndim)), array, otherwise)

    return replace(
        solution,
        status=plain_status(np.where(kept, solution.status, Status.INACCURATE.value)),
        direction=where_kept(times(solution.direction, -exponent), 0.0),
        value=plain(where_kept(value, 0.0)),
        margin=plain(where_kept(times(solution.margin, exponent), np.nan)),
        dual=where_kept(dual, 0.0),
        support=where_kept(solution.support, 0.0).astype(bool),
        gap=plain(where_kept(np.asarray(solution.gap), np.inf)),
        violation=plain(where_kept(np.asarray(solution.violation), 1.0)),
        raw_violation=plain(where_kept(np.asarray(solution.raw_violation), 1.0)),
        objective=plain(where_kept(times(solution.objective, -of_dual), 0.0)),
    )
