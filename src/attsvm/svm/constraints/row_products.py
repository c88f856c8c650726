"""Products with some rows of the constraints, at unit norm, for the ℓp solvers: two ways to store the rows."""

from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenValues

Vector = Float[np.ndarray, "N D"]
RowVector = Float[np.ndarray, "N m"]


class RowProducts(Protocol):
    """N problems of m rows A in D unknowns."""

    def apply(self, weights: Vector) -> RowVector:
        """A w."""

    def adjoint(self, multipliers: RowVector) -> Vector:
        """A'λ."""

    def gram(self, scale: Vector) -> Float[np.ndarray, "N m m"]:
        """A diag(scale) A', scale ≥ 0."""

    def scaled(self, scale: Vector) -> Float[np.ndarray, "N m D"]:
        """A diag(scale), written out."""

    def keep(self, problems: Bool[np.ndarray, " N"]) -> Self:
        """The rows of some of the problems."""


class DenseRows:
    """Rows stored as an array of shape (N, m, D), for many small problems together."""

    def __init__(self, matrix: Float[np.ndarray, "N m D"]) -> None:
        self.matrix = matrix

    def apply(self, weights: Vector) -> RowVector:
        """A w."""
        return np.asarray(np.matmul(self.matrix, weights[..., None])[..., 0])

    def adjoint(self, multipliers: RowVector) -> Vector:
        """A'λ."""
        return np.asarray(np.matmul(multipliers[:, None, :], self.matrix)[:, 0])

    def gram(self, scale: Vector) -> Float[np.ndarray, "N m m"]:
        """A diag(scale) A', as S S' so that BLAS does half the work."""
        scaled = self.scaled(np.sqrt(scale))
        return np.asarray(np.matmul(scaled, scaled.mT))

    def scaled(self, scale: Vector) -> Float[np.ndarray, "N m D"]:
        """A diag(scale), written out."""
        return np.asarray(self.matrix * scale[:, None, :])

    def keep(self, problems: Bool[np.ndarray, " N"]) -> "DenseRows":
        """The rows of some of the problems."""
        return DenseRows(self.matrix[problems])


class FactoredRows:
    """Rows l z' of one problem, stored by their factors: m d_k numbers instead of m D with D = d_k d_q.

    Parameters
    ----------
    left : ndarray, shape (m, d_k)
        Sorted by query.
    queries : ndarray, shape (U, d_q)
    counts : int ndarray, shape (U,)
        How many consecutive rows each query has, at least one.
    """

    def __init__(
        self,
        left: Float[np.ndarray, "m d_k"],
        queries: Float[np.ndarray, "U d_q"],
        counts: Int[np.ndarray, " U"],
    ) -> None:
        self.left, self.queries, self.counts = left, queries, counts
        self.query_of = np.repeat(np.arange(len(counts)), counts)
        self.first = np.cumsum(counts) - counts

    def apply(self, weights: Vector) -> RowVector:
        """A w."""
        images = self.queries @ weights.reshape(self.left.shape[1], -1).T
        return np.asarray(np.vecdot(self.left, images[self.query_of])[None])

    def adjoint(self, multipliers: RowVector) -> Vector:
        """A'λ."""
        pulled = np.add.reduceat(self.left * multipliers[0, :, None], self.first, axis=0)
        return np.asarray((pulled.T @ self.queries).reshape(1, -1))

    def gram(self, scale: Vector) -> Float[np.ndarray, "1 m m"]:
        """A diag(scale) A': entry (i, j) is l_i' diag(H z_i∘z_j) l_j, H the scale as a matrix."""
        scale_matrix = scale.reshape(self.left.shape[1], -1)
        gram = np.empty((1, len(self.left), len(self.left)))
        for query, first, count in zip(self.queries, self.first, self.counts, strict=True):
            own = slice(first, first + count)
            # all rows up to those of this query: the matrix is symmetric
            met = (self.queries * query) @ scale_matrix.T
            block = self.left[own] @ (self.left[: first + count] * met[self.query_of[: first + count]]).T
            gram[0, own, : first + count] = block
            gram[0, :first, own] = block[:, :first].T
        return gram

    def scaled(self, scale: Vector) -> Float[np.ndarray, "1 m D"]:
        """A diag(scale) as an array; for few rows only."""
        rows = self.left[:, :, None] * self.queries[self.query_of][:, None, :]
        return np.asarray(rows.reshape(1, len(rows), -1) * scale[:, None, :])

    def keep(self, problems: Bool[np.ndarray, " N"]) -> "FactoredRows":
        """The object itself, because there is one problem."""
        return self


