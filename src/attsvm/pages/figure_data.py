"""The numbers of a figure, read from its axes: as CSV, and with their places in the drawing for the hover script.

No figure needs code of its own: what matplotlib draws as lines, bands, points, bars and cells is found here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import same_color
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import StepPatch
from matplotlib.ticker import FixedLocator

from attsvm.pages.over_steps import is_layer
from attsvm.pages.plain import csv_text

Row = tuple[Any, ...]


class Panel(NamedTuple):
    """A pair of axes with numbers on both of them."""

    box: list[float]  # left, top, right and bottom in the units of the SVG view box
    x: tuple[str, float, float]  # x, y: "linear" or "log", and the limits of the axis
    y: tuple[str, float, float]


class Series(NamedTuple):
    """Points of one curve, or the cells of one heat map."""

    panel: str  # the title of the axes, with their number if there are several
    name: str
    labels: tuple[str, str]  # of the two axes
    points: np.ndarray  # shape (N, 2), in the units of the axes
    rows: list[Row]  # what the CSV file says of each point: x and y, and the value of a cell
    places: np.ndarray  # shape (N, 2), in the units of the SVG view box
    half_cell: tuple[float, float] | None  # half the width and height of a cell in these units; None for points
    axes: int  # the number of the axes among those of the figure, from 1


class Marks(NamedTuple):
    """Points or cells of one pair of axes, and what appears at each of them at the pointer."""

    axis: Axes
    points: np.ndarray  # shape (N, 2), in the units of the axes
    texts: list[str]
    half_cell: tuple[float, float] | None = None  # half the width and height of a cell in these units; None for points


class Data(NamedTuple):
    """The numbers of a figure, where they are more than what is drawn."""

    table: str  # as CSV
    marks: list[Marks]


def figure_series(figure: Figure) -> list[Series]:
    """The series of a figure that has been drawn, in the order of its axes. Points that are not drawn are left out.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from attsvm.pages.figure_data import figure_series
    >>> figure = Figure()
    >>> _ = figure.subplots().plot([1, 2], [0.5, 0.25], label="margin")
    >>> [(one.name, one.rows) for one in figure_series(figure)]
    [('margin', [(1.0, 0.5), (2.0, 0.25)])]
    """
    panels = [(i, axis) for i, axis in enumerate(figure.axes, start=1) if axis.get_label() != "<colorbar>"]
    found = []
    for index, (number, axis) in enumerate(panels, start=1):
        title = next(filter(None, (axis.get_title(place) for place in ("left", "center", "right"))), "")
        panel = " ".join(filter(None, (str(index) if len(panels) > 1 else "", plain(title))))
        labels = plain(axis.get_xlabel()) or "x", plain(axis.get_ylabel()) or "y"
        for name, points, rows, half_cell in (*_curves(axis), *_bars(axis), *_cells(axis)):
            places, size = _placed(figure, axis, points, half_cell)
            drawn = np.isfinite(points).all(axis=1) & np.isfinite(places).all(axis=1)
            drawn &= np.array([all(entry == entry for entry in row) for row in rows], dtype=bool)  # no NaN
            if drawn.any():
                kept = [row for row, is_drawn in zip(rows, drawn, strict=True) if is_drawn]
                found.append(Series(panel, name, labels, points[drawn], kept, places[drawn], size, number))
    return found


def figure_panels(figure: Figure) -> dict[int, Panel]:
    """The axes of a drawn figure that a reader can zoom into, by their number from 1: curves over two axes of numbers.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from attsvm.pages.figure_data import figure_panels
    >>> figure = Figure()
    >>> _ = figure.subplots().loglog([1, 100], [1, 10])
    >>> figure_panels(figure)[1].x[0]
    'log'
    """
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
    >>> from attsvm.pages.figure_data import plain
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


def to_csv(series: list[Series]) -> str:
    """A line for each point, with columns panel, series, x, y and value; value is empty except for cells."""
    rows = ([one.panel, one.name, *row, *[""] * (3 - len(row))] for one in series for row in one.rows)
    return csv_text(("panel", "series", "x", "y", "value"), rows)


def data_links(figure: Figure, name: str, data: Data | None = None) -> Markup:
    """The links "data (CSV)" and "SVG" of a drawn figure; without the first if the figure shows no numbers.

    The SVG link is filled by the script of the page, from the drawing on the page. The script also reads the places of
    the points, in the order of the lines of the CSV file, and shows the numbers of the nearest one.
    """
    if data is not None:
        places = [_given(figure, one) for one in data.marks]
        return file_links(name, data.table, places, figure_panels(figure))
    series = figure_series(figure)
    if not series:
        return Markup(f'<p class="data">{_svg_link(name)}</p>')
    places = [
        {
            "labels": one.labels,
            "cell": one.half_cell,
            "axes": one.axes,
            "at": one.places.round(1).ravel().tolist(),
        }
        for one in series
    ]
    return file_links(name, to_csv(series), places, figure_panels(figure))


def _given(figure: Figure, marks: Marks) -> dict[str, Any]:
    """Where given points are in the drawing, and what appears there."""
    places, size = _placed(figure, marks.axis, marks.points, marks.half_cell)
    number = figure.axes.index(marks.axis) + 1
    return {"cell": size, "axes": number, "at": places.round(1).ravel().tolist(), "texts": marks.texts}


def _placed(
    figure: Figure, axis: Axes, points: np.ndarray, half_cell: tuple[float, float] | None
) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Points of axes in the units of the SVG view box, and half the size of their cells."""
    pixels = axis.transData.transform(points)
    scale = 72 / figure.dpi
    places = (np.array([0, figure.bbox.height]) + pixels * [1, -1]) * scale
    if half_cell is None or not len(points):
        return places, None
    wide, high = np.abs(axis.transData.transform(points[0] + half_cell) - pixels[0]) * scale
    return places, (float(wide), float(high))


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
        f"{_svg_link(name, ' · ')}</p>"
    )


