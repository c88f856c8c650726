"""The rows of biases: those of weights with a second block b, whose keys are unit vectors that are never stored.

A row is (k_r − k_t) z' on the block W and e_r − e_t on b, where e_j is 0 for a token without a bias. Weights are 0
outside of both blocks, so that products with them need no mask; matrices that are made of rows do.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.problem import gathered


class BiasRows(NamedTuple):
    """Which biases the rows of a problem are differences of: that of the reference minus that of the token."""

    of_token: Int[np.ndarray, "*batch n Q T"]  # −1 for none
    of_reference: Int[np.ndarray, "*batch n Q 1"]
    number: int  # m

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Rows of other problems or sequences, by a function of arrays over (n, Q, T)."""
        return self._replace(of_token=change(self.of_token), of_reference=change(self.of_reference))

    @property
    def squares(self) -> Float[np.ndarray, "*batch n Q T"]:
        """‖e_r − e_t‖²."""
        differ = self.of_token != self.of_reference
        return np.asarray(differ * ((self.of_token >= 0) * 1.0 + (self.of_reference >= 0)))

    def apply(self, b: Float[np.ndarray, "*batch m"]) -> Float[np.ndarray, "*batch n Q T"]:
        """b_r − b_t."""
        return np.asarray(gathered(b, self.of_reference) - gathered(b, self.of_token))

    def magnitude(self, b: Float[np.ndarray, "*batch m"]) -> Float[np.ndarray, "*batch n Q T"]:
        """|b_r| + |b_t|, which bounds the rounding errors."""
        return np.asarray(gathered(abs(b), self.of_reference) + gathered(abs(b), self.of_token))

    def adjoint(self, multipliers: Float[np.ndarray, "*batch n Q T"]) -> Float[np.ndarray, "*batch m"]:
        """Σ λ (e_r − e_t)."""
        lead = multipliers.shape[:-3]
        sums = np.zeros((int(np.prod(lead)), self.number + 1))  # the last one of tokens without a bias
        rows = np.arange(len(sums))[:, None]
        for index, parts in (
            (self.of_reference, multipliers.sum(axis=-1, keepdims=True)),
            (self.of_token, -multipliers),
        ):
            index = np.broadcast_to(index, lead + index.shape[-3:])
            np.add.at(sums, (rows, index.reshape(len(sums), -1)), parts.reshape(len(sums), -1))
        return sums[:, :-1].reshape(*lead, self.number)

    def differences(self, position: Int[np.ndarray, " k"]) -> Float[np.ndarray, "*batch k m"]:
        """e_t − e_r of the rows at these positions of the flattened (n, Q, T)."""
        lead, (n, Q, T) = self.of_token.shape[:-3], self.of_token.shape[-3:]
        token = self.of_token.reshape(*lead, n * Q * T).take(position, axis=-1)
        reference = self.of_reference.reshape(*lead, n * Q).take(position // T, axis=-1)
        bias = np.arange(self.number)
        return np.asarray(1.0 * (token[..., None] == bias) - (reference[..., None] == bias))


class WeightBlocks(NamedTuple):
    """The blocks of weights: W of this shape above on the left, and b below in the last column."""

    rows: int
    columns: int

    def only(self, matrices: Float[np.ndarray, "*batch D_k D_q"]) -> Float[np.ndarray, "*batch D_k D_q"]:
        """The matrices with zeros outside of both blocks."""
        kept = np.zeros(matrices.shape[-2:])
        kept[: self.rows, : self.columns] = 1.0
        kept[self.rows :, self.columns :] = 1.0
        return np.asarray(matrices * kept)

    def each(self, left: np.ndarray, queries: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The factors of rows in each of the blocks."""
        k, q = self
        return [(left[..., :k], queries[..., :q]), (left[..., k:], queries[..., q:])]


def block_gram(
    left: Float[np.ndarray, "*batch m D_k"], queries: Float[np.ndarray, "*batch m D_q"], blocks: WeightBlocks | None
) -> Float[np.ndarray, "*batch m m"]:
    """Inner products of rows l z', in each block (l_a'l_b)(z_a'z_b)."""
    if blocks is None:
        return np.asarray((left @ left.mT) * (queries @ queries.mT))
    return np.asarray(sum(block_gram(*factors, None) for factors in blocks.each(left, queries)))
