"""The folder of an experiment. It exists during the runs, so that killed runs can be resumed."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from attsvm._utils.files import ENDING, kind_of, make_folder
from attsvm.errors import ProblemError
from attsvm.pages.folder import check_folder, check_holds_files, check_not_read, only_figures

RUNS = "runs"
CHECKPOINT, BOARD = "checkpoint.safetensors", "tensorboard"
CONTENTS = {"index.html": "a file", "result.json": "a file", "figures": "a folder", RUNS: "a folder"}


def claim_experiment(out: str | os.PathLike[str], resume: bool, force: bool, inputs: Iterable[object] = ()) -> Path:
    """Create the folder, or take the existing one.

    Parameters
    ----------
    out : path
        Missing parents are created.
    resume : bool
        Keep the runs of an existing ``out``.
    force : bool
        Remove them.
    inputs : iterable of paths
        What the command reads: ``out`` must not be one of them, or contain one.

    Raises
    ------
    ProblemError
        If ``out`` exists and neither is given, if it holds anything else, or if it is not writable.
    """
    check_experiment(out, resume, force, inputs)
    folder = Path(out)
    if force and folder.exists():
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    try:
        make_folder(folder / RUNS)
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error
    check_holds_files(folder / RUNS, out)
    return folder


def check_experiment(out: str | os.PathLike[str], resume: bool, force: bool, inputs: Iterable[object] = ()) -> None:
    """Raise ProblemError where :func:`claim_experiment` does. Nothing is changed."""
    folder = Path(out)
    if resume and force:
        raise ProblemError("--resume, --force: expected one of them, got both")
    check_folder(out)
    check_not_read(out, inputs)
    if not folder.is_dir():
        return
    strangers = [entry for entry in sorted(folder.iterdir()) if not _of_an_experiment(entry)]
    found = any(folder.iterdir())
    if strangers or (found and not (folder / RUNS).is_dir()):
        stranger = strangers[0].name if strangers else f"no {RUNS}"
        raise ProblemError(f"{out}: holds no experiment, or more than one ({stranger}); name another folder")
    if found and not (resume or force):
        raise ProblemError(f"{out}: exists already; --resume continues it, --force replaces it")


def _of_an_experiment(entry: Path) -> bool:
    """Whether an entry of a folder is one that an experiment writes."""
    if entry.name.endswith(ENDING):  # of a process that was killed
        return True
    if entry.is_symlink() or entry.name not in CONTENTS or kind_of(entry) != CONTENTS[entry.name]:
        return False
    if entry.name == RUNS:
        return all(kind_of(run) == "a folder" and not run.is_symlink() and _only_a_run(run) for run in entry.iterdir())
    return entry.name != "figures" or only_figures(entry)


def _only_a_run(run: Path) -> bool:
    return all(entry.name in (CHECKPOINT, BOARD) or entry.name.endswith(ENDING) for entry in run.iterdir())


def run_folder(folder: Path, name: str) -> Path:
    """The folder of the checkpoint of a run."""
    path = folder / RUNS / name
    make_folder(path)
    return path
