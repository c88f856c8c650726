"""How far a computation is, shown while it runs: a bar in a terminal or a notebook, plain lines elsewhere.

Whatever is shown goes to stderr, or below the cell of a notebook.
"""

import contextlib
import html
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import lazy_loader

from attsvm._utils.checks import check_callback, check_flag

P = ParamSpec("P")
R = TypeVar("R")

terminal_bar = lazy_loader.load(
    "attsvm._utils.terminal_bar", suppress_warning=True
)  # rich takes as long as SciPy to import

SECONDS_A_LINE = 10.0
"""Off a terminal, there is a line at least this often, and one for each new stage that comes a second after another."""

_SECONDS_A_STAGE = 1.0

_SECONDS_A_CHANGE = 0.1


@dataclass(frozen=True)
class Progress:
    """What a callback receives. A callback that returns True stops the computation.

    Attributes
    ----------
    step : int
        Steps made so far.
    steps : int or None
        Steps in total; None if not known.
    seconds : float
        Wall time since the start.
    loss, probability : float or None
        Training: the mean loss, and the median over queries of the largest softmax probability.
    gap : float or None
        Solves: the relative duality gap.
    stage : str or None
        The part of the computation that is under way, such as "epoch 2 of 5".

    See Also
    --------
    attsvm.train, attsvm.solve_svm

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000, callback=lambda progress: progress.step >= 100)
    >>> run.status
    <Status.INTERRUPTED: 'interrupted'>
    """

    step: int
    steps: int | None = None
    seconds: float = 0.0
    loss: float | None = None
    probability: float | None = None
    gap: float | None = None
    stage: str | None = None

    def details(self) -> list[str]:
        """What is known beside the steps, in words.

        Examples
        --------
        >>> import attsvm
        >>> attsvm.Progress(10, 100, loss=0.25, gap=float("nan")).details()
        ['loss 0.25']
        """
        numbers = {"loss": self.loss, "gap": self.gap}
        return [f"{name} {x:.4g}" for name, x in numbers.items() if x is not None and math.isfinite(x)]


Callback = Callable[[Progress], object]
"""Called with a :class:`Progress`; a true return value stops the computation."""


class Display(ABC):
    """Where progress is shown.

    Parameters
    ----------
    name : str
        What is computed, such as "training".
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def show(self, at: Progress, seconds_left: float | None) -> None:
        """Show the progress."""

    @abstractmethod
    def close(self) -> None:
        """The computation has ended."""


class Lines(Display):
    """Plain lines with the time of day, for a file, a pipe or the log of a cluster.

    Parameters
    ----------
    name : str
    seconds : float
        The time between two lines of a stage.
    """

    def __init__(self, name: str, seconds: float = SECONDS_A_LINE) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.stage: str | None = None
        self.printed = time.monotonic()
        self.ahead, self.any = "", False

    def show(self, at: Progress, seconds_left: float | None) -> None:
        """Print a line if the stage is new or enough time has passed."""
        now = time.monotonic()
        self.ahead = words(at, seconds_left)
        if now - self.printed >= (self.seconds if at.stage == self.stage else _SECONDS_A_STAGE):
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
    """A bar below the cell of a notebook, which replaces itself. It needs IPython alone."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.handle: Any = None

    def show(self, at: Progress, seconds_left: float | None) -> None:
        """Show the bar, or move it."""
        found = _Drawn(self.name, at, words(at, seconds_left))
        if self.handle is None:
            self.handle = sys.modules["IPython.display"].display(found, display_id=True)
        else:
            self.handle.update(found)

    def close(self) -> None:
        """Leave the last state there."""


@dataclass(frozen=True)
class _Drawn:
    """A bar as a notebook draws it."""

    name: str
    at: Progress
    words: str

    def _repr_html_(self) -> str:
        known = "" if self.at.steps is None else f' max="{self.at.steps}" value="{self.at.step}"'
        text = html.escape(f"{self.name}: {self.words}")
        return f'<div><progress{known} style="width: 12em" aria-hidden="true"></progress> {text}</div>'

    def __repr__(self) -> str:
        return f"{self.name}: {self.words}"


def find_display(name: str) -> Display:
    """The display that suits where the program runs."""
    if _in_notebook():
        return Cell(name)
    if not in_terminal():
        return Lines(name)
    bar: Display = terminal_bar.Bar(name)
    return bar


