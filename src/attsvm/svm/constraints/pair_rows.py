"""Constraint rows as pairs of a key difference and a query, for several problems together, in the span of the data."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attsvm._utils.linear_algebra import orthonormal
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.unit_rows import Chosen, RowVector, UnitRows

Block = Float[np.ndarray, "N d_k d_q"]


class PairRows(NamedTuple):
    """Rows l z' of N problems: row a has the left factor ``left[:, a]`` and the query ``queries[:, query_of[a]]``."""

    left: Float[np.ndarray, "N m d_k"]
    queries: Float[np.ndarray, "N U d_q"]
    query_of: Int[np.ndarray, " m"]  # sorted in ascending order; every query has a row
    first: Int[np.ndarray, " U"]  # the first row of each query

    def apply(self, weights: Block) -> RowVector:
        return np.asarray(np.vecdot(self.left, (self.queries @ weights.mT).take(self.query_of, axis=1)))

    def adjoint(self, multipliers: RowVector) -> Block:
        pulled = np.add.reduceat(self.left * multipliers[:, :, None], self.first, axis=1)
        return np.asarray(pulled.mT @ self.queries)

    def keep(self, problems: Chosen) -> "PairRows":
        return self._replace(left=self.left[problems], queries=self.queries[problems])


class Reduced(NamedTuple):
    """Unit rows in coordinates of the span of their factors, which contains the optimum."""

    rows: PairRows
    unit: UnitRows  # their right sides and places
    # key_basis, query_basis: orthonormal columns; None if the coordinates are the original ones
    key_basis: Float[np.ndarray, "N D_k d_k"] | None
    query_basis: Float[np.ndarray, "N D_q d_q"] | None

    def keep(self, problems: Chosen) -> "Reduced":
        return Reduced(
            self.rows.keep(problems),
            self.unit.keep(problems),
            None if self.key_basis is None else self.key_basis[problems],
            None if self.query_basis is None else self.query_basis[problems],
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


def reduced_rows(constraints: Constraints, *, left: bool = True, right: bool = True) -> Reduced:
    """The rows of N problems: constraints with one batch axis.

    ``left`` and ``right`` say on which sides the weights may be restricted to the span of the factors.

    Raises ValueError if there is another number of batch axes, or no row at all.
    """
    unit = UnitRows.of(constraints)
    keys, queries, query_of, first = paired(constraints, unit.position)
    # queries and left factors are scaled to unit norm, so that their products are unit rows
    sizes = np.sqrt(np.vecdot(queries, queries))
    sizes = np.where(sizes > 0, sizes, 1.0)
    queries = queries / sizes[:, :, None]
    keys = keys * (unit.there * sizes.take(query_of, axis=1) / -unit.norms)[:, :, None]
    keys, key_basis = _in_own_span(keys) if left else (keys, None)
    queries, query_basis = _in_own_span(queries) if right else (queries, None)
    return Reduced(PairRows(keys, queries, query_of, first), unit, key_basis, query_basis)


def _in_own_span(vectors: Float[np.ndarray, "N k D"]) -> tuple[np.ndarray, np.ndarray | None]:
    """Coordinates of the vectors in an orthonormal basis, and the basis, if there are fewer vectors than dimensions.

    Otherwise the vectors themselves, and None.
    """
    if vectors.shape[-2] >= vectors.shape[-1]:
        return vectors, None
    basis = orthonormal(vectors.mT)
    return vectors @ basis, basis
