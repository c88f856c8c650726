"""The links below a drawing: its numbers as a CSV file, with their places for the scripts of the page, and its SVG."""

import csv
import json
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup, escape


class Panel(NamedTuple):
    """A pair of axes with numbers on both of them."""

    box: list[float]  # left, top, right and bottom in the units of the SVG view box
    x: tuple[str, float, float]  # x, y: "linear" or "log", and the limits of the axis
    y: tuple[str, float, float]


FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a text begins that a spreadsheet computes, or may compute."""


def csv_text(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV. Numbers are written so that they are read back exactly, and texts so that none is a formula.

    Examples
    --------
    >>> from attsvm.pages.links import csv_text
    >>> print(csv_text(["token", "share"], [["=1+1", -0.5], ["'s", 0.25]]))
    token,share
    '=1+1,-0.5
    ''s,0.25
    <BLANKLINE>
    """
    lines: list[str] = []
    stream: Any = SimpleNamespace(write=lines.append)
    # cells with a letter of the end of a line are quoted, and by default this end has both
    csv.writer(stream).writerows([_as_text(cell) for cell in row] for row in (header, *rows))
    text = "".join(line.removesuffix("\r\n") + "\n" for line in lines)
    return text.encode("utf-8", "backslashreplace").decode()  # there is no UTF-8 for halves of surrogate pairs


def _as_text(cell: Any) -> Any:
    """A cell; a text that would be a formula, or begins with an apostrophe, gets an apostrophe before it."""
    if not isinstance(cell, str) or not cell.startswith(("'", *FORMULAS)) or _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}"


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def file_links(
    name: str, table: str, places: list[dict[str, Any]] | None = None, panels: dict[int, Panel] | None = None
) -> Markup:
    """The links "data (CSV)" and "SVG" of the drawing before them on a page.

    ``name``: of the files, without suffix. ``table``: the CSV file. ``places``: for each series the labels of its axes,
    half the size of its cells, and where its points are in the drawing. ``panels``: axes that can be zoomed into, by
    their number.
    """
    href = "data:text/csv;charset=utf-8," + quote(table, safe=",.-+_")
    file = quote(name, safe="")
    at = "" if places is None else f' data-places="{_attribute(places)}"'
    if panels:
        at += f' data-panels="{_attribute({number: panel._asdict() for number, panel in panels.items()})}"'
    return Markup(
        f'<p class="data"><a class="csv" download="{file}.csv" href="{href}"{at}>data (CSV)</a>'
        f"{svg_link(name, ' · ')}</p>"
    )


def svg_link(name: str, before: str = "") -> str:
    """The link that the script of the page fills, from the drawing on the page."""
    return f'<span hidden>{before}<a class="svg" download="{quote(name, safe="")}.svg">SVG</a></span>'


def _attribute(value: Any) -> Markup:
    return escape(json.dumps(value, separators=(",", ":")))
