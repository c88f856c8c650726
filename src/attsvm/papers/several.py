"""Several figures: measured in processes side by side, and written one by one."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attsvm._utils.compiled_programs import keep_programs
from attsvm._utils.files import written_by_workers
from attsvm._utils.jax_devices import find_device
from attsvm._utils.progress import Progress
from attsvm._utils.threads import num_threads
from attsvm._utils.workers import side_by_side
from attsvm.pages import Claim
from attsvm.papers.figure import Figure
from attsvm.papers.figures import FIGURES
from attsvm.papers.outcome import run, write

MOST_WORKERS = 4
"""Limit for the number of processes. Each takes up to 4 GB of memory, most of it for compiled programs."""


def run_several(
    figures: Mapping[str, Figure],
    out: Path,
    command: str,
    *,
    quick: bool = False,
    sizes: Mapping[str, Any] | None = None,
    device: str | None = None,
    callback: Callable[[Progress], object] = lambda _: None,
) -> Iterator[Claim]:
    """Run figures, write each one as :func:`write` does, and yield what the page shows of them, in order.

    ``figures``: by what the command line calls them. ``command``: that is running. ``quick``, ``sizes``, ``device``: as
    for :func:`attsvm.papers.run`. ``callback``: receives a :class:`attsvm.Progress`, whose steps are figures.

    Most of the time of a figure is compilation, which uses few threads, so two figures at a time on two cores take half
    the time. A single figure, or one thread, is measured in this process. So is every figure on a GPU, whose memory
    each process would reserve for itself.
    """
    workers = min(num_threads(), len(figures), MOST_WORKERS) if find_device(device).platform == "cpu" else 1
    options = {"out": out, "quick": quick, "sizes": sizes, "device": device}
    if workers == 1:
        for number, (spelling, figure) in enumerate(figures.items()):
            report = partial(_report, callback, number, len(figures), figure.name)
            report("begins")
            finished = _run(figure, spelling, command, options, report)
            _report(callback, number + 1, len(figures), figure.name, "done")
            yield finished
        return
    calls = ((Path.cwd(), spelling, command, options) for spelling in figures)
    callback(Progress(0, len(figures), stage=f"{workers} at a time"))
    with written_by_workers(out):
        for number, finished in enumerate(side_by_side(_run_by_name, calls, workers), 1):
            _report(callback, number, len(figures), finished.outcome.figure.name, "done")
            yield finished


def _report(callback: Callable[[Progress], object], done: int, figures: int, name: str, what: str) -> None:
    callback(Progress(done, figures, stage=f"{name}: {what}"))


def _run_by_name(folder: Path, spelling: str, command: str, options: Mapping[str, Any]) -> Claim:
    keep_programs()
    os.chdir(folder)  # a worker of an earlier call may be in another one
    return _run(FIGURES.find(spelling), spelling, command, options, lambda _: None)


def _run(
    figure: Figure, spelling: str, command: str, options: Mapping[str, Any], report: Callable[[str], object]
) -> Claim:
    outcome = run(figure, **options, spelling=spelling, progress=lambda piece, _: report(f"{piece} done"))
    write(outcome, options["out"], command)
    return Claim.draw(outcome, command)