def _svg_link(name: str, before: str = "") -> str:
    """The link that the script of the page fills."""
    return f'<span hidden>{before}<a class="svg" download="{quote(name, safe="")}.svg">SVG</a></span>'


def _attribute(value: Any) -> Markup:
    return escape(json.dumps(value, separators=(",", ":")))


Found = tuple[str, np.ndarray, list[Row], tuple[float, float] | None]


def _curves(axis: Axes) -> Iterator[Found]:
    # not those across the axes, nor the marks of a slider, which are on other lines
    lines = [line for line in axis.lines if line.get_transform() == axis.transData and not is_layer(line)]
    unnamed = _numbered(plain(axis.get_ylabel()) or "curve", [line for line in lines if not _label(line)])
    names = {line: _label(line) or unnamed[line] for line in lines}
    points = _numbered("points", [part for part in axis.collections if isinstance(part, PathCollection)])
    segments = _numbered("segments", [part for part in axis.collections if isinstance(part, LineCollection)])
    for line in lines:
        # strings on an axis of categories have their positions as units
        yield _points(names[line], np.ma.filled(np.ma.asarray(line.get_xydata(), dtype=float), np.nan))
    for part in axis.collections:
        if isinstance(part, PolyCollection):
            colours: Any = part.get_facecolor()
            of = [names[line] for line in lines if len(colours) and same_color(line.get_color(), colours[0][:3])]
            name = _label(part) or (f"band of {of[0]}" if of else "band")
            for path in part.get_paths():
                corners = np.asarray(path.vertices, dtype=float)
                # fill_between draws start, lower edge, end, upper edge backwards, and closes the path
                edge = (len(corners) - 3) // 2
                yield _points(f"{name}, edge 1", corners[1 : 1 + edge])
                yield _points(f"{name}, edge 2", corners[2 + edge : -1][::-1])
        elif isinstance(part, PathCollection):
            offsets: Any = np.ma.asarray(part.get_offsets(), dtype=float)
            yield _points(_label(part) or points[part], np.ma.filled(offsets, np.nan))
        elif isinstance(part, LineCollection) and part.get_transform() == axis.transData and part.get_segments():
            yield _points(_label(part) or segments[part], np.concatenate(part.get_segments()).astype(float))


def _label(artist: Any) -> str:
    """The name in the legend; matplotlib's own names start with an underscore."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else plain(label)


def _numbered(name: str, parts: list[Any]) -> dict[Any, str]:
    """A name for each part, with numbers if there are several."""
    return {part: name if len(parts) == 1 else f"{name} {index}" for index, part in enumerate(parts, start=1)}


def _points(name: str, points: np.ndarray) -> Found:
    return name, points, [tuple(row) for row in points.tolist()], None


def _bars(axis: Axes) -> Iterator[Found]:
    groups = [bars for bars in axis.containers if isinstance(bars, BarContainer)]
    value = plain(axis.get_ylabel())
    unnamed = _numbered(value or "bars", [bars for bars in groups if not _label(bars)])
    for bars in groups:
        name = _label(bars) or unnamed[bars]
        boxes = [bar.get_bbox() for bar in bars.patches]
        upright = bars.orientation != "horizontal"
        ends = [((b.x0 + b.x1) / 2, b.y1) if upright else (b.x1, (b.y0 + b.y1) / 2) for b in boxes]
        points = np.array(ends, dtype=float).reshape(-1, 2)
        words = _words(axis.xaxis if upright else axis.yaxis)
        # the length of a bar, not its end, which in a stack counts the bars below, too
        rows: list[Row] = [
            (words.get(x, x), bar.get_height()) if upright else (bar.get_width(), words.get(y, y))
            for bar, (x, y) in zip(bars.patches, points.tolist(), strict=True)
        ]
        yield name, points, rows, None
    for patch in axis.patches:
        if isinstance(patch, StepPatch):
            data: Any = patch.get_data()
            middles = (np.asarray(data.edges)[1:] + np.asarray(data.edges)[:-1]) / 2
            yield _points(_label(patch) or value or "steps", np.column_stack([middles, data.values]).astype(float))


def _cells(axis: Axes) -> Iterator[Found]:
    x_words, y_words = _words(axis.xaxis), _words(axis.yaxis)
    images = [image for image in axis.images if isinstance(image, AxesImage)]
    unnamed = _numbered("cells", images)
    for image in images:
        array = image.get_array()
        if array is None or array.ndim != 2 or (is_layer(image) and not image.get_visible()):
            continue  # a photograph has colours, not numbers; and a slider shows the last step at first
        values: Any = np.ma.filled(np.ma.asarray(array, dtype=float), np.nan)
        left, right, bottom, top = image.get_extent()
        first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
        wide, high = (right - left) / values.shape[1], (last - first) / values.shape[0]
        i, j = (axes.ravel() for axes in np.indices(values.shape))
        points = np.column_stack([left + (j + 0.5) * wide, first + (i + 0.5) * high])
        rows: list[Row] = [
            (x_words.get(x, x), y_words.get(y, y), value)
            for (x, y), value in zip(points.tolist(), values.ravel().tolist(), strict=True)
        ]
        colorbar = image.colorbar
        named = "" if colorbar is None else plain(colorbar.ax.get_ylabel() or colorbar.ax.get_xlabel())
        yield named or _label(image) or unnamed[image], points, rows, (abs(wide) / 2, abs(high) / 2)


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
