"""Margins of rows l z' of several heads, for the interior-point method of γ2 and of the fused norms."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import block_diag

from attsvm.norms.elliptope import Balance, Squares, Vector
from attsvm.svm.constraints.pair_rows import PairRows
from attsvm.svm.constraints.unit_rows import UnitRows

WHY = "the norm is a semidefinite program with rows of rank one"

NEAR = 0.1
"""Multipliers of the Frobenius norm are raised to this, relative to the largest, to start inside the cone."""


class PairMargins:
    """The rows of the heads one after the other.

    ``rows``: of one problem each, one for each head. ``unit``: their right sides.
    """

    def __init__(self, rows: Sequence[PairRows], unit: Sequence[UnitRows]) -> None:
        self._rows = rows
        self.right: Vector = np.concatenate([each.right[0] for each in unit])
        self.equality: Bool[np.ndarray, " m"] = np.concatenate([each.equality[0] for each in unit])
        self._ends = np.cumsum([len(each.right[0]) for each in unit])[:-1]

    def inside(self, multipliers: Vector) -> Vector:
        """Multipliers of the Frobenius norm, raised so that an interior-point method can start at them."""
        return np.where(self.equality, multipliers, np.maximum(multipliers, NEAR * np.abs(multipliers).max()))

    def apply(self, corners: Float[np.ndarray, "H d_k d_q"]) -> Vector:
        return np.concatenate([rows.apply(corner[None])[0] for rows, corner in zip(self._rows, corners, strict=True)])

    def adjoint(self, multipliers: Vector) -> Float[np.ndarray, "H d_k d_q"]:
        each = np.split(multipliers, self._ends)
        return np.concatenate([rows.adjoint(own[None]) for rows, own in zip(self._rows, each, strict=True)])

    def equations(self, matrices: Squares, inverses: Squares, balance: Balance) -> tuple[np.ndarray, np.ndarray]:
        """From the products of all pairs of factors with X and Z⁻¹."""
        each = [
            _equations(rows, matrix, inverse, balance)
            for rows, matrix, inverse in zip(self._rows, matrices, inverses, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        return np.concatenate([crossed for crossed, _ in each], axis=1), block_diag(*[own for _, own in each])


def _equations(
    rows: PairRows, matrix: np.ndarray, inverse: np.ndarray, balance: Balance
) -> tuple[np.ndarray, np.ndarray]:
    """Those of one head."""
    left, queries, of = rows.left[0], rows.queries[0], rows.query_of
    split = left.shape[1]
    left_images = [each[:, :split] @ left.T for each in (matrix, inverse)]
    query_images = [(each[:, split:] @ queries.T)[:, of] for each in (matrix, inverse)]
    crossed = balance.of_products(left_images[0], query_images[1]) + balance.of_products(
        query_images[0], left_images[1]
    )
    left_left = [left @ image[:split] for image in left_images]
    query_query = [(queries @ image[split:])[of] for image in query_images]
    left_query = [left @ image[:split] for image in query_images]
    products = left_left[0] * query_query[1] + left_left[1] * query_query[0]
    mixed = left_query[0] * left_query[1].T
    products += mixed + mixed.T
    products *= 0.25
    return 0.5 * crossed, products
