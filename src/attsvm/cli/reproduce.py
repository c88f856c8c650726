"""``attsvm reproduce``: figures and tables of the papers, measured again."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attsvm.cli.interrupts import on_interruption
from attsvm.cli.options import Json, Threads
from attsvm.cli.shared import command_line, limit_threads
from attsvm.cli.tables import columns_table
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from rich.console import Console

    from attsvm.reproduce import Figure
    from attsvm.reproduce.page import Card

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
        bool,
        typer.Option(
            "--quick", help="Small sizes: all figures in two minutes on two cores. Claims are not judged by it."
        ),
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
    from attsvm.reproduce.run import chosen, claim
    from attsvm.reproduce.several import run_several
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
    cards: list[Card] = []
    with messages.status("") as status:
        for card in run_several(figures, out, command, quick=quick, progress=status.update):
            cards.append(card)
            if not json:
                status.stop()  # its line is on the same terminal
                _show(console, card)
                status.start()
    with atomic_write(out / "index.html") as stream:
        stream.write(page(cards, command).encode())
    if json:
        print(dumps({card.name: card.numbers for card in cards}))
    messages.print(f"{out}: index.html, figures and numbers", highlight=False)


_COLOURS = {"holds": "green", "holds in part": "yellow", "does not hold": "red"}


def _show(console: "Console", card: "Card") -> None:
    colour = _COLOURS[card.standing.value]
    console.print(f"[bold]{card.name}[/bold]  [{colour}]{card.words}[/]  ({card.seconds:.1f} s)", highlight=False)
    console.print(f"  {card.why}", highlight=False, markup=False)


def _list(console: "Console", figures: "Iterable[Figure]") -> None:
    rows = [(f"[bold]{figure.name}[/bold]", figure.claim, str(figure.paper)) for figure in figures]
    console.print(columns_table(("name", "claim", "paper"), rows))
