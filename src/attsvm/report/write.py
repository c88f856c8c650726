"""The files of a page."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attsvm.report.drawn import Shown
from attsvm.report.plain import dumps
from attsvm.storage import atomic_write


def write_page(folder: Path, page: str, drawn: Iterable[Shown], result: dict[str, Any]) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``, each completely or not at all.

    Parameters
    ----------
    folder : Path
        An existing folder.
    page : str
        HTML.
    drawn : iterable of Shown
        The figures of the page.
    result : dict
        JSON-able.
    """
    # the result first: it is what cannot be made again
    files = {"result.json": (dumps(result) + "\n").encode()}
    files |= {f"figures/{one.name}.png": one.png for one in drawn if one.png is not None}
    files |= {"index.html": page.encode()}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with atomic_write(folder / name) as stream:
            stream.write(content)
