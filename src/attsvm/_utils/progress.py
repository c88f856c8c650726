"""How far a computation is: what callbacks receive, and how functions show it while they run."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import lazy_loader

from attsvm._utils.checks import check_callback, check_flag
from attsvm._utils.interruption import num_requests
from attsvm._utils.keywords import suggests

P = ParamSpec("P")
R = TypeVar("R")

progress_display = lazy_loader.load("attsvm._utils.progress_display", suppress_warning=True)

SECONDS_A_LINE = 10.0
"""Off a terminal, there is a line at least this often."""

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
        """What else is known about the progress, in words.

        Examples
        --------
        >>> import attsvm
        >>> attsvm.Progress(10, 100, loss=0.25, gap=float("nan")).details()
        ['loss 0.25']
        """
        numbers = {"loss": self.loss, "gap": self.gap}
        return [f"{name} {x:z.4g}" for name, x in numbers.items() if x is not None and math.isfinite(x)]


Callback = Callable[[Progress], object]
"""Called with a :class:`Progress`; a true return value stops the computation."""


@contextlib.contextmanager
def shown(
    wanted: bool, name: str, callback: Callable[[Any], object] | None = None, seconds_a_line: float = SECONDS_A_LINE
) -> Iterator[Callable[[Any], object] | None]:
    """Show the progress of the block if it is wanted. ``name``: what is computed.

    It yields the callback for the computation, which returns what the callback of the caller returns. A computation
    that ends by itself before its last step, as one that has converged, has made all its steps.
    """
    if not wanted:
        yield callback
        return
    display, last = progress_display.find_display(name, seconds_a_line), -math.inf
    latest: Any = None
    stopped, signals = False, num_requests()

    def update(at: Any) -> object:
        nonlocal last, latest, stopped
        now, latest = time.monotonic(), at
        if now - last >= _SECONDS_A_CHANGE or at.step == at.steps:
            last = now
            display.show(at)
        found = callback(at) if callback is not None else None
        stopped |= bool(found)
        return found

    try:
        yield update
        ends_early = latest is not None and latest.steps is not None and latest.step < latest.steps
        if ends_early and not stopped and num_requests() == signals:
            display.show(replace(latest, steps=latest.step))
    finally:
        display.close()


def reports(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that has a ``callback``, so that its argument ``progress`` shows how far it is.

    ``name``: what the function computes.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        function = suggests(function)

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            given: Any = options.get("callback")
            check_callback(given)
            wanted: Any = options.pop("progress", False)
            if wanted is False:
                return function(*args, **options)
            check_flag("progress", wanted)
            with shown(True, name, given) as callback:
                options["callback"] = callback
                return function(*args, **options)

        return call

    return decorate


def in_draws(
    callback: Callable[[Any], object] | None, draw: int, draws: int, noun: str = "draw"
) -> Callable[[Any], object] | None:
    """The callback of one of several computations of equal length, in steps of all of them.

    So the time that is left is that of all computations. ``draw``, ``draws``: the computation, from 0 on, and how many
    there are. ``noun``: what the stages count.

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
    left = f"{duration(seconds_left)} left" if seconds_left else ""
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
    """A number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_recorded(step: int) -> bool:
    """Return whether a training loop records a step for pages: 0 and powers of two, 21 records in a million steps."""
    return step.bit_count() <= 1
