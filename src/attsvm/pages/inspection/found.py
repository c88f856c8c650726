"""The results of ``attsvm inspect`` so far."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from attsvm.inspect import Inspection
    from attsvm.inspect.tested import TestedReason


class Found(NamedTuple):
    """The inspections of a model, of its randomly initialised twin, and of its checkpoints by training step."""

    done: "Inspection"
    twin: "Inspection | None" = None
    steps: "tuple[tuple[int, Inspection], ...]" = ()
    tests: "tuple[TestedReason, ...]" = ()  # of the head in detail

    def with_twin(self, twin: "Inspection") -> "Found":
        """The same with the randomly initialised twin."""
        return self._replace(twin=twin)

    def with_checkpoint(self, step: int, checkpoint: "Inspection") -> "Found":
        """The same with one more checkpoint, once its margins are solved."""
        return self if checkpoint.interrupted else self._replace(steps=(*self.steps, (step, checkpoint)))
