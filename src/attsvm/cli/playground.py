"""``attsvm playground``: open the interactive page."""

from pathlib import Path
from typing import Annotated

import typer

from attsvm._utils.outputs import check_file
from attsvm.cli.shared import finish

HELP = """
The page trains attention in the plane and draws the path of its weights beside the Att-SVM. It is one HTML file, which
needs neither a server nor a network. Without `--out`, the page installed with attsvm opens in the browser.

Examples:

    attsvm playground

    attsvm playground --out playground.html
"""


def playground(
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the page to FILE instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Open the page, or write it."""
    check_file(out, force)

    if out is not None:
        from attsvm._utils.files import atomic_write
        from attsvm.playground import page

        with atomic_write(out) as stream:
            stream.write(page().encode())
        finish(out, "the playground")
        return
    import webbrowser
    from importlib.resources import as_file, files

    with as_file(files("attsvm.playground").joinpath("page", "index.html")) as path:
        address = path.as_uri()
        if not webbrowser.open(address):
            print(f"no browser was found; open {address}")
