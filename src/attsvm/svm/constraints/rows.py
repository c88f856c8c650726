"""Chosen rows of several problems at unit norm: right sides, places, factors, and two ways to multiply with them.

A row is a pair of a key difference and a query, which may be written in the span of the data. Rows are stored as arrays
for many small problems together, or by their factors for a large one.
"""

import math
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from scipy.linalg import block_diag

from attsvm._utils.linear_algebra import orthonormal
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.constraints.biases import WeightBlocks, block_gram
from attsvm.svm.constraints.constraints import Constraints, TokenValues

RowVector = Float[np.ndarray, "N m"]
Chosen = Bool[np.ndarray, " N"] | Int[np.ndarray, " some"]
"""Some of N problems: a mask, or their indices."""


class BatchedUnitRows(NamedTuple):
    """Rows of N problems divided by their norms; row k of each is at ``position[k]`` of the flattened (n, Q, T)."""

    # which problems have the row. Otherwise it represents a row of zeros with right side −1, which always holds.
    there: Bool[np.ndarray, "N m"]
    right: RowVector  # shape (N, m), b divided by the norms of the rows
    equality: Bool[np.ndarray, "N m"]
    norms: RowVector  # shape (N, m), of the original rows; 1 where a problem does not have the row
    gain: RowVector  # the right sides, 0 where a problem does not have the row: b'λ is the lower bound
    position: Int[np.ndarray, " m"]  # increasing

    @classmethod
    def of(cls, constraints: Constraints) -> "BatchedUnitRows":
        """The rows of constraints with one batch axis.

        Raises ValueError if there is another number of batch axes, or no row at all.
        """
        if len(constraints.batch_shape) != 1:
            raise ValueError(f"constraints: expected one batch axis, got batch shape {constraints.batch_shape}")
        norms = constraints.flat(constraints.norms)
        position = np.logical_or.reduce(norms > 0, axis=0).nonzero()[0]
        if len(position) == 0:
            raise ValueError("constraints: expected at least one row, got none")
        norms = norms.take(position, axis=1)
        there = norms > 0
        norms = np.where(there, norms, 1.0)
        gain = constraints.flat(constraints.right).take(position, axis=1) / norms
        right = np.where(there, gain, -1.0)
        if constraints.equality is None:
            equality = np.zeros(there.shape, bool)
        else:
            equality = constraints.flat(constraints.equality)[:, position] & there
        return cls(there, right, equality, norms, gain, position)

    def spread(self, multipliers: RowVector, shape: tuple[int, ...]) -> TokenValues:
        """Multipliers of the unit rows as multipliers of the original rows, in an array of shape (N, n, Q, T)."""
        spread = np.zeros((len(multipliers), math.prod(shape)))
        spread[:, self.position] = multipliers / self.norms
        return spread.reshape(len(multipliers), *shape)

    def gather(self, multipliers: TokenValues) -> RowVector:
        """The reverse of :meth:`spread`."""
        return np.asarray(multipliers.reshape(len(multipliers), -1).take(self.position, axis=1) * self.norms)


Block = Float[np.ndarray, "N d_k d_q"]


class PairRows(NamedTuple):
    """Rows l z' of N problems: row a has the left factor ``left[:, a]`` and the query ``queries[:, query_of[a]]``."""

    left: Float[np.ndarray, "N m d_k"]
    queries: Float[np.ndarray, "N U d_q"]
    query_of: Int[np.ndarray, " m"]  # sorted in ascending order; every query has a row
    first: Int[np.ndarray, " U"]  # the first row of each query
    blocks: WeightBlocks | None = None  # of the weights, if they have two: then a row is l z' in these, and 0 outside

    def apply(self, weights: Block) -> RowVector:
        return np.asarray(np.vecdot(self.left, (self.queries @ weights.mT).take(self.query_of, axis=1)))

    def adjoint(self, multipliers: RowVector) -> Block:
        pulled = np.add.reduceat(self.left * multipliers[:, :, None], self.first, axis=1)
        return self.in_blocks(np.asarray(pulled.mT @ self.queries))

    def in_blocks(self, matrices: np.ndarray) -> np.ndarray:
        """Matrices made of rows, with zeros outside of the blocks."""
        return matrices if self.blocks is None else self.blocks.only(matrices)

    def gram(self) -> Float[np.ndarray, "m m"]:
        """The inner products of the rows of one problem."""
        left, queries, of = self.left[0], self.queries[0], self.query_of
        if self.blocks is not None:
            return block_gram(left, queries[of], self.blocks)
        products = queries @ queries.T
        matrix = left @ left.T
        matrix *= products[of[:, None], of]
        return np.asarray(matrix)

    def keep(self, problems: Chosen) -> "PairRows":
        return self._replace(left=self.left[problems], queries=self.queries[problems])


