"""Whether a command can write its output, and replace what is there, before the work begins."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from attsvm._utils.files import ENDING, cannot_be_written, file_to_write, kind_of
from attsvm.errors import ProblemError


def check_file(
    out: str | os.PathLike[str] | None, force: bool, inputs: Iterable[object] = (), ending: str = ""
) -> None:
    """Check that a file can be written, and that it replaces another file only if ``force`` is set. None is no file.

    ``inputs``: what the command reads; ``out`` must not be one of them. None and names that are no paths are allowed.
    ``ending``: how the name of the file must end.

    Raises ProblemError if not.
    """
    if out is None:
        return
    if not os.fspath(out).endswith(ending):
        raise ProblemError(f"{out}: expected a name that ends with {ending}")
    target = file_to_write(out)
    if target.exists() and not force:
        raise ProblemError(f"{out}: exists already; use --force to replace it")
    check_not_read(out, inputs)
    if not target.parent.is_dir():
        raise ProblemError(f"{out}: cannot be written (no folder {target.parent})")
    if target.exists() and not os.access(target, os.W_OK):
        raise ProblemError(f"{out}: cannot be written (the file that it replaces is read-only)")
    check_holds_files(target.parent, out)


def check_not_read(out: str | os.PathLike[str], inputs: Iterable[object]) -> None:
    """Raise ProblemError if an output is one of the inputs, or a folder that contains one of them."""
    target = Path(os.path.realpath(out))
    for given in inputs:
        if isinstance(given, str | os.PathLike) and os.path.exists(given):
            read = Path(os.path.realpath(given))
            if target == read or target in read.parents:
                raise ProblemError(f"{out}: expected an output other than the input {given}")


def check_holds_files(folder: Path, out: str | os.PathLike[str]) -> None:
    """Raise ProblemError, in the name of ``out``, if no file can be created in a folder."""
    with cannot_be_written(out), tempfile.TemporaryFile(dir=folder):
        pass


def check_folder(out: str | os.PathLike[str]) -> None:
    """Raise ProblemError if ``out`` is no folder and cannot become one, or is one that is not writable."""
    check_folder_kind(out)
    target = Path(os.path.realpath(out))
    check_holds_files(next(folder for folder in (target, *target.parents) if kind_of(folder) is not None), out)


def check_folder_kind(out: str | os.PathLike[str]) -> None:
    """Raise ProblemError if there is something at ``out`` that is not a folder."""
    kind = kind_of(out)
    if kind not in (None, "a folder"):
        raise ProblemError(f"{out}: expected a folder or a free name, got {kind}")


def is_file(path: Path) -> bool:
    """Return whether there is a regular file at a path."""
    return kind_of(path) == "a file"


def only_figures(folder: Path) -> bool:
    """Return whether a path is a folder of PNG files only."""
    return folder.is_dir() and all(is_file(entry) and entry.suffix == ".png" for entry in folder.iterdir())


def stranger_in(folder: Path, contents: Mapping[str, Callable[[Path], bool]]) -> str:
    """The name of an entry that is not one of the contents, nor what a killed process left; "" if there is none."""
    for entry in sorted(folder.iterdir()):
        is_ours = not entry.is_symlink() and entry.name in contents and contents[entry.name](entry)
        if not (is_ours or entry.name.endswith(ENDING)):
            return entry.name
    return ""
