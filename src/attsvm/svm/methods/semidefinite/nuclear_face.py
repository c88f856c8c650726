"""The face of the nuclear norm: A*(λ) has r singular values 1, and W has rank r."""

from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.methods.semidefinite.face import Singular, Values


class NuclearFace:
    """U₁'A*(λ)V₁ = I up to a rotation, and S is unknown."""

    mix: ClassVar[float] = 4.5
    ridge: ClassVar[float] = 0.1

    def mixed(self, weights: Block, pull: Block) -> Block:
        """Return A*(λ), which is X."""
        return np.asarray(self.mix * weights + pull)

    def first_size(self, value: Values) -> Values:
        return np.ones(len(value))

    def sizes(self, core: Singular, rest: Singular) -> tuple[Singular, Singular]:
        """W is U₁SV₁' on a face of the nuclear norm."""
        return core, rest

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """The symmetric part of U₁'WV₁."""
        return np.asarray(sums & inside[:, None] & inside[: sums.shape[1]])

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """The singular values of W are independent."""

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """Do nothing, as in ``gather``."""

    def size(self, before: Values, weights: Block) -> Values:
        return before

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        """Their sum and the largest."""
        return weights.sum(axis=-1), pull[:, 0]