@contextlib.contextmanager
def shown(
    wanted: bool | Callable[[str], Display], name: str, callback: Callable[[Any], object] | None = None
) -> Iterator[Callable[[Any], object] | None]:
    """Show the progress of the block.

    Parameters
    ----------
    wanted : bool or callable
        True for the display of :func:`find_display`, False for none; or what makes one from the name.
    name : str
        What is computed.
    callback : callable, optional
        Of the caller, which is called, too.

    Yields
    ------
    callable or None
        The callback for the computation: it shows its progress, and returns what the callback of the caller returns.

    Examples
    --------
    >>> from attsvm._utils.progress import shown
    >>> with shown(False, "training", print) as callback:
    ...     callback("at step 1")
    at step 1
    """
    if wanted is False:
        yield callback
        return
    display = find_display(name) if wanted is True else wanted(name)
    clock, last = _Clock(), -_SECONDS_A_CHANGE

    def update(at: Any) -> object:
        nonlocal last
        clock.count(at.step)
        now = time.monotonic()
        if now - last >= _SECONDS_A_CHANGE or at.step == at.steps:
            last = now
            display.show(at, clock.seconds_left(at.step, at.steps))
        return callback(at) if callback is not None else None

    try:
        yield update
    finally:
        display.close()


def reports(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that has a ``callback``, so that its argument ``progress`` shows how far it is.

    Parameters
    ----------
    name : str
        What the function computes.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            wanted: Any = options.pop("progress", False)
            if wanted is False:
                return function(*args, **options)
            check_flag("progress", wanted)
            given: Any = options.pop("callback", None)
            check_callback(given)
            with shown(True, name, given) as callback:
                options["callback"] = callback
                return function(*args, **options)

        return call

    return decorate


@dataclass
class _Clock:
    """The time that is left, from the speed since the second call: what was before it is start and compilation."""

    first: int | None = None
    start: tuple[int, float] | None = field(default=None)

    def count(self, step: int) -> None:
        """Take note of a step."""
        if self.first is None:
            self.first = step
        elif self.start is None and step > self.first:
            self.start = step, time.monotonic()

    def seconds_left(self, step: int, steps: int | None) -> float | None:
        """The seconds for the remaining steps; None while it cannot be known."""
        if steps is None or step >= steps or self.start is None or step <= self.start[0]:
            return None
        return (steps - step) * (time.monotonic() - self.start[1]) / (step - self.start[0])


def in_draws(
    callback: Callable[[Any], object] | None, draw: int, draws: int, noun: str = "draw"
) -> Callable[[Any], object] | None:
    """The callback of one of several computations of equal length, in steps of all of them.

    So the time that is left is that of all computations.

    Parameters
    ----------
    callback : callable or None
        Of all computations.
    draw, draws : int
        The computation, from 0 on, and how many there are.
    noun : str
        What the stages count.

    Examples
    --------
    >>> from attsvm import Progress
    >>> from attsvm._utils.progress import in_draws
    >>> in_draws(lambda at: print(at.stage, at.step, at.steps), 1, 3)(Progress(10, 100))
    draw 2 of 3 110 300
    """
    if callback is None or draws == 1:
        return callback

    def update(at: Any) -> object:
        stage = f"{noun} {draw + 1} of {draws}"
        return callback(replace(at, step=draw * at.steps + at.step, steps=draws * at.steps, stage=stage))

    return update


def words(at: Progress, seconds_left: float | None) -> str:
    """A progress in one line: what is not known is left out.

    Examples
    --------
    >>> from attsvm import Progress
    >>> from attsvm._utils.progress import words
    >>> words(Progress(1000, 20000, loss=0.25), 95.0)
    '1,000/20,000, loss 0.25, 95 s left'
    >>> words(Progress(12), None)
    '12'
    """
    count = f"{at.step:,}" if at.steps is None else f"{at.step:,}/{at.steps:,}"
    left = "" if seconds_left is None else f"{duration(seconds_left)} left"
    return ", ".join(part for part in (at.stage, count, *at.details(), left) if part)


def duration(seconds: float) -> str:
    """A time in a unit that suits it.

    Examples
    --------
    >>> from attsvm._utils.progress import duration
    >>> duration(95), duration(7300)
    ('95 s', '2.0 h')
    """
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> from attsvm._utils.progress import counted
    >>> counted(1, "chunk"), counted(2000, "chunk")
    ('1 chunk', '2,000 chunks')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_terminal() -> bool:
    """Whether stderr is a terminal in which a line can be replaced."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _in_notebook() -> bool:
    """Whether the program runs in a kernel of Jupyter."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return "IPKernelApp" in getattr(find_shell(), "config", ())
