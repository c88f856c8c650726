"""The problems that their answers in the Frobenius norm leave to the solvers of other norms."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Int
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.loop import Point, Watch
from attsvm.svm.methods.frobenius.choice import solve_frobenius
from attsvm.svm.methods.registry import CACHED, Candidate, SolverSettings, undecided


class Unsolved(NamedTuple):
    """Problems with one batch axis, with their answers in the Frobenius norm."""

    constraints: Constraints
    weights: Weights
    multipliers: TokenValues
    settings: SolverSettings
    watch: Watch  # reports the steps of all methods, and knows whether the user has stopped them

    def set(self, **settings: Any) -> "Unsolved":
        """Return the same with other settings."""
        return self._replace(settings=replace(self.settings, **settings))


Solved = tuple[Point, str, str]
"""Points, with the method that found them, "" if there was none, and why it was chosen."""


def from_frobenius(
    constraints: Constraints,
    settings: SolverSettings,
    solve: Callable[[Unsolved], Solved],
    method: str,
    numbers: int,
    alone: bool = False,
) -> Candidate:
    """Solve the problems that are not decided by their answers in the Frobenius norm.

    Whether a selection can be kept does not depend on the norm: the Farkas multipliers are those of the Frobenius norm.
    Problems that are left when the user stops keep its answer.

    ``method``: named if every answer is that of the Frobenius norm. ``numbers``: in the largest array of one problem,
    which says how many are solved together. ``alone``: whether the Frobenius norm takes one problem at a time, so that
    each answer has the digits of that of the problem alone.
    """
    if alone:
        each = [solve_frobenius(constraints[index], SolverSettings()) for index in np.ndindex(constraints.batch_shape)]
        frobenius = Candidate.joined(each)
    else:
        frobenius = solve_frobenius(constraints, SolverSettings())
    flat = constraints.with_one_axis()
    weights = np.array(frobenius.weights, dtype=np.float64).reshape(flat.batch_shape + flat.weights_shape)
    multipliers = np.array(frobenius.multipliers, dtype=np.float64).reshape(flat.inequality.shape)
    steps, watch = np.zeros(len(weights), dtype=int), Watch(settings.report)
    used, why = method, "the answer in the Frobenius norm is kept"
    # weights of 0 are the answer in the Frobenius norm where it was not found
    to_solve = undecided(flat) & weights.any(axis=(-2, -1)) & ~frobenius.ray.reshape(-1)
    for index in chunks(to_solve, numbers):
        if watch.stopped:
            break
        some = flat if len(index) == len(weights) else flat[index]
        left = Unsolved(some, weights[index], multipliers[index], settings.of_problems(index), watch)
        found, by, because = solve(left)
        weights[index] = found.weights.reshape(-1, *flat.weights_shape)
        multipliers[index], steps[index] = found.multipliers, found.steps
        if by:
            used, why = by, because
    return Candidate(weights, multipliers, frobenius.ray, steps, used, why).with_axes_of(constraints)


def chunks(chosen: Bool[np.ndarray, " N"], numbers: int) -> Iterator[Int[np.ndarray, " chunk"]]:
    """Indices of the chosen problems, as many at a time as stay in the processor's cache, but at least one.

    ``numbers``: numbers in the largest array of one problem.
    """
    index = np.flatnonzero(chosen)
    length = max(1, CACHED // max(1, numbers))
    for first in range(0, len(index), length):
        yield index[first : first + length]
