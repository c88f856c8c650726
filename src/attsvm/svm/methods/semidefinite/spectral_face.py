"""The face of the spectral norm: W has r singular values t, and A*(λ) has rank r and trace norm 1."""

from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.methods.semidefinite.face import Singular, Values


class SpectralFace:
    """tr S = 1 and U₂'A*(λ)V₂ = 0, with the unknowns t and U₂'WV₂."""

    mix: ClassVar[float] = 3.0
    ridge: ClassVar[float] = 1.0

    def mixed(self, weights: Block, pull: Block) -> Block:
        """Return W, which is X."""
        return np.asarray(weights + self.mix * pull)

    def first_size(self, value: Values) -> Values:
        return value

    def sizes(self, core: Singular, rest: Singular) -> tuple[Singular, Singular]:
        """A*(λ) is U₁SV₁' on a face of the spectral norm."""
        return rest, core

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """U₂'WV₂; and t, in the first place."""
        free = ~(inside[:, None] | inside[: sums.shape[1]])
        free[0, 0] = True
        return np.asarray(free)

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """The first r singular values of W are t."""
        c = diagonal.shape[1]
        diagonal[:, 0] = np.einsum("nc...,nc->n...", diagonal, inside[:, :c])
        if pull is not None:
            diagonal[:, 0] += pull.sum(axis=-1) - 1

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """Repeat t r times."""
        diagonal[:, 1:] += inside[:, 1 : diagonal.shape[-1]] * diagonal[:, :1]

    def size(self, before: Values, weights: Block) -> Values:
        """The first singular value."""
        return weights[:, 0, 0].copy()

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        """The largest and their sum."""
        return weights[:, 0], pull.sum(axis=-1)
