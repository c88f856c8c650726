"""The folder that a fit on texts leaves."""

from pathlib import Path
from typing import Any

from attsvm.apps.texts.result import TextFit
from attsvm.report.plain import dumps
from attsvm.report.style import to_png
from attsvm.report.texts.figures import draw_text_figures
from attsvm.report.texts.page import text_page


def write_text_folder(folder: Path, fit: TextFit, result: dict[str, Any], command: str) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``.

    Parameters
    ----------
    folder : Path
        That exists, from :func:`attsvm.report.claim.claim_folder`.
    fit : TextFit
    result : dict
        Of :func:`attsvm.report.texts.numbers.text_numbers`.
    command : str
        As it stands in the captions.
    """
    drawn = draw_text_figures(fit)
    (folder / "figures").mkdir()
    for figure in drawn:
        (folder / "figures" / f"{figure.name}.png").write_bytes(to_png(figure.figure))
    (folder / "index.html").write_text(text_page(fit, result, drawn, command), encoding="utf-8")
    (folder / "result.json").write_text(dumps(result) + "\n", encoding="utf-8")