P = TypeVar("P", bound=RowProducts)


class Selection(NamedTuple, Generic[P]):
    """Some rows of N problems, row k of each at ``position[k]`` of the flattened (n, Q, T).

    Attributes
    ----------
    products : DenseRows or FactoredRows
    right : ndarray, shape (N, m)
        b over the rows' norms. A row that a problem does not have is a row of zeros with right side −1, always true.
    equality : bool ndarray, shape (N, m)
    norms : ndarray, shape (N, m)
        Of the original rows; 1 where a problem has no row.
    position : int ndarray, shape (m,)
    """

    products: P
    right: RowVector
    equality: Bool[np.ndarray, "N m"]
    norms: RowVector
    position: Int[np.ndarray, " m"]

    def keep(self, problems: Bool[np.ndarray, " N"]) -> "Selection[P]":
        """The rows of some of the problems."""
        return Selection(
            self.products.keep(problems),
            self.right[problems],
            self.equality[problems],
            self.norms[problems],
            self.position,
        )

    def spread(self, multipliers: RowVector, shape: tuple[int, ...]) -> TokenValues:
        """Multipliers of unit rows as multipliers of the original rows, in their places."""
        spread = np.zeros((len(multipliers), int(np.prod(shape))))
        spread[:, self.position] = multipliers / self.norms
        return spread.reshape(len(multipliers), *shape)

    def gather(self, multipliers: TokenValues) -> RowVector:
        """The reverse of :meth:`spread`."""
        return np.asarray(multipliers.reshape(len(multipliers), -1)[:, self.position] * self.norms)


def dense_selection(constraints: Constraints) -> Selection[DenseRows]:
    """All rows of constraints with one leading axis, stored densely."""
    batch = constraints.batch_shape[0]
    norms = constraints.norms.reshape(batch, -1)
    position = np.flatnonzero((norms > 0).any(axis=0))
    norms = norms[:, position]
    there = norms > 0
    norms = np.where(there, norms, 1.0)
    left, right_factor = _factors(constraints, position)
    left = left * (there / norms)[..., None]
    matrix = (left[..., :, None] * right_factor[..., None, :]).reshape(batch, len(position), -1)
    return _selection(constraints, DenseRows(matrix), there, norms, position)


def factored_selection(constraints: Constraints, position: Int[np.ndarray, " m"]) -> Selection[FactoredRows]:
    """Some rows of one problem (leading axis 1), none of them zero, by their factors."""
    position = np.sort(position)
    norms = constraints.norms.reshape(1, -1)[:, position]
    left, _ = _factors(constraints, position, with_queries=False)
    met, counts = np.unique(position // constraints.inequality.shape[-1], return_counts=True)
    queries = constraints.queries.reshape(-1, constraints.queries.shape[-1])[met]
    products = FactoredRows(left[0] / norms[0, :, None], queries, counts)
    return _selection(constraints, products, np.ones_like(norms, bool), norms, position)


def _factors(
    constraints: Constraints, position: Int[np.ndarray, " m"], with_queries: bool = True
) -> tuple[Float[np.ndarray, "N m d_k"], Float[np.ndarray, "N m d_q"]]:
    """The left factors k_r − k_t and the queries of the rows at ``position``."""
    batch, n, Q, T = constraints.inequality.shape
    query, token = np.divmod(position, T)
    left = -np.broadcast_to(constraints.keys, (batch, *constraints.keys.shape[-3:]))[:, query // Q, token]
    if constraints.references is not None:
        left += constraints.references.reshape(batch, n * Q, -1)[:, query]
    if not with_queries:
        return left, np.empty((batch, 0, 0))
    queries = np.broadcast_to(constraints.queries, (batch, *constraints.queries.shape[-3:]))
    return left, queries.reshape(batch, n * Q, -1)[:, query]


def _selection(
    constraints: Constraints,
    products: P,
    there: Bool[np.ndarray, "N m"],
    norms: RowVector,
    position: Int[np.ndarray, " m"],
) -> Selection[P]:
    batch = len(there)
    right = np.where(there, constraints.right.reshape(batch, -1)[:, position] / norms, -1.0)
    equality = np.zeros(there.shape, bool)
    if constraints.equality is not None:
        equality = constraints.equality.reshape(batch, -1)[:, position] & there
    return Selection(products, right, equality, norms, position)
