"""Problems of the elliptope method: the rows of all heads, as products with corners of lifted matrices."""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import block_diag

from attsvm._utils.shapes import Bool, Float
from attsvm.norms.factors import Balance
from attsvm.svm.constraints.rows import BatchedUnitRows, PairRows

Vector = Float[np.ndarray, " m"]
Squares = Float[np.ndarray, "H K K"]


class PairMargins:
    """The rows of the heads one after the other.

    ``rows``: of one problem each, one for each head. ``unit``: their right sides.
    """

    def __init__(self, rows: Sequence[PairRows], unit: Sequence[BatchedUnitRows]) -> None:
        self._rows = rows
        self.right: Vector = np.concatenate([each.right[0] for each in unit])
        self.equality: Bool[np.ndarray, " m"] = np.concatenate([each.equality[0] for each in unit])
        self._ends = np.cumsum([len(each.right[0]) for each in unit])[:-1]

    def apply(self, corners: Float[np.ndarray, "H d_k d_q"]) -> Vector:
        return np.concatenate([rows.apply(corner[None])[0] for rows, corner in zip(self._rows, corners, strict=True)])

    def adjoint(self, multipliers: Vector) -> Float[np.ndarray, "H d_k d_q"]:
        each = np.split(multipliers, self._ends)
        return np.concatenate([rows.adjoint(own[None]) for rows, own in zip(self._rows, each, strict=True)])

    def equations(self, matrices: Squares, inverses: Squares, balance: Balance) -> tuple[np.ndarray, np.ndarray]:
        """Multiply all pairs of factors with X and Z⁻¹."""
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
    left, queries, of = rows.left[0], rows.queries[0], rows.query_of
    split = left.shape[1]
    # X and Z⁻¹ applied to the lifted rows: their left and right halves
    left_images = [each[:, :split] @ left.T for each in (matrix, inverse)]
    query_images = [(each[:, split:] @ queries.T)[:, of] for each in (matrix, inverse)]
    crossed = balance.of_products(left_images[0], query_images[1]) + balance.of_products(
        query_images[0], left_images[1]
    )
    # ⟨lift(l z')_a, X lift(·)_b Z⁻¹⟩ is a sum of four products of halves
    left_left = [left @ image[:split] for image in left_images]
    query_query = [(queries @ image[split:])[of] for image in query_images]
    left_query = [left @ image[:split] for image in query_images]
    products = left_left[0] * query_query[1] + left_left[1] * query_query[0]
    mixed = left_query[0] * left_query[1].T
    products += mixed + mixed.T
    # each lifted row is ½ (l z' above the diagonal and its transpose below)
    products *= 0.25
    return 0.5 * crossed, products
