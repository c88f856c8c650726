"""``attsvm fit``: the main job on a data set or a problem file."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.commands.shared import INTERRUPTED, command_line, limit_threads, progress
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.problem import Problem

HELP = """
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


def fit(
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
    """Train an attention classifier on SOURCE (the help is HELP)."""
    limit_threads(threads)
    command = command_line()

    # what a command needs is loaded when it runs, so that the others start at once
    from rich.console import Console

    from attsvm.report import claim_folder, numbers, write_folder
    from attsvm.report.plain import dumps

    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(claim_folder(out, force)) if out else None
            problem, digit_classes = _read(source, classes)

            from attsvm.fit import fit as train_and_compare

            with progress() as callback:
                done = train_and_compare(
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
    if not source.lower().endswith(".npz"):
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


def _show(console: Any, done: Any, result: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from attsvm.report.words import notes, tables, verdict

    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, rows in tables(done, result):
        table.add_row(f"[bold]{name}[/bold]", "")
        for left, right in rows:
            table.add_row(f"  {left}", right)
        table.add_section()
    console.print(table)
    console.print(verdict(done, result), highlight=False)
    for note in notes(done, result):
        console.print(note, style="bold yellow", highlight=False)
