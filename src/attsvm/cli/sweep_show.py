"""``attsvm sweep show``: the result of a sweep as a page and a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attsvm._utils.checks import check_number
from attsvm.cli.options import ForceFolder, Json
from attsvm.cli.shared import command_line, finish, result_folder
from attsvm.cli.tables import columns_table

if TYPE_CHECKING:
    from attsvm.pages.sweep.estimates import Summary

HELP = """
STORE is the folder of a sweep, which may be running or interrupted. Shares have Wilson intervals, means have bootstrap
intervals. With `--out`, the page (`index.html`) has heat maps for two axes, one for each value of further axes, and
curves for one axis; the numbers appear at the pointer. `table.csv` has a row for each estimate, `result.json` all of
them as arrays. Failed chunks and unfinished cells are named.

Examples:

    attsvm sweep show out/feasible --out out/page

    attsvm sweep show out/feasible --json > result.json
"""

MOST_ROWS = 60
"""Most rows of the table in the terminal."""

WIDE = 160
"""Columns of a file or a pipe, in which names need not be folded."""


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

    from attsvm.pages.plain import dumps
    from attsvm.pages.sweep.estimates import summarize
    from attsvm.pages.sweep.numbers import sweep_numbers
    from attsvm.sweeps import open_sweep

    with result_folder(out, force, (store,)) as folder:
        summary = summarize(open_sweep(store), level)
        result = sweep_numbers(summary, command_line(), level)
        if folder:
            from attsvm.pages.sweep.page import write_sweep

            write_sweep(folder, summary, result)
    if json:
        print(dumps(result))
    else:
        _show(summary)
    finish(out, "index.html, table.csv and result.json")


def _show(summary: "Summary") -> None:
    from rich.console import Console

    from attsvm.pages.sweep.numbers import COLUMNS, table_rows
    from attsvm.pages.sweep.words import cell_value, notes, verdict

    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(verdict(summary), highlight=False)
    for note in notes(summary):
        console.print(note, style="bold yellow", highlight=False)
    rows = [[cell_value(x) for x in row] for row in table_rows(summary)]
    titles = [*(axis.name for axis in summary.axes), *COLUMNS]
    console.print(columns_table(titles, rows[:MOST_ROWS], right=COLUMNS[2:]))
    if len(rows) > MOST_ROWS:
        console.print(f"{len(rows) - MOST_ROWS:,} more rows: --out DIR writes all of them.", highlight=False)
