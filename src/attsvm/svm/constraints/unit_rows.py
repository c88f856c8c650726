"""Chosen rows of several problems at unit norm: their right sides, and their places among all rows."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenValues

RowVector = Float[np.ndarray, "N m"]
Chosen = Bool[np.ndarray, " N"] | Int[np.ndarray, " some"]
"""Some of N problems: a mask, or their indices."""


class UnitRows(NamedTuple):
    """Rows of N problems divided by their norms; row k of each is at ``position[k]`` of the flattened (n, Q, T)."""

    # which problems have the row. Otherwise it represents a row of zeros with right side −1, which always holds.
    there: Bool[np.ndarray, "N m"]
    right: RowVector  # shape (N, m), b divided by the norms of the rows
    equality: Bool[np.ndarray, "N m"]
    norms: RowVector  # shape (N, m), of the original rows; 1 where a problem does not have the row
    position: Int[np.ndarray, " m"]  # increasing

    @classmethod
    def of(cls, constraints: Constraints) -> "UnitRows":
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
        right = np.where(there, constraints.flat(constraints.right).take(position, axis=1) / norms, -1.0)
        if constraints.equality is None:
            equality = np.zeros(there.shape, bool)
        else:
            equality = constraints.flat(constraints.equality)[:, position] & there
        return cls(there, right, equality, norms, position)

    def keep(self, problems: Chosen) -> "UnitRows":
        return self._replace(
            there=self.there[problems],
            right=self.right[problems],
            equality=self.equality[problems],
            norms=self.norms[problems],
        )

    def spread(self, multipliers: RowVector, shape: tuple[int, ...]) -> TokenValues:
        """Multipliers of the unit rows as multipliers of the original rows, in an array of shape (N, n, Q, T)."""
        spread = np.zeros((len(multipliers), math.prod(shape)))
        spread[:, self.position] = multipliers / self.norms
        return spread.reshape(len(multipliers), *shape)

    def gather(self, multipliers: TokenValues) -> RowVector:
        """The reverse of :meth:`spread`."""
        return np.asarray(multipliers.reshape(len(multipliers), -1).take(self.position, axis=1) * self.norms)
