"""The files of a page."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm._utils.files import atomic_write
from attsvm.pages.plain import dumps

if TYPE_CHECKING:
    from attsvm.pages.drawn import Shown


def page_files(page: str, drawn: "Iterable[Shown]", result: dict[str, Any]) -> dict[str, bytes]:
    """The files ``result.json``, ``figures/*.png`` and ``index.html`` of a page, by their names.

    Parameters
    ----------
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
    return {**files, "index.html": page.encode()}


def write_page(folder: Path, page: str, drawn: "Iterable[Shown]", result: dict[str, Any]) -> None:
    """Write the files of a page into an existing folder, each completely or not at all.

    Parameters
    ----------
    folder : Path
    page, drawn, result
        Of :func:`page_files`.
    """
    write_files(folder, page_files(page, drawn, result))


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names into a folder, each completely or not at all."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as stream:
            stream.write(content)
