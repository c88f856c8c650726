"""The folder that a fit leaves: all of it or nothing."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attsvm.apps.fit.result import Fit
from attsvm.datasets import Source
from attsvm.errors import ProblemError
from attsvm.report.plain import dumps
from attsvm.storage import unfinished

CONTENTS = {"index.html", "result.json", "run.npz", "figures"}


@contextlib.contextmanager
def claim_folder(out: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Give a hidden folder to write into, which becomes ``out`` once the block has ended without an error.

    Claim it before the work begins: what cannot be written shows itself at once.

    Parameters
    ----------
    out : path
        Parents are made where they are missing.
    force : bool
        Replace an ``out`` that exists, if it is empty or holds a result and nothing else.

    Raises
    ------
    ProblemError
        If ``out`` exists and may not be replaced, or if nothing can be written there.
    """
    target = Path(out).resolve()
    _check_replaceable(target, out, force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error
    with unfinished(hidden):
        # mkdtemp makes the folder private; a result has the permissions that any new folder would get
        mask = os.umask(0)
        os.umask(mask)
        hidden.chmod(0o777 & ~mask)
        yield hidden
        _check_replaceable(target, out, force)
        _replace(target, hidden)


def write_folder(folder: Path, fit: Fit, result: dict[str, Any], command: str, source: Source | None = None) -> None:
    """Write ``index.html``, ``figures/*.png``, ``result.json`` and ``run.npz``.

    Parameters
    ----------
    folder : Path
        That exists, from :func:`claim_folder`.
    fit : Fit
    result : dict
        Of :func:`attsvm.report.fit.numbers`.
    command : str
        As it stands in the captions.
    source : Source, optional
        Where the data came from: it names the page, and its pictures are shown.
    """
    # matplotlib is loaded here, by those who want figures
    from attsvm.report.fit.figures import draw_all
    from attsvm.report.fit.page import page
    from attsvm.report.style import to_png

    drawn = draw_all(fit, source)
    (folder / "figures").mkdir()
    for figure in drawn:
        (folder / "figures" / f"{figure.name}.png").write_bytes(to_png(figure.figure))
    (folder / "index.html").write_text(page(fit, result, drawn, command, source), encoding="utf-8")
    (folder / "result.json").write_text(dumps(result) + "\n", encoding="utf-8")
    fit.run.save(folder / "run.npz")


def _check_replaceable(target: Path, named: str | os.PathLike[str], force: bool) -> None:
    if not (target.exists() or target.is_symlink()):
        return
    if not force:
        raise ProblemError(f"{named}: exists already; --force replaces it")
    if not target.is_dir():
        raise ProblemError(f"{named}: is not a folder, and is not replaced by one")
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
    # a folder cannot be renamed over one that is not empty: the old one steps aside, and comes back if that fails
    old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")) / target.name
    target.rename(old)
    try:
        hidden.rename(target)
    except OSError:
        old.rename(target)
        raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)
