"""``attsvm cache``: where the compiled programs are, how large they are, and how to remove them."""

from enum import StrEnum
from typing import Annotated

import typer

from attsvm.cli.options import Json
from attsvm.cli.shared import command_line

SCHEMA = "attsvm.cache/1"

HELP = """
Training compiles a program for each shape and optimizer. The programs are kept, so that later processes start faster.
`show` prints where they are, `clear` removes them.

Settings are environment variables: `ATTSVM_CACHE=off` keeps and reads no programs, `ATTSVM_CACHE_DIR` names the folder,
`ATTSVM_CACHE_MB` is its largest size.

Examples:

    attsvm cache show

    attsvm cache clear
"""


class Action(StrEnum):
    """What to do with the programs."""

    SHOW = "show"
    CLEAR = "clear"


def cache(
    action: Annotated[Action, typer.Argument(help="Print where the programs are, or remove them.")] = Action.SHOW,
    json: Json = False,
) -> None:
    """Show or clear the compiled programs."""
    from attsvm.cache import clear, contents

    removed = clear() if action is Action.CLEAR else 0
    found = contents()
    if json:
        from attsvm.report.plain import command_result, dumps

        numbers = {**vars(found), "folder": str(found.folder), "num_removed": removed}
        print(dumps(command_result(SCHEMA, command_line(), numbers)))
        return
    if action is Action.CLEAR:
        print(f"removed {removed} programs from {found.folder}")
        return
    print(f"folder: {found.folder}")
    print(f"programs: {found.num_programs}, {found.megabytes:.1f} MB of at most {found.max_megabytes:g} MB")
    print("in use" if found.enabled else "off (ATTSVM_CACHE=off)")
