"""The folder of a result: whether it can be written, and how it is, completely or not at all."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from attsvm._utils.files import (
    atomic_write,
    cannot_be_written,
    finish,
    make_folder,
    moved_aside,
    remove_empty,
    unfinished,
)
from attsvm._utils.outputs import check_folder_kind, check_not_read, is_file, only_figures, stranger_in
from attsvm.errors import ProblemError


def is_result(path: Path) -> bool:
    """Return whether a path is the ``result.json`` of a command."""
    try:
        found = json.loads(path.read_text()) if is_file(path) else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("schema", "")).startswith("attsvm.")


CONTENTS: dict[str, Callable[[Path], bool]] = {
    **dict.fromkeys(("index.html", "model.npz", "run.npz", "profile.npz", "table.csv"), is_file),
    "result.json": is_result,
    "figures": only_figures,
}
"""The entries of a folder that ``--force`` replaces, with a check of each."""


Write = Callable[[Callable[[Path], object]], None]
"""Calls what writes the files of a result into a folder, and puts that folder in its place."""


@contextlib.contextmanager
def claim_folder(out: str | os.PathLike[str], force: bool = False, inputs: Iterable[object] = ()) -> Iterator[Write]:
    """Yield a function that makes ``out`` a folder of what its argument writes; it may be called again and again.

    Enter the block before the work begins: it fails early if the folder is not writable. Missing parents are created,
    and removed again after an error. ``force``: replace an existing ``out``, if it is empty or holds a result and
    nothing else. ``inputs``: the paths that the command reads; ``out`` must not be one of them, or contain one.

    Each call replaces the folder as a whole. After an error in the block, ``out`` is as it was before. If the command
    is interrupted (SystemExit), the files of the last call stay.

    Raises ProblemError if ``out`` exists and may not be replaced, or is not writable, and OSError, with the name that
    the file would have in ``out``, if a file of the folder cannot be written.
    """
    is_first = True
    with _target(out, force, inputs) as target, contextlib.ExitStack() as earlier:
        with _hidden_folder(target, out):
            pass  # fails early

        def write(files: Callable[[Path], object]) -> None:
            nonlocal is_first
            with _hidden_folder(target, out) as hidden:
                files(hidden)
                check_replaceable(out, force or not is_first)
                if is_first and target.is_dir():
                    earlier.enter_context(moved_aside(target))  # until the block ends
                with cannot_be_written(out):
                    finish(hidden, target)
            is_first = False

        try:
            yield write
        except Exception:
            if not is_first:
                with contextlib.suppress(ProblemError):
                    check_replaceable(out, True)
                    shutil.rmtree(target, ignore_errors=True)  # the earlier result is moved back
            raise


def check_replaceable(out: str | os.PathLike[str], force: bool) -> None:
    """Raise ProblemError if there is something at ``out`` that may not be replaced by a result."""
    check_folder_kind(out)
    target = Path(out)
    if not target.is_dir():
        return
    if not force:
        raise ProblemError(f"{out}: exists already; use --force to replace it")
    stranger = stranger_in(target, CONTENTS)
    found = {entry.name for entry in target.iterdir()}
    # a command that was stopped before its page leaves the run alone
    if not stranger and found and found != {"run.npz"} and "result.json" not in found:
        stranger = "no result.json"
    if stranger:
        raise ProblemError(
            f"{out}: holds more than a result ({stranger}), so it is not replaced; choose another folder"
        )
    if not os.access(target, os.W_OK | os.X_OK):
        raise ProblemError(f"{out}: cannot be written (the folder that it replaces is read-only)")


@contextlib.contextmanager
def _target(out: str | os.PathLike[str], force: bool, inputs: Iterable[object]) -> Iterator[Path]:
    """Check ``out`` and create its missing parents, which are removed again after an error; yield its real path."""
    check_replaceable(out, force)
    check_not_read(out, inputs)
    target = Path(os.path.realpath(out))
    made: list[Path] = []
    try:
        with cannot_be_written(out):
            made = make_folder(target.parent)
        yield target
    except BaseException:
        remove_empty(made)
        raise


@contextlib.contextmanager
def _hidden_folder(target: Path, out: str | os.PathLike[str]) -> Iterator[Path]:
    """Make an empty hidden folder beside the target. An error names the file as it would be called in ``out``."""
    with unfinished(target) as hidden:
        with cannot_be_written(out):
            hidden.mkdir()
        try:
            yield hidden
        except OSError as error:
            place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
            if error.errno is None or place is None or not place.is_relative_to(hidden):
                raise
            raise OSError(error.errno, os.strerror(error.errno), str(Path(out) / place.relative_to(hidden))) from error


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names into a folder, each completely or not at all."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as stream:
            stream.write(content)
