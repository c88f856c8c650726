"""The files that ``attsvm fit-text --out`` writes."""

from pathlib import Path
from typing import Any

from attsvm.apps.texts.result import TextFit
from attsvm.report.texts.figures import draw_text_figures
from attsvm.report.texts.page import text_page
from attsvm.report.write import write_page


def write_text_folder(folder: Path, fit: TextFit, result: dict[str, Any], command: str) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``.

    ``folder``: an existing folder, from :func:`attsvm.report.claim.claim_folder`. ``result``: of
    :func:`attsvm.report.texts.numbers.text_numbers`. ``command``: the command that was run.
    """
    drawn = draw_text_figures(fit)
    write_page(folder, text_page(fit, result, drawn, command), drawn, result)
