"""Products with some rows of the constraints, at unit norm, for the ℓp solvers: two ways to store the rows."""

from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from jaxtyping import Float

from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.pair_rows import PairRows, paired
from attsvm.svm.constraints.unit_rows import Chosen, RowVector, UnitRows

Vector = Float[np.ndarray, "N D"]


class RowProducts(Protocol):
    """N problems of m rows A in D unknowns."""

    def apply(self, weights: Vector) -> RowVector:
        """Compute A w for each problem."""

    def adjoint(self, multipliers: RowVector) -> Vector:
        """Compute A'λ for each problem."""

    def gram(self, scale: Vector) -> Float[np.ndarray, "N m m"]:
        """A diag(scale) A', scale ≥ 0."""

    def scaled(self, scale: Vector) -> Float[np.ndarray, "N m D"]:
        """A diag(scale), written out."""

    def keep(self, problems: Chosen) -> Self:
        """Return the rows of some of the problems."""


class DenseRows:
    """Rows stored as an array of shape (N, m, D), for many small problems together."""

    def __init__(self, matrix: Float[np.ndarray, "N m D"]) -> None:
        self.matrix = matrix

    def apply(self, weights: Vector) -> RowVector:
        return np.asarray(np.matmul(self.matrix, weights[..., None])[..., 0])

    def adjoint(self, multipliers: RowVector) -> Vector:
        return np.asarray(np.matmul(multipliers[:, None, :], self.matrix)[:, 0])

    def gram(self, scale: Vector) -> Float[np.ndarray, "N m m"]:
        """A diag(scale) A', as S S' so that BLAS does half the work."""
        scaled = self.scaled(np.sqrt(scale))
        return np.asarray(np.matmul(scaled, scaled.mT))

    def scaled(self, scale: Vector) -> Float[np.ndarray, "N m D"]:
        return np.asarray(self.matrix * scale[:, None, :])

    def keep(self, problems: Chosen) -> "DenseRows":
        return DenseRows(self.matrix[problems])


class FactoredRows:
    """Rows l z' of one problem, stored by their factors: m d_k numbers instead of m D with D = d_k d_q.

    ``pairs``: with N = 1.
    """

    def __init__(self, pairs: PairRows) -> None:
        self.pairs = pairs

    def apply(self, weights: Vector) -> RowVector:
        return self.pairs.apply(weights.reshape(1, self.pairs.left.shape[-1], -1))

    def adjoint(self, multipliers: RowVector) -> Vector:
        return self.pairs.adjoint(multipliers).reshape(1, -1)

    def gram(self, scale: Vector) -> Float[np.ndarray, "1 m m"]:
        """A diag(scale) A': entry (i, j) is l_i' diag(H z_i∘z_j) l_j, H the scale as a matrix."""
        left, queries, query_of = self.pairs.left[0], self.pairs.queries[0], self.pairs.query_of
        scale_matrix = scale.reshape(left.shape[1], -1)
        gram = np.empty((1, len(left), len(left)))
        for query, first, end in zip(queries, self.pairs.first, [*self.pairs.first[1:], len(left)], strict=True):
            # all rows up to those of this query: the matrix is symmetric
            # H(z_i∘z_j) for all queries z_j at once
            met = (queries * query) @ scale_matrix.T
            block = left[first:end] @ (left[:end] * met[query_of[:end]]).T
            gram[0, first:end, :end] = block
            gram[0, :first, first:end] = block[:, :first].T
        return gram

    def scaled(self, scale: Vector) -> Float[np.ndarray, "1 m D"]:
        """A diag(scale) as an array; for few rows only."""
        rows = self.pairs.left[0, :, :, None] * self.pairs.queries[0, self.pairs.query_of][:, None, :]
        return np.asarray(rows.reshape(1, len(rows), -1) * scale[:, None, :])

    def keep(self, problems: Chosen) -> "FactoredRows":
        """The object itself, because there is one problem."""
        return self


P = TypeVar("P", bound=RowProducts)


class Selection(NamedTuple, Generic[P]):
    """Some rows of N problems at unit norm: products with them, and their right sides and places."""

    products: P
    unit: UnitRows

    def keep(self, problems: Chosen) -> "Selection[P]":
        return Selection(self.products.keep(problems), self.unit.keep(problems))


def dense_selection(constraints: Constraints) -> Selection[DenseRows]:
    """All rows of constraints with one batch axis, stored densely."""
    unit = UnitRows.of(constraints)
    # differences are k_t − k_r; the sign makes a kept token's margin positive
    left = constraints.differences(unit.position) * (unit.there / -unit.norms)[..., None]
    queries = constraints.queries_of(unit.position)
    matrix = (left[..., :, None] * queries[..., None, :]).reshape(*unit.norms.shape, -1)
    return Selection(DenseRows(matrix), unit)


def factored_selection(constraints: Constraints) -> Selection[FactoredRows]:
    """All rows of one problem (batch shape (1,)), by their factors."""
    unit = UnitRows.of(constraints)
    left, queries, query_of, first = paired(constraints, unit.position)
    return Selection(FactoredRows(PairRows(left / -unit.norms[..., None], queries, query_of, first)), unit)
