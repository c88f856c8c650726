"""Coordinates of symmetric diagonal blocks, for unit balls in which these sum to the identity."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.norms.factors.elliptope import Square, Squares, Vector


class SymmetricBlocks:
    """𝓑 takes the diagonal blocks of X: both, or if they are tied their sum.

    The coordinates of a symmetric matrix are its upper triangle, with factors of √2 off the diagonal.

    ``shape``: (d_k, d_q). ``tied``: whether the sum of both blocks has to be the identity; then d_k = d_q.
    """

    def __init__(self, shape: tuple[int, int], tied: bool) -> None:
        self._size = sum(shape)
        # the size of each block, and where it lies in X
        places = [(shape[0], (0, shape[0]))] if tied else [(shape[0], (0,)), (shape[1], (shape[0],))]
        self._blocks = [_SymmetricBlock.of(size, starts) for size, starts in places]
        self.one = np.concatenate([(block.rows == block.columns).astype(float) for block in self._blocks])
        self._ends = np.cumsum([len(block.rows) for block in self._blocks])[:-1]

    def densities(self, free: Vector) -> list[Square]:
        return [block.matrix(own) for block, own in zip(self._blocks, np.split(free, self._ends), strict=True)]

    def collect(self, matrix: Square) -> Vector:
        return np.concatenate(
            [
                block.factors * sum(matrix[start + block.rows, start + block.columns] for start in block.starts)
                for block in self._blocks
            ]
        )

    def spread(self, free: Vector) -> Square:
        matrix = np.zeros((self._size, self._size))
        for block, density in zip(self._blocks, self.densities(free), strict=True):
            for start in block.starts:
                matrix[start : start + block.size, start : start + block.size] = density
        return matrix

    def of_products(self, left: Float[np.ndarray, "K m"], right: Float[np.ndarray, "K m"]) -> np.ndarray:
        parts = []
        for block in self._blocks:
            whole = 0.0
            for start in block.starts:
                i, j = start + block.rows, start + block.columns
                whole = whole + left[i] * right[j] + left[j] * right[i]
            parts.append(0.5 * block.factors[:, None] * whole)
        return np.concatenate(parts)

    def equations(self, matrices: Squares, inverses: Squares) -> Square:
        own = [_crossed(block, block, matrices, inverses) for block in self._blocks]
        if len(own) == 1:
            return own[0]
        keys, queries = self._blocks
        mixed = _crossed(keys, queries, matrices, inverses)
        return np.block([[own[0], mixed], [mixed.T, own[1]]])

    def above(self, sums: Vector) -> Vector:
        each = []
        for block in self._blocks:
            largest = np.max([sums[start : start + block.size] for start in block.starts], axis=0)
            each.append(np.where(block.rows == block.columns, largest[block.rows], 0.0))
        return np.concatenate(each)


class _SymmetricBlock(NamedTuple):
    """A symmetric block of X: its size, where it starts, and the coordinates of its upper triangle."""

    size: int
    starts: tuple[int, ...]
    rows: Int[np.ndarray, " k"]
    columns: Int[np.ndarray, " k"]
    factors: Vector

    @classmethod
    def of(cls, size: int, starts: tuple[int, ...]) -> "_SymmetricBlock":
        rows, columns = np.triu_indices(size)
        return cls(size, starts, rows, columns, np.where(rows == columns, 1.0, np.sqrt(2)))

    def matrix(self, own: Vector) -> Square:
        whole = np.zeros((self.size, self.size))
        whole[self.rows, self.columns] = own / self.factors
        whole[self.columns, self.rows] = own / self.factors
        return whole


def _crossed(a: _SymmetricBlock, b: _SymmetricBlock, matrices: Squares, inverses: Squares) -> Float[np.ndarray, "k l"]:
    """Return ⟨E_ij, X E_pq Z⁻¹⟩ for the units E_ij of one block and E_pq of another."""

    def parts(whole: Squares) -> Float[np.ndarray, "N i p"]:
        return np.concatenate([whole[:, s : s + a.size, t : t + b.size] for s in a.starts for t in b.starts])

    X, Z = parts(matrices), parts(inverses)
    pq, qp = b.rows * b.size + b.columns, b.columns * b.size + b.rows
    found = np.empty((len(a.rows), len(b.rows)))
    first = 0
    for i in range(a.size):  # all j >= i at once, so that the products stay in the cache
        own = X[:, i].T @ Z[:, i:].reshape(len(Z), -1) + Z[:, i].T @ X[:, i:].reshape(len(X), -1)
        rows = own.reshape(b.size, -1, b.size).swapaxes(0, 1).reshape(-1, b.size**2)
        found[first : first + len(rows)] = rows[:, pq] + rows[:, qp]
        first += len(rows)
    found *= (0.25 * a.factors)[:, None] * b.factors
    return found
