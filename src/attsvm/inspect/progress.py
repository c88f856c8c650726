"""What an inspection reports while it is under way."""

from collections.abc import Callable
from dataclasses import dataclass, field

from attsvm._utils.progress import Progress
from attsvm.errors import ProblemError
from attsvm.inspect.result import Inspection


def _nothing() -> Inspection:
    raise ProblemError("inspection: expected the progress of an inspection, got one that was made by hand")


@dataclass(frozen=True)
class HeadProgress(Progress):
    """What the callback of :func:`inspect` receives after each head: also which one, and what is known so far.

    With margins, the heads are measured before the first step: after each layer there is a call with ``step`` 0.

    Attributes
    ----------
    layer, head : int
        Counted from 0.
    inspection : callable
        Returns the :class:`Inspection` so far. Heads that are not measured yet are missing, and those whose margins are
        not solved yet have the status ``interrupted``.
    """

    layer: int = 0
    head: int = 0
    inspection: Callable[[], Inspection] = field(default=_nothing, repr=False, compare=False)
