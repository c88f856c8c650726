"""Result files of commands: refused before the work begins, not after."""

from pathlib import Path

from attsvm.errors import ProblemError


def check_writable(out: Path, force: bool) -> None:
    """That a file can be written, and does not replace another unless asked to.

    Raises
    ------
    ProblemError
        If not.
    """
    if out.exists() and not force:
        raise ProblemError(f"{out}: exists already; --force replaces it")
    if out.is_dir():
        raise ProblemError(f"{out}: is a folder; a file wanted")
    if not out.parent.is_dir():
        raise ProblemError(f"{out}: cannot be written (there is no folder {out.parent})")
