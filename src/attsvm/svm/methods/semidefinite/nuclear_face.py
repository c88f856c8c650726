"""The face of the nuclear norm: A*(λ) has r singular values 1, and W has rank r."""

import numpy as np
from jaxtyping import Float

from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.methods.semidefinite.face import MIX, Links, Turned, Values, pairs


class NuclearFace:
    """U₁'A*(λ)V₁ = I up to a rotation, and S is unknown."""

    def mixed(self, weights: Block, pull: Block) -> Block:
        """A*(λ) is X."""
        return np.asarray(MIX * weights + pull)

    def first_size(self, value: Values) -> Values:
        """1."""
        return np.ones(len(value))

    def weight(self, ratio: np.ndarray) -> np.ndarray:
        """S is turned with U₁ and V₁."""
        return ratio

    def links(self, turned: Turned) -> Links:
        """The unknown S, in the symmetric part."""
        i, j = pairs(turned.core.shape[1])
        same = i == j
        return Links(0.5 * turned.products, same.astype(np.float64), np.where(same, turned.core[:, i], 0.0))

    def moved(self, turned: Turned, now: Float[np.ndarray, "N u"], pull: Block) -> tuple[Block, Values]:
        """(U₁ + U₂P) S (V₁ + V₂Q)', and S rotated."""
        core, rank, short = turned.core, turned.core.shape[1], turned.others.shape[1]
        i, j = pairs(rank)
        corner = pull[:, :rank, :rank]
        middle = 0.25 * (corner - corner.mT) * (core[:, :, None] + core[:, None])
        middle[:, i, j] += 0.5 * now
        middle[:, j, i] += 0.5 * now
        down, across = pull[:, :, :rank].copy(), pull[:, :rank].mT.copy()
        down[:, :rank] = across[:, :rank] = np.eye(rank)
        own, others = slice(rank, rank + short), turned.others[:, :, None]
        scale = 1 / ((1 - others) * (1 + others))
        E, F = down[:, own] * scale, across[:, own] * scale
        down[:, own], across[:, own] = E + others * F, F + others * E
        return down @ middle @ across.mT, turned.size

    def values(self, weights: Float[np.ndarray, "N c"], pull: Float[np.ndarray, "N c"]) -> tuple[Values, Values]:
        """Their sum and the largest."""
        return weights.sum(axis=-1), pull[:, 0]
