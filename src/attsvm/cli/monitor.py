"""``attsvm monitor``: what an ``AttentionMonitor`` recorded, as a page over the steps."""

from pathlib import Path
from typing import Annotated

import typer

from attsvm.cli.options import ForceFolder, Json, OutFolder
from attsvm.cli.shared import command_line, finish, result_folder
from attsvm.cli.tables import columns_table

HELP = """
RECORD is a file `*.csv`, a folder `*.zarr`, or a folder of TensorBoard that `attsvm.inspect.AttentionMonitor` wrote;
the training may still be running. With `--out`, the page has curves of every measure over the steps (largest logit,
largest probability, entropy, share to the first token, norms and effective rank of W, interval of the margin ratio),
maps of all heads, and a table of their last values, which is printed, too. The effective rank of W says how many of its
singular values count; the margin ratio is the margin of W over the best margin of its norm.

Examples:

    attsvm monitor heads.csv --out demo/heads

    attsvm monitor heads.zarr --json > result.json

    attsvm monitor runs/first --out demo/heads
"""

MOST_ROWS = 60
"""Most heads in the table of the terminal."""


def monitor(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="CSV file, zarr group or TensorBoard folder of a monitor.")
    ],
    out: OutFolder = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Show a record (the help is HELP)."""
    from attsvm.pages.monitor.records import read_records
    from attsvm.pages.monitor.words import described, head_rows, monitor_numbers, notes, recorded, summary, verdict
    from attsvm.pages.plain import dumps

    with result_folder(out, force, (record,)) as folder:
        records = read_records(record)
        result = monitor_numbers(records, source=str(record), command=command_line())
        if folder:
            from attsvm.pages.monitor.page import write_monitor

            write_monitor(folder, records, result)
    if json:
        print(dumps(result))
    else:
        from rich.console import Console

        console = Console()
        console.print(f"{summary(records)}. {verdict(records)}", highlight=False)
        for note in notes(records):
            console.print(note, style="bold yellow", highlight=False)
        measures = [described(name) for name in recorded(records)]
        titles = ["head", *(measure.short for measure in measures)]
        _, rows = head_rows(records)
        console.print(columns_table(titles, rows[:MOST_ROWS], right=titles[1:]))
        if len(rows) > MOST_ROWS:
            console.print(f"{len(rows) - MOST_ROWS:,} more heads: --out DIR writes all of them.", highlight=False)
        for measure in measures:
            if measure.meaning:
                console.print(f"{measure.short}: {measure.meaning}", style="dim", highlight=False)
    finish(out, "index.html, figures and result.json")
