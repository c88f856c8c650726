"""The least γ2 norm, by the largest margin over its unit ball."""

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.norms import Gamma2, Norm
from attsvm.norms.elliptope import Square, Vector, largest_margin
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.pair_rows import PairRows, reduced_rows
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.registry import solver

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
    rows = _Rows(reduced.rows, unit.right[0], equality)
    split = constraints.weights_shape[0]
    found = largest_margin(rows, start, split)
    multipliers = unit.spread(found.multipliers[None], constraints.inequality.shape)[0]
    why = "the norm is a semidefinite program with rows of rank one"
    corner = found.matrix[:split, split:]
    return Candidate(corner, multipliers, frobenius.ray, np.asarray(found.steps), ELLIPTOPE, why)


class _Rows:
    """Rows l z' of one problem."""

    def __init__(self, rows: PairRows, right: Vector, equality: Bool[np.ndarray, " m"]) -> None:
        self.rows, self.right, self.equality = rows, right, equality
        self.left: Float[np.ndarray, "m d_k"] = rows.left[0]
        self.queries: Float[np.ndarray, "U d_q"] = rows.queries[0]
        self.query_of: Int[np.ndarray, " m"] = rows.query_of

    def apply(self, corner: np.ndarray) -> Vector:
        """A(X₁₂)."""
        return np.asarray(self.rows.apply(corner[None])[0])

    def adjoint(self, multipliers: Vector) -> np.ndarray:
        """A*(λ)."""
        return np.asarray(self.rows.adjoint(multipliers[None])[0])

    def equations(self, matrix: Square, inverse: Square) -> tuple[np.ndarray, np.ndarray]:
        """From the products of all pairs of factors with X and Z⁻¹."""
        split = self.left.shape[1]
        left, queries, of = self.left, self.queries, self.query_of
        left_images = [each[:, :split] @ left.T for each in (matrix, inverse)]
        query_images = [(each[:, split:] @ queries.T)[:, of] for each in (matrix, inverse)]
        crossed = 0.5 * (left_images[0] * query_images[1] + query_images[0] * left_images[1])
        left_left = [left @ image[:split] for image in left_images]
        query_query = [(queries @ image[split:])[of] for image in query_images]
        left_query = [left @ image[:split] for image in query_images]
        products = left_left[0] * query_query[1] + left_left[1] * query_query[0]
        mixed = left_query[0] * left_query[1].T
        products += mixed + mixed.T
        products *= 0.25
        return crossed, products
