"""The folder of an experiment. It exists during the runs, so that killed runs can be resumed."""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attsvm._utils.files import cannot_be_written, make_folder, reading, regular_file
from attsvm._utils.outputs import check_folder, check_holds_files, check_not_read, is_file, only_figures, stranger_in
from attsvm.errors import ProblemError

RUNS = "runs"
CHECKPOINT = "checkpoint"
EARLIER = ("checkpoint.safetensors", "tensorboard")
"""What earlier versions left in the folder of a run."""


def claim_experiment(out: str | os.PathLike[str], resume: bool, force: bool, inputs: Iterable[object] = ()) -> Path:
    """Create the folder, or take the existing one.

    ``resume``: keep the runs of an existing ``out``. ``force``: remove them. ``inputs``: the paths that the command
    reads; ``out`` must not be one of them, or contain one.

    Raises ProblemError if ``out`` exists and neither is given, if it holds anything else, or if it is not writable.
    """
    check_experiment(out, resume, force, inputs)
    folder = Path(out)
    if force and folder.exists():
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    with cannot_be_written(out):
        make_folder(folder / RUNS)
    check_holds_files(folder / RUNS, out)
    return folder


def check_experiment(out: str | os.PathLike[str], resume: bool, force: bool, inputs: Iterable[object] = ()) -> None:
    """Raise ProblemError where :func:`claim_experiment` does. Nothing is changed."""
    folder = Path(out)
    if resume and force:
        raise ProblemError("--resume, --force: cannot be used together")
    check_folder(out)
    check_not_read(out, inputs)
    if not folder.is_dir():
        return
    found = any(folder.iterdir())
    stranger = stranger_in(folder, CONTENTS) or ("" if not found or (folder / RUNS).is_dir() else f"no {RUNS}")
    if stranger:
        raise ProblemError(f"{out}: holds no experiment, or more than one ({stranger}); name another folder")
    if found and not (resume or force):
        raise ProblemError(f"{out}: exists already; --resume continues it, --force replaces it")


def _only_runs(folder: Path) -> bool:
    """Whether a path is a folder of runs, each with a checkpoint or what an earlier version left."""
    known = dict.fromkeys((CHECKPOINT, *EARLIER), Path.exists)
    return folder.is_dir() and not any(
        run.is_symlink() or not run.is_dir() or stranger_in(run, known) for run in folder.iterdir()
    )


CONTENTS = {"index.html": is_file, "result.json": is_file, "figures": only_figures, RUNS: _only_runs}


def run_folder(folder: Path, name: str) -> Path:
    """The folder of the checkpoint of a run."""
    path = folder / RUNS / name
    make_folder(path)
    return path


def read_results(folders: Iterable[str | os.PathLike[str]], task: str) -> list[dict[str, Any]]:
    """The results of earlier experiments of a task.

    ``folders``: each with the ``result.json`` of an experiment.

    Raises ProblemError if a folder has no result of this task.
    """
    found = []
    for folder in folders:
        path = Path(folder) / "result.json"
        with reading(path, "not the result of an experiment"):
            result = json.loads(regular_file(path).read_text(encoding="utf-8"))
            if result["kind"] != "experiment" or result["task"] != task:
                raise ProblemError(f"{path}: expected an experiment of {task}, got one of {result.get('task')}")
            found.append(result)
    return found