class ReducedRows(NamedTuple):
    """Unit rows in coordinates of the span of their factors, which contains the optimum."""

    rows: PairRows
    unit: BatchedUnitRows  # their right sides and places
    # key_basis, query_basis: orthonormal columns; None if the coordinates are the original ones
    key_basis: Float[np.ndarray, "N D_k d_k"] | None
    query_basis: Float[np.ndarray, "N D_q d_q"] | None

    def expand(self, weights: Block) -> Float[np.ndarray, "N D_k D_q"]:
        """Weights in the original coordinates."""
        if self.key_basis is not None:
            weights = self.key_basis @ weights
        return weights if self.query_basis is None else weights @ self.query_basis.mT

    def contract(self, weights: Float[np.ndarray, "N D_k D_q"]) -> Block:
        """Weights in the reduced coordinates; the component outside the span is dropped."""
        if self.key_basis is not None:
            weights = self.key_basis.mT @ weights
        return weights if self.query_basis is None else weights @ self.query_basis


def paired(
    constraints: Constraints, position: Int[np.ndarray, " m"]
) -> tuple[Float[np.ndarray, "N m d_k"], Float[np.ndarray, "N U d_q"], Int[np.ndarray, " m"], Int[np.ndarray, " U"]]:
    """The factors of the rows at increasing positions, as :class:`PairRows` has them, but k_t − k_r for k_r − k_t."""
    T = constraints.inequality.shape[-1]
    query = position // T
    new = np.ones(len(query), bool)
    new[1:] = query[1:] != query[:-1]
    first = new.nonzero()[0]
    return constraints.differences(position), constraints.queries_of(position[first]), np.cumsum(new) - 1, first


def reduced_rows(constraints: Constraints, *, left: bool = True, right: bool = True) -> ReducedRows:
    """The rows of N problems: constraints with one batch axis.

    ``left`` and ``right`` say on which sides the weights may be restricted to the span of the factors.

    Raises ValueError if there is another number of batch axes, or no row at all.
    """
    unit = BatchedUnitRows.of(constraints)
    keys, queries, query_of, first = paired(constraints, unit.position)
    # queries and left factors are scaled to unit norm, so that their products are unit rows
    sizes = np.sqrt(np.vecdot(queries, queries))
    sizes = np.where(sizes > 0, sizes, 1.0)
    queries = queries / sizes[:, :, None]
    keys = keys * (unit.there * sizes.take(query_of, axis=1) / -unit.norms)[:, :, None]
    blocks = constraints.blocks or WeightBlocks(*constraints.weights_shape)
    keys, key_basis = _in_own_span(keys, blocks.rows) if left else (keys, None)
    queries, query_basis = _in_own_span(queries, blocks.columns) if right else (queries, None)
    if constraints.blocks is not None:
        of_biases = constraints.weights_shape[0] - blocks.rows
        blocks = WeightBlocks(keys.shape[-1] - of_biases, queries.shape[-1] - 1)
    rows = PairRows(keys, queries, query_of, first, None if constraints.blocks is None else blocks)
    return ReducedRows(rows, unit, key_basis, query_basis)


def _in_own_span(vectors: Float[np.ndarray, "N k D"], own: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Coordinates of the vectors in an orthonormal basis, and the basis, if there are fewer vectors than dimensions.

    Otherwise the vectors themselves, and None. ``own``: how many of the entries may be mixed; the others, of another
    block, stay.
    """
    if vectors.shape[-2] >= own:
        return vectors, None
    basis = orthonormal(vectors[..., :own].mT)
    if own < vectors.shape[-1]:
        basis = np.stack([block_diag(one, np.eye(vectors.shape[-1] - own)) for one in basis])
    return vectors @ basis, basis


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
        scale_matrix = self.pairs.in_blocks(scale.reshape(left.shape[1], -1))
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
        return np.asarray(self.pairs.in_blocks(rows).reshape(1, len(rows), -1) * scale[:, None, :])

    def keep(self, problems: Chosen) -> "FactoredRows":
        """The object itself, because there is one problem."""
        return self


P = TypeVar("P", bound=RowProducts)


class SelectedRows(NamedTuple, Generic[P]):
    """Some rows of N problems at unit norm: products with them, and their right sides and places."""

    products: P
    unit: BatchedUnitRows


def dense_selection(constraints: Constraints) -> SelectedRows[DenseRows]:
    """All rows of constraints with one batch axis, stored densely."""
    unit = BatchedUnitRows.of(constraints)
    # differences are k_t − k_r; the sign makes a kept token's margin positive
    left = constraints.differences(unit.position) * (unit.there / -unit.norms)[..., None]
    queries = constraints.queries_of(unit.position)
    matrix = left[..., :, None] * queries[..., None, :]
    matrix = matrix if constraints.blocks is None else constraints.blocks.only(matrix)
    return SelectedRows(DenseRows(matrix.reshape(*unit.norms.shape, -1)), unit)


def factored_selection(constraints: Constraints) -> SelectedRows[FactoredRows]:
    """All rows of one problem (batch shape (1,)), by their factors."""
    unit = BatchedUnitRows.of(constraints)
    left, queries, query_of, first = paired(constraints, unit.position)
    rows = PairRows(left / -unit.norms[..., None], queries, query_of, first, constraints.blocks)
    return SelectedRows(FactoredRows(rows), unit)
