"""``attsvm reproduce``: figures and tables of the papers, measured again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attsvm._utils.interruption import on_interruption
from attsvm._utils.progress import duration
from attsvm._utils.text import visible
from attsvm.cli import completion
from attsvm.cli.options import Device, Json, Threads, named_values
from attsvm.cli.shared import command_line, finish, progress
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from rich.console import Console

    from attsvm.pages import Claim
    from attsvm.papers import Figure, Outcome

HELP = """
NAME is one or more names from `attsvm reproduce --list`, or `all`, or `package.module:NAME` for a figure of your own.
Figures (PNG and SVG), numbers (JSON) and one page for all of them (`index.html`) are written to the folder given by
`--out`. Finished pieces of the measurements are kept there, so an interrupted run can continue. A piece is reused only
if its parameters, its source code and the versions of the libraries are the same.

Examples:

    attsvm reproduce --list

    attsvm reproduce rank feasibility --out out/papers

    attsvm reproduce all --quick

    attsvm reproduce kinds --size runs=2000 --size dims=2,4,8 --size 'shapes=[[5, 5]]' --out out/kinds
"""


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", autocompletion=completion.FIGURES, help="Figures or tables, or `all`."),
    ] = None,
    list_all: Annotated[
        bool, typer.Option("--list", help="List the figures, and the time that each takes on two cores.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Use small sizes: all figures in a few minutes, but too small to judge the claims."
        ),
    ] = False,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="NAME=VALUE",
            help="Change a size of the figures: a number, values separated by commas, or JSON. Repeatable. The JSON "
            "file of a figure lists its sizes.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for results and finished pieces.")] = Path(
        "out/reproduce"
    ),
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Measure figures and tables of the papers again (the help is HELP)."""
    from rich.console import Console

    from attsvm._utils.files import atomic_write
    from attsvm._utils.jax_devices import find_device
    from attsvm.pages import make_page
    from attsvm.papers import chosen, prepare, run_several, sizes_of

    console = Console()
    if list_all:
        known = list(chosen(["all"]).values())
        if json:
            make_page(known, command=command_line()).show(as_json=True)
        else:
            _list(console, known)
        return
    if not names:
        raise ProblemError("NAME: expected names from `attsvm reproduce --list`, or `all`")
    figures, command = chosen(names), command_line()
    sizes = named_values(size or [], "--size")
    for figure in figures.values():
        sizes_of(figure, quick, sizes)
    find_device(device)
    prepare(out, figures.values())
    on_interruption(lambda: f"finished pieces are kept in {out}; run the command again to continue")
    claims: list[Claim] = []
    with progress("figures") as callback:
        for claimed in run_several(figures, out, command, quick=quick, sizes=sizes, device=device, callback=callback):
            claims.append(claimed)
            if not json:
                _show(console, claimed.outcome)
    page = make_page(claims, command=command)
    with atomic_write(out / "index.html") as stream:
        stream.write(page.html().encode())
    if json:
        page.show(as_json=True)
    finish(out, "index.html, figures and numbers")


_COLOURS = {"holds": "green", "holds in part": "yellow", "does not hold": "red"}


def _show(console: "Console", outcome: "Outcome") -> None:
    from rich.text import Text

    name, colour = outcome.figure.name, _COLOURS[outcome.verdict.standing.value]
    said = Text.assemble((name, "bold"), "  ", (outcome.standing, colour), f"  ({outcome.seconds:.1f} s)\n  ")
    console.print(said.append(visible(outcome.verdict.why)))


def _list(console: "Console", figures: "list[Figure]") -> None:
    """A line for each figure; what does not fit into a terminal is cut."""
    from rich.text import Text

    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        time = "" if figure.seconds is None else duration(figure.seconds)
        line = Text(visible(f"{figure.name:{width}}  {time:>7}  {figure.title}"))
        if console.is_terminal:
            console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            print(line)
