"""The progress of a path, for its callback."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from attsvm._utils.progress import Callback, Progress


@dataclass
class Watch:
    """Calls the callback after each minimisation, and remembers whether it stopped the work."""

    callback: Callback | None
    steps: int  # radii of all problems
    before: int = 0  # radii of the problems that are finished
    stopped: bool = False
    started: float = field(default_factory=time.perf_counter)

    def stops(self, solved: int, loss: Callable[[], float]) -> bool:
        """Report that a problem has minima at ``solved`` of its radii, and the last loss; whether to stop."""
        if self.callback is None:
            return False
        progress = Progress(self.before + solved, self.steps, time.perf_counter() - self.started, loss=loss())
        self.stopped = bool(self.callback(progress))
        return self.stopped
