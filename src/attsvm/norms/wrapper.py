"""A norm that is made of one other norm, and is invariant where that one is."""

from dataclasses import dataclass

from attsvm.norms.base import Norm


@dataclass(frozen=True)
class Wrapper(Norm):
    """What multiples and dual norms have in common: shape and invariances are those of the norm inside."""

    of: Norm

    @property
    def name(self) -> str:
        """Return the name of the norm inside."""
        return self.of.name

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
