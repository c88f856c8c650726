"""A norm with bounds that a solver proved for the matrices that it found."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attsvm.norms.base import Norm, head_axes
from attsvm.norms.scaled import Wrapper

Proof = Callable[[np.ndarray], float | None]
"""A bound on a norm from above; None for a matrix that it says nothing about."""


@dataclass(frozen=True)
class Proved(Wrapper):
    """A norm whose value is a program, with bounds from above that are known for some matrices."""

    # proofs, dual_proofs: of the norm and of its dual norm
    proofs: tuple[Proof, ...] = field(compare=False, repr=False)
    dual_proofs: tuple[Proof, ...] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        """Allow a joint norm: it is the same norm, and not a part."""

    @property
    def head_axes(self) -> int:
        return head_axes(self.of)

    @property
    def dual(self) -> Norm:
        """The dual norm with the bounds that are known of it."""
        return Proved(self.of.dual, self.dual_proofs, self.proofs)

    def value(self, x: Any, axes: int = 2) -> float:
        """The least bound that is known; otherwise that of the norm."""
        known = [bound for bound in (proof(np.asarray(x)) for proof in self.proofs) if bound is not None]
        return min(known) if known else float(self.of.value(x, axes))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return self.of.frobenius_factor(shape)
