"""Running experiments: from their names to figures, numbers and verdicts."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from attsvm.errors import ProblemError
from attsvm.report import style
from attsvm.report.plain import dumps, jsonable
from attsvm.reproduce.figure import Arrays, Experiment, Row, Verdict
from attsvm.reproduce.pieces import Store
from attsvm.reproduce.registry import EXPERIMENTS
from attsvm.storage import atomic_write

SCHEMA = "attsvm.reproduce/1"


@dataclass(frozen=True)
class Outcome:
    """What a run of an experiment found."""

    experiment: Experiment
    sizes: dict[str, Any]
    arrays: Arrays
    verdict: Verdict
    rows: list[Row]
    figure: Figure
    seconds: float
    reused: int
    pieces: int


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names, in the papers' order; ``all`` names every one.

    Raises
    ------
    ProblemError
        If a name is not known.
    """
    names = set(names)
    known = {experiment.name for experiment in EXPERIMENTS}
    unknown = sorted(names - known - {"all"})
    if unknown:
        raise ProblemError(f"{unknown[0]}: no such figure or table; `attsvm reproduce --list` names them")
    return [experiment for experiment in EXPERIMENTS if "all" in names or experiment.name in names]


def run(
    experiment: Experiment,
    out: Path,
    *,
    quick: bool = False,
    progress: Callable[[str, bool], object] | None = None,
) -> Outcome:
    """Measure, judge and draw one experiment.

    Parameters
    ----------
    experiment : Experiment
    out : Path
        Folder of finished pieces (``pieces/``); figure and numbers are written by :func:`write`.
    quick : bool
        Small sizes.
    progress : callable
        Called as ``progress(piece, reused)`` after each piece.
    """
    sizes = dict(experiment.quick if quick else experiment.full)
    reuses: list[bool] = []

    def counted(name: str, reused: bool) -> None:
        reuses.append(reused)
        if progress is not None:
            progress(name, reused)

    begun = time.perf_counter()
    store = Store(out / "pieces" / ("quick" if quick else "full") / experiment.name, counted)
    arrays = experiment.measure(sizes, store)
    seconds = time.perf_counter() - begun
    with style.applied():
        figure = experiment.draw(sizes, arrays)
    return Outcome(
        experiment,
        sizes,
        arrays,
        experiment.judge(sizes, arrays),
        list(experiment.rows(sizes, arrays)),
        figure,
        seconds,
        sum(reuses),
        len(reuses),
    )


def write(outcome: Outcome, out: Path, command: str) -> None:
    """Write ``<name>.png``, ``<name>.svg`` and ``<name>.json`` to ``out``, each whole."""
    name = outcome.experiment.name
    contents = {
        "png": style.to_png(outcome.figure),
        "svg": style.to_svg_file(outcome.figure),
        "json": (dumps(as_numbers(outcome, command)) + "\n").encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for ending, content in contents.items():
        with atomic_write(out / f"{name}.{ending}") as stream:
            stream.write(content)


def as_numbers(outcome: Outcome, command: str) -> dict[str, Any]:
    """The outcome as JSON-able numbers."""
    from attsvm import __version__

    experiment = outcome.experiment
    return {
        "schema": SCHEMA,
        "version": __version__,
        "command": command,
        "name": experiment.name,
        "paper": experiment.paper.value,
        "title": experiment.title,
        "claim": experiment.claim,
        "criterion": experiment.criterion,
        "sizes": jsonable(outcome.sizes),
        "verdict": outcome.verdict.standing.value,
        "why": outcome.verdict.why,
        "table": [row._asdict() for row in outcome.rows],
        "seconds": outcome.seconds,
        "pieces": outcome.pieces,
        "pieces_reused": outcome.reused,
        "measured": jsonable(outcome.arrays),
    }
