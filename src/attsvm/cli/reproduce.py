"""``attsvm reproduce``: the papers' figures and tables, measured anew."""

from pathlib import Path
from typing import Annotated, Any

import typer

from attsvm.cli.shared import INTERRUPTED, command_line, limit_threads
from attsvm.errors import ProblemError

HELP = """
NAME is one or several of `attsvm reproduce --list`, or `all`. Figures (PNG and SVG), numbers (JSON) and one page for
all (`index.html`) go to the folder of `--out`. What is finished is kept there piece by piece: an interrupted run goes
on where it was, and a piece is used again only where parameters, source and versions are the same.

Examples:

    attsvm reproduce --list

    attsvm reproduce rank feasibility --out out/papers

    attsvm reproduce all --quick
"""


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Figures or tables, or `all`.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Name them all, and what each claims.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: all of them in under a minute.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of results and finished pieces.")] = Path(
        "out/reproduce"
    ),
    threads: Annotated[int | None, typer.Option(help="Cores to use at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON on stdout.")] = False,
) -> None:
    """Measure figures and tables of the papers anew (the help is HELP)."""
    limit_threads(threads)

    from rich.console import Console

    from attsvm.report.plain import dumps
    from attsvm.reproduce import EXPERIMENTS, chosen, run, write
    from attsvm.reproduce.page import page
    from attsvm.reproduce.run import as_numbers
    from attsvm.storage import atomic_write

    console = Console()
    if list_all:
        _list(console, EXPERIMENTS)
        return
    if not names:
        raise ProblemError("NAME: none given; name figures or tables of `attsvm reproduce --list`, or `all`")
    experiments, command = chosen(names), command_line()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error
    outcomes = []
    told = Console(stderr=True)
    try:
        for experiment in experiments:
            with told.status(f"{experiment.name} …") as status:

                def say(name: str, _: bool, status: Any = status, of: str = experiment.name) -> None:
                    status.update(f"{of}: {name} done")

                outcome = run(experiment, out, quick=quick, progress=say)
                write(outcome, out, command)
            outcomes.append(outcome)
            if not json:
                _show(console, outcome)
    except KeyboardInterrupt:
        told.print(f"attsvm: interrupted; what is finished stays in {out} and is used again", highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    with atomic_write(out / "index.html") as stream:
        stream.write(page(outcomes, command).encode())
    if json:
        print(dumps({outcome.experiment.name: as_numbers(outcome, command) for outcome in outcomes}))
    told.print(f"{out}: index.html, figures and numbers", highlight=False)


_COLOURS = {"holds": "green", "holds in part": "yellow", "does not hold": "red"}


def _show(console: Any, outcome: Any) -> None:
    standing = outcome.verdict.standing.value
    console.print(
        f"[bold]{outcome.experiment.name}[/bold]  [{_COLOURS[standing]}]{standing}[/]  ({outcome.seconds:.1f} s)",
        highlight=False,
    )
    console.print(f"  {outcome.verdict.why}", highlight=False)


def _list(console: Any, experiments: Any) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "claim", "paper"):
        table.add_column(column)
    for experiment in experiments:
        table.add_row(f"[bold]{experiment.name}[/bold]", experiment.claim, experiment.paper.value)
    console.print(table)
