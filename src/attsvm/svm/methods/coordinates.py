"""Norms whose Att-SVM is that of another norm: multiples, and norms of P W R."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attsvm.norms import Norm, Scaled, Weighted
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.registry import find_candidate, solver, solver_of


@solver(Scaled, methods=lambda norm: _methods_of_part(norm))
def solve_scaled(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least c N(W): the candidate for N."""
    assert isinstance(norm, Scaled)  # what it is registered for
    found = find_candidate(constraints, norm.of, settings, method)
    return found._replace(norm=None if found.norm is None else replace(norm, of=found.norm))


@solver(Weighted, methods=lambda norm: _methods_of_part(norm))
def solve_weighted(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least N(P W R): with V = P W R, it is the least N(V) for keys P⁻ᵀ k and queries R⁻¹ z.

    The multipliers are the same. The certificate is computed in the given coordinates, so the change of coordinates
    need not be exact.
    """
    assert isinstance(norm, Weighted)  # what it is registered for
    norm.check_shape(constraints.weights_shape)
    inner = replace(
        constraints,
        keys=_mapped(norm.left, constraints.keys),
        references=None if constraints.references is None else _mapped(norm.left, constraints.references),
        queries=_mapped(None if norm.right is None else norm.right.T, constraints.queries),
        given=None,
    )
    start = settings.warm_start
    found = find_candidate(
        inner, norm.of, replace(settings, warm_start=None if start is None else norm.inner(start)), method
    )
    with_parts = None if found.norm is None else replace(norm, of=found.norm)
    return found._replace(weights=norm.outer(found.weights), norm=with_parts)


def _mapped(matrix: np.ndarray | None, vectors: np.ndarray) -> np.ndarray:
    """Vectors along the last axis times the inverse of a matrix; the identity for None."""
    if matrix is None:
        return vectors
    solved = np.linalg.solve(matrix.T, vectors.reshape(-1, vectors.shape[-1]).T)
    return np.asarray(solved.T.reshape(vectors.shape))


def _methods_of_part(norm: Norm) -> Sequence[str]:
    (part,) = norm.parts
    return solver_of(part).methods(part)
