"""Where progress is shown: a bar in a terminal or a notebook, plain lines elsewhere. Rich measures the time left.

Whatever is shown goes to stderr, or below the cell of a notebook. Rich takes as long as SciPy to import, so this module
is imported when progress is first shown.
"""

import html
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from attsvm._utils.progress import Progress, words
from attsvm._utils.text import one_line

SECONDS_A_STAGE = 1.0


class Display(ABC):
    """Where the progress of a computation is shown. ``name``: what is computed, such as "training"."""

    def __init__(self, name: str, *, live: bool = False) -> None:
        self.name = name
        name_column, words_column = (
            TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[words]}")
        )
        self.bar = Bar(
            name_column,
            BarColumn(),
            words_column,
            console=Console(stderr=True),
            transient=True,
            disable=not live,
            get_time=time.monotonic,
            # the time left follows from all steps since the first call; what was before it is start and compilation
            speed_estimate_period=math.inf,
        )
        self.task = self.bar.add_task(name, total=None, words="")

    def show(self, at: Progress) -> None:
        """Show the progress, with the time that is left."""
        self.bar.update(self.task, total=at.steps, completed=at.step)
        text = one_line(words(at, self.bar.tasks[0].time_remaining))
        self.bar.update(self.task, words=text)
        self.draw(at, text)

    @abstractmethod
    def draw(self, at: Progress, text: str) -> None:
        """Show the progress, of which the text says what is known."""

    @abstractmethod
    def close(self) -> None:
        """End the display."""


class Lines(Display):
    """Plain lines with the time of day, for a file, a pipe or the log of a cluster.

    There is one for each new stage that comes a second after another, and one after ``seconds`` of a stage.
    """

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.stage: str | None = None
        self.printed = time.monotonic()
        self.ahead, self.any = "", False

    def draw(self, at: Progress, text: str) -> None:
        now = time.monotonic()
        self.ahead = text
        if now - self.printed >= (self.seconds if at.stage == self.stage else SECONDS_A_STAGE):
            self.stage, self.printed = at.stage, now
            self._print()

    def close(self) -> None:
        """Print where it has ended, if there were lines before."""
        if self.any and self.ahead:
            self._print()

    def _print(self) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.name}: {self.ahead}", file=sys.stderr, flush=True)
        self.ahead, self.any = "", True


class Cell(Display):
    """A bar below the cell of a notebook, which replaces itself. Unlike rich's own, it needs IPython alone."""

    handle: Any = None

    def draw(self, at: Progress, text: str) -> None:
        known = "" if at.steps is None else f' max="{at.steps}" value="{at.step}"'
        plain = f"{self.name}: {text}"
        bar = f'<progress{known} style="width: 12em" aria-hidden="true"></progress>'
        drawn = {"text/html": f"<div>{bar} {html.escape(plain)}</div>", "text/plain": plain}
        if self.handle is None:
            self.handle = sys.modules["IPython.display"].display(drawn, raw=True, display_id=True)
        else:
            self.handle.update(drawn, raw=True)

    def close(self) -> None:
        """Leave the last state there."""


class Terminal(Display):
    """A bar of rich. Warnings appear above it, and it is removed at the end."""

    def __init__(self, name: str) -> None:
        super().__init__(name, live=True)
        self.bar.start()

    def draw(self, at: Progress, text: str) -> None:
        """Leave it to rich, which draws ten times a second."""

    def close(self) -> None:
        """Remove the bar."""
        self.bar.stop()


def find_display(name: str, seconds: float) -> Display:
    """Return the display that suits where the program runs. ``seconds``: the time between two lines off a terminal."""
    if _in_notebook():
        return Cell(name)
    in_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"  # where a line can be replaced
    return Terminal(name) if in_terminal else Lines(name, seconds)


def _in_notebook() -> bool:
    """Whether the program runs in a kernel of Jupyter."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return "IPKernelApp" in getattr(find_shell(), "config", ())
