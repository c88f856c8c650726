"""What ``attsvm inspect`` has found so far."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from attsvm.torch.inspection import Inspection


class Found(NamedTuple):
    """The inspections of a model, of its randomly initialised twin, and of its checkpoints by training step.

    Attributes
    ----------
    done : Inspection
    twin : Inspection or None
    steps : list of (int, Inspection)
    """

    done: "Inspection"
    twin: "Inspection | None" = None
    steps: "tuple[tuple[int, Inspection], ...]" = ()

    def with_checkpoint(self, step: int, checkpoint: "Inspection") -> "Found":
        """The same with one more checkpoint, once its margins are solved."""
        return self if checkpoint.interrupted else self._replace(steps=(*self.steps, (step, checkpoint)))
