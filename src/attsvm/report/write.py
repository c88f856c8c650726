"""The files of a page."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attsvm.report.drawn import Drawn
from attsvm.report.plain import dumps
from attsvm.report.style import to_png
from attsvm.storage import atomic_write


def write_page(folder: Path, page: str, drawn: Iterable[Drawn], result: dict[str, Any]) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``, each completely or not at all.

    Parameters
    ----------
    folder : Path
        An existing folder.
    page : str
        HTML.
    drawn : iterable of Drawn
        The figures of the page.
    result : dict
        JSON-able.
    """
    (folder / "figures").mkdir(exist_ok=True)
    files = {f"figures/{one.name}.png": to_png(one.figure) for one in drawn}
    files |= {"index.html": page.encode(), "result.json": (dumps(result) + "\n").encode()}
    for name, content in files.items():
        with atomic_write(folder / name) as stream:
            stream.write(content)
