"""The files that ``attsvm fit --out`` writes."""

from pathlib import Path
from typing import Any

from attsvm.apps.fit.result import Fit
from attsvm.datasets import Source
from attsvm.report.fit.figures import draw_all
from attsvm.report.fit.page import page
from attsvm.report.plain import dumps
from attsvm.report.style import to_png


def write_folder(folder: Path, fit: Fit, result: dict[str, Any], command: str, source: Source | None = None) -> None:
    """Write ``index.html``, ``figures/*.png``, ``result.json`` and ``run.npz``.

    Parameters
    ----------
    folder : Path
        That exists, from :func:`attsvm.report.claim.claim_folder`.
    fit : Fit
    result : dict
        Of :func:`attsvm.report.fit.numbers`.
    command : str
        As it stands in the captions.
    source : Source, optional
        Where the data came from: it names the page, and its pictures are shown.
    """
    drawn = draw_all(fit, source)
    (folder / "figures").mkdir()
    for figure in drawn:
        (folder / "figures" / f"{figure.name}.png").write_bytes(to_png(figure.figure))
    (folder / "index.html").write_text(page(fit, result, drawn, command, source), encoding="utf-8")
    (folder / "result.json").write_text(dumps(result) + "\n", encoding="utf-8")
    fit.run.save(folder / "run.npz")
