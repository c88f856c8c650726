"""The numbers of a figure as CSV, and where they are in its drawing, for the hover and the zoom of a page."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from attsvm.pages.links import Panel, csv_text, file_links, svg_link
from attsvm.plot import DataAxes, DataSeries


def data_links(figure: Figure, name: str, table: str | None = None) -> Markup:
    """The links of a figure that has been drawn, from the series that its axes keep.

    The script of the page reads the places of the points, in the order of the lines of the CSV file, and shows the
    numbers of the nearest one.

    ``table``: a CSV file with more numbers than are drawn; then only series with texts of their own are pointed at.
    """
    rows: list[list[Any]] = []
    places = []
    panels = [axis for axis in figure.axes if isinstance(axis, DataAxes)]
    for index, axis in enumerate(panels, start=1):
        title = next(filter(None, (axis.get_title(place) for place in ("left", "center", "right"))), "")
        panel = " ".join(filter(None, (str(index) if len(panels) > 1 else "", plain(title))))
        for series, one in _named(axis):
            if table is not None and one.texts is None:
                continue
            at, size = _placed(axis, one)
            own = one.points if one.table is None else one.table
            # a cell without a value may have a text that says so
            drawn = np.isfinite(np.column_stack([one.points, at, own if one.texts is None else at])).all(axis=1)
            if not drawn.any():
                continue
            words = [_words(of) if key in one.categories else {} for key, of in (("x", axis.xaxis), ("y", axis.yaxis))]
            for x, y, *value in own[drawn].tolist():
                rows.append([panel, series, words[0].get(x, x), words[1].get(y, y), *(value or [""])])
            texts = {} if one.texts is None else {"texts": [*compress(one.texts, drawn)]}
            places.append(
                {
                    "labels": (plain(axis.get_xlabel()) or "x", plain(axis.get_ylabel()) or "y"),
                    "cell": size,
                    "axes": figure.axes.index(axis) + 1,
                    "at": at[drawn].round(1).ravel().tolist(),
                    **texts,
                }
            )
    if table is None and not rows:
        return Markup(f'<p class="data">{svg_link(name)}</p>')
    table = csv_text(["panel", "series", "x", "y", "value"], rows) if table is None else table
    return file_links(name, table, places, zoomable(figure))


def zoomable(figure: Figure) -> dict[int, Panel]:
    """The axes of a drawn figure that can be zoomed into, by their number from 1: curves over two axes of numbers."""
    found = {}
    for number, axis in enumerate(figure.axes, start=1):
        scales = axis.get_xscale(), axis.get_yscale()
        worded = _has_names(axis.xaxis) or _has_names(axis.yaxis) or not axis.axison
        if not axis.lines or axis.images or worded or not {"linear", "log"}.issuperset(scales):
            continue
        (left, bottom), (right, top) = axis.bbox.get_points() * 72 / figure.dpi
        high = 72 * figure.get_figheight()
        box = [round(float(at), 2) for at in (left, high - top, right, high - bottom)]
        (x0, x1), (y0, y1) = axis.get_xlim(), axis.get_ylim()
        found[number] = Panel(box, (scales[0], float(x0), float(x1)), (scales[1], float(y0), float(y1)))
    return found


def plain(text: str) -> str:
    r"""A label without the markup of mathtext, on one line.

    Examples
    --------
    >>> from attsvm.pages.figure_places import plain
    >>> plain(r"ℓ$_{1.5}$ Att-SVM"), plain(r"$\lambda\|W\|_F^2$"), plain("not yet\nfinal"), plain(r"10$^{-3}$")
    ('ℓ1.5 Att-SVM', 'λ‖W‖_F^2', 'not yet final', '10^-3')
    """

    def formula(found: re.Match[str]) -> str:
        inner = re.sub(r"\\(?:math\w+|text)\s*", "", found[1])
        inner = re.sub(r"\\([A-Za-z]+|\|)", lambda name: _SYMBOLS.get(name[1], name[1]), inner)
        inner = re.sub(r"\\[,;: !]", " ", inner).replace("{", "").replace("}", "").replace("−", "-")
        # an index after text belongs to the word before it
        return inner[1:] if inner.startswith("_") else inner

    return " ".join(re.sub(r"(?<!\\)\$(.*?)(?<!\\)\$", formula, text).replace(r"\$", "$").split())


_SYMBOLS = {"infty": "∞", "lambda": "λ", "gamma": "γ", "|": "‖", "log": "log", "times": "×", "ell": "ℓ", "leq": "≤"}


def _named(axis: DataAxes) -> Iterator[tuple[str, DataSeries]]:
    """The series of axes, those without a name by what they show, with numbers if there are several."""
    shows = plain(axis.get_ylabel())
    unnamed = Counter(one.kind for one in axis.series if not one.name)
    numbers: Counter[str] = Counter()
    for one in axis.series:
        name = plain(one.name)
        if not name:
            numbers[one.kind] += 1
            name = shows if shows and one.kind in ("curve", "bars", "steps") else one.kind
            name += f" {numbers[one.kind]}" if unnamed[one.kind] > 1 else ""
        yield name, one


def _placed(axis: Axes, one: DataSeries) -> tuple[np.ndarray, tuple[float, float] | None]:
    """The points of a series in the units of the SVG view box, and half the size of its cells."""
    whole: Any = axis.figure.figure  # not a part of it
    scale = 72 / whole.dpi
    pixels = axis.transData.transform(one.points)
    places = (np.array([0, whole.bbox.height]) + pixels * [1, -1]) * scale
    if one.cell is None or not len(one.points):
        return places, None
    wide, high = np.abs(axis.transData.transform(one.points[0] + one.cell) - pixels[0]) * scale
    return places, (float(wide), float(high))


def _words(axis: Axis) -> dict[float, str]:
    """The names at fixed ticks, by place."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    return {
        float(place): plain(label.get_text())
        for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
        if label.get_text()
    }


def _has_names(axis: Axis) -> bool:
    """Whether its fixed ticks have other names than their numbers."""
    return any(text != f"{place:g}" for place, text in _words(axis).items())
