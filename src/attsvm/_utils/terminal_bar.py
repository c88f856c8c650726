"""A progress bar in a terminal."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from attsvm._utils import progress
from attsvm._utils.progress import Display, words


class Bar(Display):
    """A bar of rich. Warnings appear above it, and it is removed at the end."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}")
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(name, total=None, words="")
        self.bar.start()

    def show(self, at: progress.Progress, seconds_left: float | None) -> None:
        """Move the bar; it pulses where the number of steps is not known."""
        self.bar.update(self.task, completed=at.step, total=at.steps, words=words(at, seconds_left))

    def close(self) -> None:
        """Remove the bar."""
        self.bar.stop()
