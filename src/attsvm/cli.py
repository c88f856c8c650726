"""The command line: ``attsvm``."""

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.problem import Problem

BAD_INPUT, INTERRUPTED = 2, 130

app = typer.Typer(
    name="attsvm",
    help="What training does to softmax attention: the Att-SVM a layer converges to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

FIT_HELP = """
Train an attention classifier on SOURCE, and show what it selects and how close its weights came to the Att-SVM.

SOURCE is `digits` (scikit-learn's handwritten digits, a picture's 2x2 patches as tokens) or a problem file `.npz`
whose names are the arguments of `attsvm.Problem`: tokens and labels (±1) and, where there are, queries, head, keys,
mask, query_mask. With queries the attention is combined (W), else a prompt (p). A head in the file stays fixed;
without one it is trained with the attention, or fixed by `--fix-head`.

Examples:

    attsvm fit digits --classes 3,8 --out demo/digits-joint

    attsvm fit digits --classes 3,8 --fix-head --out demo/digits-fixed-head

    attsvm fit problem.npz --steps 200000 --json > result.json
"""


def main() -> None:
    """Run the command line; what a user passed wrongly is one line on stderr and exit status 2."""
    try:
        app()
    except (ProblemError, OSError) as error:
        _fail(error)


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=lambda on: _version(on)),
    ] = False,
) -> None:
    """What training does to softmax attention: the Att-SVM a layer converges to."""


@app.command("fit", help=FIT_HELP)
def fit_command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="`digits` or a problem file `.npz`.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for page, figures and results.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of digits: the two classes.  [default: 3,8]")
    ] = None,
    fix_head: Annotated[
        bool, typer.Option("--fix-head", help="Train the attention alone, under a fixed head.")
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(help="Of normalised gradient descent.  [default: 100,000 with a fixed head, else 5,000]"),
    ] = None,
    learning_rate: Annotated[
        float, typer.Option(help="Step size; grows by 1 % of it a step where the head is fixed.")
    ] = 0.1,
    test_fraction: Annotated[float, typer.Option(help="Share of each class set apart for testing.")] = 0.25,
    seed: Annotated[int, typer.Option(help="Of the split into training and test.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Cores to use at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier result.")] = False,
) -> None:
    """Train an attention classifier on SOURCE (the help is FIT_HELP)."""
    _limit_threads(threads)
    # a plain kill ends the work as Ctrl-C does outside of training: nothing half-written stays behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    command = shlex.join(["attsvm", *sys.argv[1:]])

    from rich.console import Console

    from attsvm.report import claim_folder, numbers, write_folder
    from attsvm.report.folder import dumps

    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(claim_folder(out, force)) if out else None
            problem, digit_classes = _read(source, classes)

            from attsvm.fit import fit

            with _progress() as callback:
                done = fit(
                    problem,
                    fix_head=fix_head,
                    test_fraction=test_fraction,
                    seed=seed,
                    steps=steps,
                    learning_rate=learning_rate,
                    callback=callback,
                )
            result = numbers(
                done, problem, source=source, command=command, seed=seed, threads=threads, classes=digit_classes
            )
            if folder:
                write_folder(folder, done, result, command, digit_classes)
    except KeyboardInterrupt:
        print("attsvm: interrupted; nothing was written", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print(dumps(result))
    else:
        _show(Console(), done, result)
    if out:
        print(f"{out}: index.html, figures, result.json and run.npz", file=sys.stderr)
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


def _read(source: str, classes: str | None) -> "tuple[Problem, tuple[int, int] | None]":
    from attsvm.datasets.arrays import labelled_problem
    from attsvm.datasets.digits import digits

    if source == "digits":
        chosen = _classes(classes or "3,8")
        return digits(chosen), chosen
    if not source.endswith(".npz"):
        raise ProblemError(f"{source}: unknown source; `digits` or a problem file `.npz` wanted")
    if classes is not None:
        raise ProblemError("--classes: only for `digits`; a problem file has its labels")
    return labelled_problem(source), None


def _classes(text: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise ProblemError(f"--classes: {text!r} found, two different digits wanted, like 3,8") from None
    return first, second


def _limit_threads(threads: int | None) -> None:
    """Take the first cores of those that the process may use, before anything starts a pool of threads."""
    if threads is None:
        return
    if threads < 1:
        raise ProblemError(f"--threads: {threads} found, at least 1 wanted")
    os.environ["ATTSVM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(threads)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Any], None]]:
    """A progress bar on stderr, and the function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4g}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=None, loss=float("nan"))
        yield lambda at: bar.update(task, completed=at.step, total=at.steps, loss=at.loss)


def _show(console: Any, done: Any, result: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from attsvm.report.words import notes, tables, verdict

    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    for name, rows in tables(done, result):
        table.add_row(f"[bold]{name}[/bold]", "")
        for left, right in rows:
            table.add_row(f"  {left}", right)
        table.add_section()
    console.print(table)
    console.print(verdict(done, result), highlight=False)
    for note in notes(done, result):
        console.print(note, style="bold yellow", highlight=False)


def _version(on: bool) -> None:
    if on:
        from attsvm import __version__

        print(f"attsvm {__version__}")
        raise typer.Exit


def _fail(error: Exception) -> NoReturn:
    message = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"attsvm: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)
