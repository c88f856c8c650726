"""``attsvm monitor``: what an ``AttentionMonitor`` recorded, as a page over the steps."""

from pathlib import Path
from typing import Annotated

import typer

from attsvm.cli.options import ForceFolder, Json, OutFolder
from attsvm.cli.shared import finish, result_folder, write_page

HELP = """
RECORD is a file `*.csv` written by `attsvm.inspect.AttentionMonitor`, or a TensorBoard folder with its numbers. The
training may still be running. The last values of every attention head are printed as a table. With `--out`, the page
also has maps of all attention heads, and curves of every measure over the steps: largest logit, largest probability,
entropy, attention to the first token, norms and effective rank of W, and the interval of the margin ratio. The
effective rank of W is the number of its singular values that matter; the margin ratio is the margin of W, divided by
the best margin for its norm. Provisional: the command may change in any minor version.

Examples:

    attsvm monitor heads.csv --out demo/heads

    attsvm monitor heads.csv --json > result.json

    attsvm monitor runs/first --out demo/heads
"""


def monitor(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="CSV file or TensorBoard folder of a monitor.")],
    out: OutFolder = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Show a record (the help is HELP)."""
    from attsvm.pages import read_records

    with result_folder(out, force, (record,)) as write:
        page = write_page(write, read_records(record), source=str(record))
    page.show(json)
    finish(out, "index.html, figures and result.json")
