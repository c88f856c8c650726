"""The folder of an experiment. It exists during the runs, so that killed runs can be resumed."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.report.experiment.page import drawn_page
from attsvm.report.write import write_page

RUNS = "runs"
CONTENTS = {"index.html", "result.json", "figures", RUNS}


def claim_experiment(out: str | os.PathLike[str], resume: bool, force: bool) -> Path:
    """Create the folder, or take the existing one.

    Parameters
    ----------
    out : path
        Missing parents are created.
    resume : bool
        Keep the runs of an existing ``out``.
    force : bool
        Remove them.

    Raises
    ------
    ProblemError
        If ``out`` exists and neither is given, if it holds anything else, or if it is not writable.
    """
    folder = Path(out)
    if resume and force:
        raise ProblemError("--resume, --force: expected one of them, got both")
    if folder.exists():
        if not folder.is_dir():
            raise ProblemError(f"{out}: expected a folder, got a file")
        found = {entry.name for entry in folder.iterdir()}
        if found - CONTENTS or (found and RUNS not in found):
            stranger = min(found - CONTENTS, default=f"no {RUNS}")
            raise ProblemError(f"{out}: holds no experiment, or more than one ({stranger}); name another folder")
        if found and not (resume or force):
            raise ProblemError(f"{out}: exists already; --resume continues it, --force replaces it")
        if force:
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error
    return folder


def run_folder(folder: Path, name: str) -> Path:
    """The folder of the checkpoint of a run."""
    path = folder / RUNS / name
    path.mkdir(exist_ok=True)
    return path


def write_experiment(folder: Path, result: dict[str, Any], pictures: np.ndarray | None = None) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``, each completely or not at all.

    Parameters
    ----------
    folder : Path
        Of :func:`claim_experiment`.
    result : dict
    pictures : uint8 ndarray, shape (n, height, width, 3), optional
        The first test pictures.
    """
    page, drawn = drawn_page(result, pictures)
    write_page(folder, page, drawn, result)
