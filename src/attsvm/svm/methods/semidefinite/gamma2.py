"""The least γ2 norm, by the largest margin over its unit ball."""

import numpy as np

from attsvm.norms import Gamma2, Norm
from attsvm.norms.elliptope import Diagonal, largest_margin
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.pair_rows import reduced_rows
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.pair_margins import PairMargins

ELLIPTOPE = "elliptope"

NEAR = 0.1
"""Multipliers of the Frobenius norm are raised to this, relative to the largest, to start inside the cone."""


@solver(Gamma2, methods=(ELLIPTOPE,))
def solve_gamma2(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least γ2 norm; see :func:`attsvm.norms.elliptope.largest_margin`.

    Whether a selection can be kept does not depend on the norm: the Farkas multipliers are those of the Frobenius norm.
    """
    if constraints.batch_shape:
        each = [
            solve_gamma2(constraints[index], norm, settings.of_problem(k, constraints.batch_shape), method)
            for k, index in enumerate(np.ndindex(constraints.batch_shape))
        ]
        return Candidate.joined(each).with_axes_of(constraints)
    frobenius = solve_frobenius(constraints, Settings())
    flat = constraints.with_one_axis()
    if frobenius.ray.any() or not undecided(flat).any():
        return frobenius
    # the norm is that of these coordinates, so the weights are not restricted to the span of the data
    reduced = reduced_rows(flat, left=False, right=False)
    unit = reduced.unit
    start = unit.gather(frobenius.multipliers[None])[0]
    least = NEAR * np.abs(start).max()
    equality = unit.equality[0]
    start = np.where(equality, start, np.maximum(start, least))
    split = constraints.weights_shape[0]
    rows = PairMargins([reduced.rows], [unit])
    found = largest_margin(rows, Diagonal(sum(constraints.weights_shape)), start, split)
    multipliers = unit.spread(found.multipliers[None], constraints.inequality.shape)[0]
    why = "the norm is a semidefinite program with rows of rank one"
    corner = found.matrices[0, :split, split:]
    return Candidate(corner, multipliers, frobenius.ray, np.asarray(found.steps), ELLIPTOPE, why)
