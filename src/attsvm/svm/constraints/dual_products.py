"""Products with the Gram matrix of an Att-SVM's rows, which is never formed: the dual of one large problem."""

from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights

POWER_STEPS = 10
"""The estimate of the largest eigenvalue is then within a few per cent, which the methods allow for."""


class DualProducts:
    """Unit rows A of one problem, and K = A A'.

    Multipliers μ are those of the unit rows, in the places (n, Q, T) of their tokens, 0 where there is no row.
    A product uses the keys and queries only. It uses the Gram matrix of the queries if there are few of them compared
    with their dimension, otherwise the weights A'μ, whichever is less work.

    ``constraints``: without leading axes.
    """

    right: TokenValues  # b divided by the norms of the rows, scaled so that the largest entry is 1
    scale: float  # what b was divided by
    # asked, bounded, there: rows with b = 1; inequalities, whose multipliers must not be negative; all rows except rows
    # of zeros
    asked: TokenMask
    bounded: TokenMask
    there: TokenMask
    multiplications: int  # number of multiplications in one product with K

    def __init__(self, constraints: Constraints) -> None:
        if constraints.batch_shape:
            raise ValueError(f"constraints: expected no leading axes, got {constraints.batch_shape}")
        norms = constraints.norms
        self.constraints = constraints
        self.there = norms > 0
        self.asked = constraints.margin_mask & self.there
        self.bounded = constraints.inequality & self.there
        self.has_equalities = constraints.equality is not None
        self._inverse = np.divide(1.0, norms, out=np.zeros(norms.shape), where=self.there)
        right = constraints.right * self._inverse
        self.scale = float(right.max(initial=0.0)) or 1.0
        self.right = right / self.scale
        queries = constraints.queries.reshape(-1, constraints.queries.shape[-1])
        self._queries = queries
        few = len(queries) <= 2 * queries.shape[1]
        self._query_gram = queries @ queries.T if few else None
        between = len(queries) if few else 2 * queries.shape[1]
        self.multiplications = len(queries) * constraints.keys.shape[-1] * (2 * norms.shape[-1] + between)

    def times(self, multipliers: TokenValues) -> TokenValues:
        """K μ: the margin of each row under the weights A'μ."""
        if self._query_gram is None:
            return self.apply(self.adjoint(multipliers))
        pulled = self.constraints.pulled(multipliers * self._inverse)
        images = (self._query_gram @ pulled.reshape(-1, pulled.shape[-1])).reshape(pulled.shape)
        image = self.constraints.compared(images)
        image *= self._inverse
        return image

    def block(self, rows: Int[np.ndarray, " m"], columns: Int[np.ndarray, " k"]) -> Float[np.ndarray, "m k"]:
        """The entries of K at positions of the flattened (n, Q, T).

        They are inner products of the differences of keys, times those of the queries.
        """
        left, place = self._factors(rows)
        right, other = (left, place) if columns is rows else self._factors(columns)
        gram = left @ right.T
        # many rows have the same query
        queries, of_rows = np.unique(place, return_inverse=True)
        others, of_columns = np.unique(other, return_inverse=True)
        between = self._queries[queries] @ self._queries[others].T
        gram *= between.take(of_rows, axis=0).take(of_columns, axis=1)
        return np.asarray(gram)

    def _factors(self, rows: Int[np.ndarray, " m"]) -> tuple[Float[np.ndarray, "m d_k"], Int[np.ndarray, " m"]]:
        """The differences of keys over the norms of the rows, in the precision of the products, and their queries."""
        differences = self.constraints.differences(rows)
        differences *= -self._inverse.reshape(-1)[rows, None]
        return differences.astype(self._queries.dtype, copy=False), rows // self.right.shape[-1]

    def apply(self, weights: Weights) -> TokenValues:
        return np.asarray(self.constraints.apply(weights) * self._inverse)

    def adjoint(self, multipliers: TokenValues) -> Weights:
        return self.constraints.adjoint(multipliers * self._inverse)

    def of_original_rows(self, multipliers: TokenValues) -> TokenValues:
        """Multipliers of the unit rows as multipliers of the original rows."""
        return np.asarray(multipliers * self._inverse)

    def of_unit_rows(self, multipliers: TokenValues) -> TokenValues:
        """Return multipliers of the unit rows, clipped to be feasible: the reverse of :meth:`of_original_rows`."""
        multipliers = np.where(self.there, multipliers * self.constraints.norms, 0.0)
        return np.asarray(np.maximum(multipliers, 0.0, out=multipliers, where=self.bounded))

    @cached_property
    def eigenvalue(self) -> float:
        """A lower bound on the largest eigenvalue of K, by power iteration; 1 if K is zero."""
        vector = self.there.astype(np.float64)
        size = 1.0
        for _ in range(POWER_STEPS):
            length = float(np.linalg.norm(vector))
            if length == 0:
                return 1.0
            vector = self.times(vector / length)
            size = float(np.linalg.norm(vector))
        return size or 1.0
