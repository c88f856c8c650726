"""Checks of output files before the work begins."""

from pathlib import Path

from attsvm.errors import ProblemError


def check_writable(out: Path | None, force: bool) -> None:
    """Check that a file can be written, and that it replaces another file only if ``force`` is set. None is no file.

    Raises
    ------
    ProblemError
        If not.
    """
    if out is None:
        return
    if out.exists() and not force:
        raise ProblemError(f"{out}: exists already; use --force to replace it")
    if out.is_dir():
        raise ProblemError(f"{out}: expected a file, got a folder")
    if not out.parent.is_dir():
        raise ProblemError(f"{out}: cannot be written (there is no folder {out.parent})")
