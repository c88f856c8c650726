"""Coordinates by the angles between two row spaces, in which the equations of the spectral cone are diagonal."""

import numpy as np

from attsvm._utils.linear_algebra import diagonal_of
from attsvm._utils.shapes import Float
from attsvm.svm.constraints.rows import Block, PairRows
from attsvm.svm.methods.registry import CACHED
from attsvm.svm.methods.semidefinite.problems import Matrix


class PrincipalCoordinates:
    """Coordinates Y of B = E₁ Y E₂' in which H couples the entries (i, j) and (j, i) only.

    With R' = (Q₁C₁', Q₂C₂') by columns and Q₁'Q₂ = U diag(k) V', E₁ = C₁⁻'U and E₂ = C₂⁻'V make H map Y_ij to
    Y_ij + k_i k_j Y_ji. The k are the cosines of the angles between the row spaces of the two parts of R. Near the
    solution many are 1 up to μ, and 1 − k_i k_j has to be accurate. It is computed from the sines, without G.

    References: Björck and Golub (1973), *Numerical methods for computing angles between linear subspaces*.
    """

    def __init__(self, R: Matrix, split: int) -> None:
        self.E1, self.E2, self.first, self.second, cosine, sine = _principal_vectors(R[:, :split], R[:, split:])
        self.short = cosine.shape[-1]
        # 1 + k_i k_j, and 1 − k_i k_j = ((1 − k_j²) + (1 − k_i²) k_j²)/(1 + k_i k_j) from the sines
        products = cosine[:, :, None] * cosine[:, None, :]
        gaps = (sine[:, None, :] ** 2 + (sine[:, :, None] * cosine[:, None, :]) ** 2) / (1 + products)
        self.even, self.odd = 0.5 / (1 + products), 0.5 / gaps

    def block(self, turned: Block) -> Block:
        """Return B from its coordinates."""
        return np.asarray(self.E1 @ turned @ self.E2.mT)

    def dual(self, block: Block) -> Block:
        """E₁' B E₂, the coordinates of a linear form."""
        return np.asarray(self.E1.mT @ block @ self.E2)

    def corner(self, scaled: Matrix) -> Block:
        """The same of the corner of R X R'."""
        return np.asarray(self.first.mT @ scaled @ self.second)

    def lifted(self, turned: Block) -> Matrix:
        """Compute R' 2 lift(B) R."""
        half = self.first @ turned @ self.second.mT
        return np.asarray(half + half.mT)

    def solve(self, form: Block) -> Block:
        """Apply H⁻¹ to a linear form."""
        # Y_ij ± Y_ji are those of the form divided by 1 ± k_i k_j; where k is 0, H is the identity
        turned = form.copy()
        corner = form[:, : self.short, : self.short]
        even, odd = self.even * (corner + corner.mT), self.odd * (corner - corner.mT)
        turned[:, : self.short, : self.short] = even + odd
        return turned

    def gram(self, rows: PairRows) -> Float[np.ndarray, "N m m"]:
        """A H⁻¹ A* as a sum of products F F', some columns at a time: F has as many columns as W has entries."""
        left, queries = rows.left @ self.E1, (rows.queries @ self.E2)[:, rows.query_of]
        size, count, key_dim = left.shape
        # above the diagonal the sum of a pair, below it the difference, each with the root of its weight
        sign = np.where(np.triu(np.ones(self.even.shape[1:], bool)), 1.0, -1.0)
        weight = np.sqrt(np.where(sign > 0, self.even, self.odd))
        diagonal_of(weight)[:] *= np.sqrt(0.5)
        matrix = np.zeros((size, count, count))
        step = max(1, CACHED // (size * count * queries.shape[-1]))
        for first in range(0, key_dim, step):
            # the entries (i, j) of the rows, and the pairs (j, i) of those that H couples
            factors = left[:, :, first : first + step, None] * queries[:, :, None, :]
            own = slice(first, min(first + step, self.short))
            if first < self.short:
                pairs = queries[:, :, own, None] * left[:, :, None, : self.short]
                corner = factors[:, :, : pairs.shape[2], : self.short]
                corner[:] = weight[:, None, own] * (pairs + sign[own] * corner)
            factors = factors.reshape(size, count, -1)
            matrix += factors @ factors.mT
        return matrix


def _principal_vectors(
    upper: Float[np.ndarray, "N d_k K"], lower: Float[np.ndarray, "N d_q K"]
) -> tuple[np.ndarray, ...]:
    """E₁, E₂, the principal vectors Q₁U, Q₂V of the row spaces, and cosines and sines of the angles between them."""
    Q1, C1 = np.linalg.qr(upper.mT)
    Q2, C2 = np.linalg.qr(lower.mT)
    # Q₁'Q₂ = U diag(k) V'
    both = Q1.mT @ Q2
    U, cosine, Vt = np.linalg.svd(both)
    V = Vt.mT
    sine = np.sqrt((1 - cosine) * (1 + cosine))
    number = np.count_nonzero(cosine > 0.7, axis=-1)
    for near in np.unique(number[number > 0]).tolist():
        # cosines do not distinguish small angles
        some = np.flatnonzero(number == near)
        vectors = V[some, :, :near]
        off = (Q2[some] - Q1[some] @ both[some]) @ vectors
        _, sines, turn = np.linalg.svd(off, full_matrices=False)
        vectors = vectors @ turn.mT
        cosines = np.sqrt((1 - sines) * (1 + sines))
        V[some, :, :near], sine[some, :near], cosine[some, :near] = vectors, sines, cosines
        U[some, :, :near] = both[some] @ vectors / cosines[:, None]
    return np.linalg.solve(C1, U), np.linalg.solve(C2, V), Q1 @ U, Q2 @ V, cosine, sine
