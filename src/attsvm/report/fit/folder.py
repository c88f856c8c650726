"""The files that ``attsvm fit --out`` writes."""

from pathlib import Path
from typing import Any

from attsvm.apps.fit.result import Fit
from attsvm.datasets import Source
from attsvm.report.fit.figures import draw_all
from attsvm.report.fit.page import page
from attsvm.report.write import write_page


def write_folder(folder: Path, fit: Fit, result: dict[str, Any], command: str, source: Source | None = None) -> None:
    """Write ``index.html``, ``figures/*.png``, ``result.json`` and ``run.npz``.

    An interrupted fit gets no figures: drawing them takes longer than a user waits after Ctrl-C.

    ``folder``: an existing folder, from :func:`attsvm.report.claim.claim_folder`. ``result``: of
    :func:`attsvm.report.fit.numbers`. ``command``: the command that was run. ``source``: where the data came from: it
    names the page, and its pictures are shown.
    """
    drawn = [] if result["interrupted"] else draw_all(fit, source)
    write_page(folder, page(fit, result, drawn, command, source), drawn, result)
    fit.run.save(folder / "run.npz")
