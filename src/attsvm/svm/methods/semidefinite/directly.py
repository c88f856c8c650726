"""The optimum on its face, from a point nearby, with its gap: the last steps of the interior point, or all steps."""

import numpy as np
from jaxtyping import Bool

from attsvm._utils.linear_algebra import singular_values
from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Point
from attsvm.svm.methods.semidefinite.cone import Problems, Values, measure
from attsvm.svm.methods.semidefinite.face import Face, FaceRows, solve_on_face


def solve_directly(
    face: Face,
    problems: Problems,
    weights: Block,
    multipliers: RowVector,
    held: Bool[np.ndarray, "N m"],
    value: Values,
    target: float,
) -> Point:
    """Least N(W) for N problems together; the gap is ∞ where the iteration did not converge.

    ``face``: the norm. ``weights``, ``multipliers``, ``held``, ``value``: see :func:`solve_on_face`. ``target``: see
    :func:`measure`.
    """
    rows = FaceRows.of(problems.rows, problems.right, problems.equality)
    long = weights.shape[1] >= weights.shape[2]
    found = solve_on_face(face, rows, weights if long else weights.mT, multipliers, held, value)
    weights = found.weights if long else found.weights.mT
    multipliers = np.where(problems.equality, found.multipliers, np.maximum(found.multipliers, 0.0))
    norm, size = face.values(singular_values(weights), singular_values(problems.rows.adjoint(multipliers)))
    multipliers /= size[:, None]
    error, _ = measure(problems, weights, problems.rows.apply(weights), norm, multipliers, target)
    return Point(weights, multipliers, np.where(found.converged, error, np.inf), found.steps)
