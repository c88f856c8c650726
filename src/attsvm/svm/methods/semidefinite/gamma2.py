"""The least γ2 norm by one semidefinite program, for small problems."""

import numpy as np

from attsvm.norms import Gamma2, Norm
from attsvm.norms.conic import Triangle, solved
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.registry import solver

CONIC = "conic"


@solver(Gamma2, methods=(CONIC,))
def solve_gamma2(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least γ2 norm, by Clarabel.

    Whether a selection can be kept does not depend on the norm: the Farkas multipliers are those of the Frobenius norm.
    """
    if constraints.batch_shape:
        each = [
            solve_gamma2(constraints[index], norm, settings.of_problem(k, constraints.batch_shape), method)
            for k, index in enumerate(np.ndindex(constraints.batch_shape))
        ]
        return Candidate.joined(each).with_axes_of(constraints)
    frobenius = solve_frobenius(constraints, Settings())
    if frobenius.ray.any() or not undecided(constraints.with_one_axis()).any():
        return frobenius
    weights, multipliers = _least_gamma2(constraints)
    why = "the norm is a semidefinite program"
    return Candidate(weights, multipliers, frobenius.ray, np.asarray(1), CONIC, why)


def _least_gamma2(constraints: Constraints) -> tuple[np.ndarray, np.ndarray]:
    """Weights in the corner of a semidefinite matrix whose diagonal is at most t, and the multipliers of the rows."""
    d_k, d_q = constraints.weights_shape
    rows = constraints.rows()
    order = np.argsort(~rows.equality, kind="stable")  # equalities first
    triangle = Triangle(d_k + d_q)
    corner = np.flatnonzero(triangle.is_in_corner(d_k))
    entry = triangle.rows[corner] * d_q + triangle.columns[corner] - d_k
    number = len(triangle.scales)
    scale = float(rows.right.max(initial=0.0)) or 1.0  # weights of about 1
    margins = np.zeros((len(order), number + 1))
    margins[:, corner] = -rows.matrix[order][:, entry]
    diagonal = np.zeros((triangle.size, number + 1))
    diagonal[np.arange(triangle.size), triangle.diagonal] = 1.0
    diagonal[:, -1] = -1.0
    found, shadow = solved(
        np.eye(number + 1)[-1],
        np.concatenate([margins, diagonal]),
        np.concatenate([-rows.right[order] / scale, np.zeros(triangle.size)]),
        np.concatenate([-np.diag(triangle.scales), np.zeros((number, 1))], axis=1),
        np.zeros(number),
        triangle.size,
        equalities=int(rows.equality.sum()),
    )
    weights = np.zeros(d_k * d_q)
    weights[entry] = found[corner] * scale
    multipliers = np.empty(len(order))
    multipliers[order] = shadow[: len(order)]
    return weights.reshape(d_k, d_q), constraints.spread(multipliers, rows.position)
