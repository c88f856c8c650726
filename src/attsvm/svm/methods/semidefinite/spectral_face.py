"""The face of the spectral norm: W has r singular values t, and A*(λ) has rank r and trace norm 1."""

import numpy as np
from jaxtyping import Float

from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.methods.semidefinite.face import MIX, Links, Turned, Values


class SpectralFace:
    """tr S = 1 and U₂'A*(λ)V₂ = 0, with the unknowns t and U₂'WV₂."""

    def mixed(self, weights: Block, pull: Block) -> Block:
        """W is X."""
        return np.asarray(weights + MIX * pull)

    def first_size(self, value: Values) -> Values:
        """The value."""
        return value

    def weight(self, ratio: np.ndarray) -> np.ndarray:
        """U₁ and V₁ follow from A*(λ)."""
        return 1 / ratio

    def links(self, turned: Turned) -> Links:
        """The unknowns t and U₂'WV₂."""
        rank, short = turned.core.shape[1], turned.others.shape[1]
        first, second = turned.first, turned.second
        N, count, _ = first.shape
        columns = second.shape[2] - rank
        rest = (first[:, :, rank:, None] * second[:, :, None, rank:]).reshape(N, count, -1)
        matrix = np.concatenate([np.vecdot(first[:, :, :rank], second[:, :, :rank])[:, :, None], rest], axis=2)
        now, right = np.zeros((N, matrix.shape[2])), np.zeros(matrix.shape[2])
        now[:, 0], right[0] = turned.size, 1.0
        if short:
            now[:, 1 :: columns + 1][:, :short] = turned.others
        return Links(matrix, right, now)

    def moved(self, turned: Turned, now: Float[np.ndarray, "N u"], pull: Block) -> tuple[Block, Values]:
        """All blocks of W: those beside the last one from P and Q."""
        core, rank, short = turned.core, turned.core.shape[1], turned.others.shape[1]
        size, others = now[:, :1, None], turned.others[:, :, None]
        moved = np.empty_like(pull)
        corner = pull[:, :rank, :rank]
        moved[:, :rank, :rank] = size * (corner - corner.mT) / (core[:, :, None] + core[:, None])
        moved[:, np.arange(rank), np.arange(rank)] = now[:, :1]
        down, across = pull[:, rank:, :rank] / core[:, None], pull[:, :rank, rank:].mT / core[:, None]
        moved[:, rank:, :rank] = size * down
        moved[:, rank : rank + short, :rank] -= others * across[:, :short]
        moved[:, :rank, rank:] = (size * across).mT
        moved[:, :rank, rank : rank + short] -= (others * down[:, :short]).mT
        moved[:, rank:, rank:] = now[:, 1:].reshape(moved[:, rank:, rank:].shape)
        return moved, now[:, 0]

    def values(self, weights: Float[np.ndarray, "N c"], pull: Float[np.ndarray, "N c"]) -> tuple[Values, Values]:
        """The largest and their sum."""
        return weights[:, 0], pull.sum(axis=-1)
