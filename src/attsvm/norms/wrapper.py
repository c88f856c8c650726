"""A norm that is made of one other norm, and is invariant where that one is."""

from collections.abc import Sequence
from dataclasses import dataclass

from attsvm.norms.base import Norm


@dataclass(frozen=True)
class Wrapper(Norm):
    """What multiples and dual norms have in common: shape and invariances are those of the norm inside."""

    of: Norm

    @property
    def name(self) -> str:
        """The name that follows from that of the norm inside."""
        return self.named([self.of.name])

    def named(self, parts: Sequence[str]) -> str:
        """The name of the norm inside, by default."""
        return parts[0]

    @property
    def parts(self) -> tuple[Norm, ...]:
        return (self.of,)

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.of.shape

    @property
    def left_invariant(self) -> bool:
        return self.of.left_invariant

    @property
    def right_invariant(self) -> bool:
        return self.of.right_invariant
