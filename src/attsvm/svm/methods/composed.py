"""Multiples of a norm, and its sum and maximum over attention heads: the solver of the norm inside solves them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attsvm.norms import MaxOfHeads, Norm, OfEachHead, Scaled, SumOfHeads, parts_of
from attsvm.svm.certificate import certify
from attsvm.svm.constraints.attention_heads import beside_heads, split_heads
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.methods.registry import Candidate, SolverSettings, find_candidate, solver, solver_of
from attsvm.svm.right_sides import repaired


def _methods(norm: Norm) -> Sequence[str]:
    (inner,) = parts_of(norm)
    return solver_of(inner).methods(inner)


@solver(Scaled, methods=_methods)
def solve_scaled(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Find the least c N(W): the candidate for N."""
    assert isinstance(norm, Scaled)  # what it is registered for
    found = find_candidate(constraints, norm.of, settings, method)
    return found._replace(norm=None if found.norm is None else replace(norm, of=found.norm))


@solver(SumOfHeads, methods=_methods)
def solve_sum(constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None) -> Candidate:
    """Find the least sum: the solution of each head, and its multipliers with N* = 1."""
    return _solve_heads(constraints, norm, settings, method, lambda value: np.ones(value.shape, bool))


@solver(MaxOfHeads, methods=_methods)
def solve_max(constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None) -> Candidate:
    """Find the least maximum: the solution of each head, and the multipliers of the head with the largest value."""
    return _solve_heads(
        constraints,
        norm,
        settings,
        method,
        lambda value: np.arange(value.shape[-1]) == np.argmax(value, axis=-1)[..., None],
    )


def _solve_heads(
    constraints: Constraints,
    norm: Norm,
    settings: SolverSettings,
    method: str | None,
    counted: Callable[[np.ndarray], np.ndarray],
) -> Candidate:
    """Solve each head, or group of heads, by itself; ``counted`` says whose multipliers count, given the values."""
    assert isinstance(norm, OfEachHead)
    assert norm.num_heads is not None
    heads = split_heads(constraints, norm.num_heads)
    of_heads = heads.batch_shape + heads.weights_shape
    if norm.num_groups is not None:
        heads = beside_heads(heads, norm.num_groups)
    start, multipliers = settings.warm_start, settings.warm_multipliers
    own = replace(
        settings,
        warm_start=None if start is None else norm.beside(start.reshape(of_heads)),
        warm_multipliers=None if multipliers is None else multipliers.reshape(heads.right.shape),
    )
    # the constraints of the heads, or groups, share no weights, so each is least by itself
    found = repaired(heads, find_candidate(heads, norm.of, own, method))
    of = found.norm or norm.of
    done = certify(heads, of, found.weights, found.multipliers)
    impossible = np.asarray(found.ray.any(axis=-1))
    # the dual norm of a sum is the largest of the heads, that of a maximum the sum
    kept = np.where(impossible[..., None], found.ray, counted(np.asarray(done.value)))
    dual = np.where(found.ray[..., None, None, None], found.multipliers, done.dual) * kept[..., None, None, None]
    return Candidate(
        norm.apart(done.weights, norm.num_heads).reshape(constraints.batch_shape + constraints.weights_shape),
        dual.reshape(constraints.right.shape),
        impossible,
        np.asarray(found.steps).sum(axis=-1),
        found.method,
        found.why,
        replace(norm, of=of),
    )
