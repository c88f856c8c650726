"""Constraint rows as pairs of a key difference and a query, for several problems together, in the span of the data."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenValues

Block = Float[np.ndarray, "N d_k d_q"]
RowVector = Float[np.ndarray, "N m"]


class PairRows(NamedTuple):
    """Rows l z' of N problems: row a has the left factor ``left[:, a]`` and the query ``queries[:, query_of[a]]``.

    Attributes
    ----------
    left : ndarray, shape (N, m, d_k)
    queries : ndarray, shape (N, U, d_q)
    query_of : int ndarray, shape (m,)
        Sorted in ascending order; every query has a row.
    first : int ndarray, shape (U,)
        The first row of each query.
    """

    left: Float[np.ndarray, "N m d_k"]
    queries: Float[np.ndarray, "N U d_q"]
    query_of: Int[np.ndarray, " m"]
    first: Int[np.ndarray, " U"]

    def apply(self, weights: Block) -> RowVector:
        """A(W)."""
        return np.asarray(np.vecdot(self.left, (self.queries @ weights.mT)[:, self.query_of]))

    def adjoint(self, multipliers: RowVector) -> Block:
        """A*(λ)."""
        pulled = np.add.reduceat(self.left * multipliers[:, :, None], self.first, axis=1)
        return np.asarray(pulled.mT @ self.queries)

    def keep(self, some: Bool[np.ndarray, " N"]) -> "PairRows":
        """The rows of some of the problems."""
        return self._replace(left=self.left[some], queries=self.queries[some])


class Reduced(NamedTuple):
    """Unit rows in coordinates of the span of their factors, which contains the optimum.

    Attributes
    ----------
    rows : PairRows
    right : ndarray, shape (N, m)
        b divided by the norms of the rows. A missing row is a row of zeros with right side −1, which always holds.
    equality : bool ndarray, shape (N, m)
    norms : ndarray, shape (N, m)
        Norms of the original rows; 1 where a problem has no row.
    position : int ndarray, shape (m,)
        Position of each row in the flattened (n, Q, T).
    key_basis, query_basis : ndarrays, shapes (N, D_k, d_k), (N, D_q, d_q), or None
        Orthonormal columns; None if the coordinates are the original ones.
    """

    rows: PairRows
    right: RowVector
    equality: Bool[np.ndarray, "N m"]
    norms: RowVector
    position: Int[np.ndarray, " m"]
    key_basis: Float[np.ndarray, "N D_k d_k"] | None
    query_basis: Float[np.ndarray, "N D_q d_q"] | None

    def take(self, index: Int[np.ndarray, " some"]) -> "Reduced":
        """Some of the problems."""
        return Reduced(
            self.rows._replace(left=self.rows.left[index], queries=self.rows.queries[index]),
            self.right[index],
            self.equality[index],
            self.norms[index],
            self.position,
            None if self.key_basis is None else self.key_basis[index],
            None if self.query_basis is None else self.query_basis[index],
        )

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

    def spread(self, multipliers: RowVector, shape: tuple[int, ...]) -> TokenValues:
        """Multipliers of unit rows as multipliers of the original rows, in their places."""
        spread = np.zeros((len(multipliers), int(np.prod(shape))))
        spread[:, self.position] = multipliers / self.norms
        return spread.reshape(len(multipliers), *shape)

    def gather(self, multipliers: TokenValues) -> RowVector:
        """The reverse of :meth:`spread`."""
        return np.asarray(multipliers.reshape(len(multipliers), -1)[:, self.position] * self.norms)


def reduced_rows(constraints: Constraints) -> Reduced:
    """The rows of N problems: constraints with one leading axis.

    Raises
    ------
    ValueError
        If the number of leading axes is not one, or there is no row.
    """
    if len(constraints.batch_shape) != 1:
        raise ValueError(f"constraints: expected one leading axis, got {constraints.batch_shape}")
    N, n, Q, T = constraints.inequality.shape
    norms = constraints.norms.reshape(N, -1)
    position = np.flatnonzero((norms > 0).any(axis=0))
    if len(position) == 0:
        raise ValueError("constraints: expected at least one row, got none")
    norms = norms[:, position]
    there = norms > 0
    norms = np.where(there, norms, 1.0)
    query, token = np.divmod(position, T)
    keys = np.broadcast_to(constraints.keys, (N, *constraints.keys.shape[-3:]))
    left = -keys[:, query // Q, token]
    if constraints.references is not None:
        left += constraints.references.reshape(N, n * Q, -1)[:, query]
    met, first = np.unique(query, return_index=True)
    query_of = np.searchsorted(met, query)
    queries = np.broadcast_to(constraints.queries, (N, *constraints.queries.shape[-3:]))
    queries = queries.reshape(N, n * Q, -1)[:, met]
    # queries and left factors are scaled to unit norm, so that their products are unit rows
    sizes = np.sqrt(np.vecdot(queries, queries))
    sizes = np.where(sizes > 0, sizes, 1.0)
    queries = queries / sizes[:, :, None]
    left = left * (there * sizes[:, query_of] / norms)[:, :, None]
    left, key_basis = _in_own_span(left)
    queries, query_basis = _in_own_span(queries)
    right = np.where(there, constraints.right.reshape(N, -1)[:, position] / norms, -1.0)
    equality = np.zeros(there.shape, bool)
    if constraints.equality is not None:
        equality = constraints.equality.reshape(N, -1)[:, position] & there
    return Reduced(PairRows(left, queries, query_of, first), right, equality, norms, position, key_basis, query_basis)


def _in_own_span(vectors: Float[np.ndarray, "N k D"]) -> tuple[np.ndarray, np.ndarray | None]:
    """Coordinates of the vectors in an orthonormal basis, and the basis, if there are fewer vectors than dimensions.

    Otherwise the vectors themselves, and None.
    """
    if vectors.shape[-2] >= vectors.shape[-1]:
        return vectors, None
    basis, triangle = np.linalg.qr(vectors.mT)
    return np.ascontiguousarray(triangle.mT), basis
