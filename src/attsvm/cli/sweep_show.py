"""``attsvm sweep show``: the result of a sweep as a page and a table."""

from pathlib import Path
from typing import Annotated

import typer

from attsvm._utils.checks import check_number
from attsvm.cli.options import ForceFolder, Json
from attsvm.cli.shared import finish, result_folder, write_page

HELP = """
STORE is the folder of a sweep, which may still be running, or interrupted. Shares have Wilson intervals; means have
bootstrap intervals. With `--out`, the page (`index.html`) has curves for one axis, and heat maps for two axes, one for
each value of further axes; point at a place to see its numbers. `table.csv` has a row for each estimate, and
`result.json` all estimates as arrays. Failed chunks and unfinished cells are listed.

Examples:

    attsvm sweep show out/feasible --out out/page

    attsvm sweep show out/feasible --json > result.json
"""


def sweep_show(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a sweep.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for page, table and numbers.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Confidence level of the intervals.")] = 0.95,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Show a sweep (the help is HELP)."""
    check_number("--level", level, "a number in (0, 1)", lambda x: 0 < x < 1)

    from attsvm.pages import summarize
    from attsvm.sweeps import open_sweep

    with result_folder(out, force, (store,)) as write:
        page = write_page(write, summarize(open_sweep(store), level))
    page.show(json)
    finish(out, "index.html, figures, table.csv and result.json")
