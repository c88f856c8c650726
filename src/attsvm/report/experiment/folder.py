"""The folder of an experiment: it exists while the runs do, so that what was killed can go on."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.report.experiment.page import drawn_page
from attsvm.report.plain import dumps
from attsvm.report.style import to_png
from attsvm.storage import atomic_write

RUNS = "runs"
CONTENTS = {"index.html", "result.json", "figures", RUNS}


def claim_experiment(out: str | os.PathLike[str], resume: bool, force: bool) -> Path:
    """Make the folder, or find it.

    Parameters
    ----------
    out : path
        Parents are made where they are missing.
    resume : bool
        Keep the runs of an ``out`` that exists.
    force : bool
        Remove them.

    Raises
    ------
    ProblemError
        If ``out`` exists and neither was said, if it holds anything else, or if nothing can be written there.
    """
    folder = Path(out)
    if resume and force:
        raise ProblemError("--resume: keeps what --force removes; one of the two wanted")
    if folder.exists():
        if not folder.is_dir():
            raise ProblemError(f"{out}: is not a folder")
        found = {entry.name for entry in folder.iterdir()}
        if found - CONTENTS or (found and RUNS not in found):
            stranger = min(found - CONTENTS, default=f"no {RUNS}")
            raise ProblemError(f"{out}: holds no experiment, or more than one ({stranger}); name another folder")
        if found and not (resume or force):
            raise ProblemError(f"{out}: exists already; --resume goes on with it, --force replaces it")
        if force:
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error
    return folder


def run_folder(folder: Path, name: str) -> Path:
    """Where the checkpoint of a run lies."""
    path = folder / RUNS / name
    path.mkdir(exist_ok=True)
    return path


def write_experiment(folder: Path, result: dict[str, Any], pictures: np.ndarray | None = None) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``, each whole or not at all.

    Parameters
    ----------
    folder : Path
        Of :func:`claim_experiment`.
    result : dict
    pictures : uint8 ndarray, shape (n, height, width, 3), optional
        The first test pictures.
    """
    page, drawn = drawn_page(result, pictures)
    (folder / "figures").mkdir(exist_ok=True)
    files = {f"figures/{one.name}.png": to_png(one.figure) for one in drawn}
    files |= {"index.html": page.encode(), "result.json": (dumps(result) + "\n").encode()}
    for name, content in files.items():
        with atomic_write(folder / name) as stream:
            stream.write(content)
