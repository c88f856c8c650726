"""``attsvm reproduce``: figures and tables of the papers, measured again."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli.interrupts import on_interruption
from attsvm.cli.options import Json, Threads
from attsvm.cli.shared import command_line, limit_threads
from attsvm.cli.tables import columns_table
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from rich.console import Console

    from attsvm.reproduce import Figure, Outcome

HELP = """
NAME is one or more names of `attsvm reproduce --list`, or `all`, or `package.module:NAME` for a figure outside the
package. Figures (PNG and SVG), numbers (JSON) and one page for all of them (`index.html`) are written to the folder of
`--out`. Finished pieces of the measurements are kept there: an interrupted run continues from them, and a piece is
reused only if its parameters, its source and the versions of the libraries are the same.

Examples:

    attsvm reproduce --list

    attsvm reproduce rank feasibility --out out/papers

    attsvm reproduce all --quick
"""


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Figures or tables, or `all`.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the figures and their claims.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: all figures in three minutes. Claims are not judged by it.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for results and finished pieces.")] = Path(
        "out/reproduce"
    ),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure figures and tables of the papers again (the help is HELP)."""
    limit_threads(threads)

    from rich.console import Console

    from attsvm.report.plain import dumps
    from attsvm.reproduce.page import page
    from attsvm.reproduce.run import as_numbers, chosen, claim
    from attsvm.storage import atomic_write

    console = Console()
    if list_all:
        _list(console, chosen(["all"]).values())
        return
    if not names:
        raise ProblemError("NAME: expected figures or tables of `attsvm reproduce --list`, or `all`, got none")
    figures, command = chosen(names), command_line()
    claim(out, figures.values())
    messages = Console(stderr=True)
    on_interruption(lambda: f"finished pieces are kept in {out}, run the command again to go on")
    outcomes = _run(figures, out, command, quick, messages, None if json else console)
    with atomic_write(out / "index.html") as stream:
        stream.write(page(outcomes, command).encode())
    if json:
        print(dumps({outcome.figure.name: as_numbers(outcome, command) for outcome in outcomes}))
    messages.print(f"{out}: index.html, figures and numbers", highlight=False)


def _run(
    figures: dict[str, "Figure"],
    out: Path,
    command: str,
    quick: bool,
    messages: "Console",
    console: "Console | None",
) -> list["Outcome"]:
    """Run and write the figures one after the other, and print each verdict on the console."""
    from attsvm.reproduce.run import run, write

    outcomes = []
    for spelling, figure in figures.items():
        with messages.status(f"{figure.name} …") as status:

            def say(name: str, _: bool, status: Any = status, of: str = figure.name) -> None:
                status.update(f"{of}: {name} done")

            outcome = run(figure, out, quick=quick, spelling=spelling, progress=say)
            write(outcome, out, command)
        outcomes.append(outcome)
        if console is not None:
            _show(console, outcome)
    return outcomes


_COLOURS = {"holds": "green", "holds in part": "yellow", "does not hold": "red"}


def _show(console: "Console", outcome: "Outcome") -> None:
    colour = _COLOURS[outcome.verdict.standing.value]
    console.print(
        f"[bold]{outcome.figure.name}[/bold]  [{colour}]{outcome.standing}[/]  ({outcome.seconds:.1f} s)",
        highlight=False,
    )
    console.print(f"  {outcome.verdict.why}", highlight=False, markup=False)


def _list(console: "Console", figures: "Iterable[Figure]") -> None:
    rows = [(f"[bold]{figure.name}[/bold]", figure.claim, str(figure.paper)) for figure in figures]
    console.print(columns_table(("name", "claim", "paper"), rows))
