"""The folder of a result: it is written completely or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attsvm.errors import ProblemError
from attsvm.storage import unfinished

CONTENTS = {"index.html", "result.json", "run.npz", "figures"}
"""What a folder may hold that ``--force`` replaces."""


@contextlib.contextmanager
def claim_folder(out: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Yield a hidden folder to write into. It becomes ``out`` when the block ends without an error.

    Enter the block before the work begins: it fails early if the folder is not writable.

    Parameters
    ----------
    out : path
        Missing parents are created.
    force : bool
        Replace an existing ``out``, if it is empty or holds a result and nothing else.

    Raises
    ------
    ProblemError
        If ``out`` exists and may not be replaced, or is not writable.
    """
    target = Path(out).resolve()
    _check_replaceable(target, out, force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error
    with unfinished(hidden):
        # mkdtemp makes the folder private; a result gets the permissions of any new folder
        mask = os.umask(0)
        os.umask(mask)
        hidden.chmod(0o777 & ~mask)
        yield hidden
        _check_replaceable(target, out, force)
        _replace(target, hidden)


def _check_replaceable(target: Path, named: str | os.PathLike[str], force: bool) -> None:
    if not (target.exists() or target.is_symlink()):
        return
    if not force:
        raise ProblemError(f"{named}: exists already; use --force to replace it")
    if not target.is_dir():
        raise ProblemError(f"{named}: expected a folder, got a file")
    found = {entry.name for entry in target.iterdir()}
    if found and (found - CONTENTS or "result.json" not in found):
        stranger = min(found - CONTENTS, default="no result.json")
        raise ProblemError(
            f"{named}: holds more than a result ({stranger}), so it is not replaced; name another folder"
        )


def _replace(target: Path, hidden: Path) -> None:
    if not target.exists():
        hidden.rename(target)
        return
    # a folder cannot be renamed to one that is not empty: the old one is moved first, and moved back if that fails
    old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")) / target.name
    target.rename(old)
    try:
        hidden.rename(target)
    except OSError:
        old.rename(target)
        raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)
