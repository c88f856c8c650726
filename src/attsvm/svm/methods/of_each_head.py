"""The least sum and the least maximum of a norm over attention heads: the heads are solved one by one."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attsvm.norms import MaxOfHeads, Norm, SumOfHeads
from attsvm.norms.heads import OfEachHead
from attsvm.svm.certificate import certify
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.heads import split_heads
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.registry import find_candidate, solver, solver_of


def _methods(norm: Norm) -> Sequence[str]:
    (of_head,) = norm.parts
    return solver_of(of_head).methods(of_head)


@solver(SumOfHeads, methods=_methods)
def solve_sum(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least sum: the solution of each head, and its multipliers with N* = 1."""
    return _solve(constraints, norm, settings, method, lambda value: np.ones(value.shape, bool))


@solver(MaxOfHeads, methods=_methods)
def solve_max(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least maximum: the solution of each head, and the multipliers of the head with the largest value."""
    return _solve(
        constraints,
        norm,
        settings,
        method,
        lambda value: np.arange(value.shape[-1]) == np.argmax(value, axis=-1)[..., None],
    )


def _solve(
    constraints: Constraints,
    norm: Norm,
    settings: Settings,
    method: str | None,
    counted: Callable[[np.ndarray], np.ndarray],
) -> Candidate:
    assert isinstance(norm, OfEachHead)
    assert norm.num_heads is not None
    heads = split_heads(constraints, norm.num_heads)
    start, multipliers = settings.warm_start, settings.warm_multipliers
    own = replace(
        settings,
        warm_start=None if start is None else start.reshape(heads.batch_shape + heads.weights_shape),
        warm_multipliers=None if multipliers is None else multipliers.reshape(heads.right.shape),
    )
    found = find_candidate(heads, norm.of, own, method)
    of = found.norm or norm.of
    done = certify(heads, of, found.weights, found.multipliers)
    impossible = np.asarray(found.ray.any(axis=-1))
    kept = np.where(impossible[..., None], found.ray, counted(np.asarray(done.value)))
    dual = np.where(found.ray[..., None, None, None], found.multipliers, done.dual) * kept[..., None, None, None]
    return Candidate(
        done.weights.reshape(constraints.batch_shape + constraints.weights_shape),
        dual.reshape(constraints.right.shape),
        impossible,
        np.asarray(found.steps).sum(axis=-1),
        found.method,
        found.why,
        replace(norm, of=of),
    )
