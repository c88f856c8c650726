"""What several commands do: limit threads, show progress, claim the folder of a result, print it."""

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from attsvm.cli.exits import INTERRUPTED
from attsvm.errors import ProblemError


def command_line() -> str:
    """The command that is running, for results and captions."""
    return shlex.join(["attsvm", *sys.argv[1:]])


def end_on_termination() -> None:
    """On SIGTERM, remove unfinished files and end the process at once.

    The handler ends the process itself: an exception raised in it is lost where the interpreter happens to be in a
    callback that cannot raise (a weak reference's, while something is being compiled).
    """
    from attsvm.storage import remove_unfinished

    def end(number: int, _: object) -> None:
        remove_unfinished()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def limit_threads(threads: int | None) -> None:
    """Limit the process to the first ``threads`` cores that it may use. Call it before a thread pool starts."""
    if threads is None:
        return
    if threads < 1:
        raise ProblemError(f"--threads: expected an integer >= 1, got {threads}")
    os.environ["ATTSVM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(threads)


@contextlib.contextmanager
def result_folder(out: Path | None, force: bool, inputs: Iterable[object] = ()) -> Iterator[Path | None]:
    """Claim the folder of ``--out``. After Ctrl-C nothing is left in it, and the command ends with one line."""
    from attsvm.report.claim import claim_folder

    try:
        with claim_folder(out, force, inputs) if out else contextlib.nullcontext() as folder:
            yield folder
    except KeyboardInterrupt:
        print("attsvm: interrupted; nothing was written", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def progress(name: str = "training") -> Iterator[Callable[[Any], None]]:
    """Show a progress bar on stderr, and yield the callback that updates it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4g}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=None, loss=float("nan"))
        yield lambda at: bar.update(task, completed=at.step, total=at.steps, loss=at.loss)


def print_result(
    result: dict[str, Any],
    json: bool,
    tables: Iterable[tuple[str, list[tuple[str, str]]]],
    verdict: str,
    notes: Iterable[str],
) -> None:
    """Print a result on stdout: as JSON, or as its tables, its verdict, and notes that must not be overlooked."""
    from rich.console import Console

    from attsvm.cli.tables import grouped_table
    from attsvm.report.plain import dumps

    if json:
        print(dumps(result))
        return
    console = Console()
    console.print(grouped_table(tables))
    console.print(verdict, highlight=False)
    for note in notes:
        console.print(note, style="bold yellow", highlight=False)


def finish(out: Path | None, written: str, exit_status: int = 0) -> None:
    """Say on stderr what was written to ``--out``, and end the command if its exit status is not 0."""
    if out is not None:
        print(f"{out}: {written}", file=sys.stderr)
    if exit_status:
        raise typer.Exit(exit_status)
