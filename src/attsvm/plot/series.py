"""Axes that keep the numbers of what is drawn on them: a page makes the data and the hover of a figure from these."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections import register_projection

from attsvm._utils.shapes import Float

PROJECTION = "attsvm"
"""The name of :class:`DataAxes` in ``figure.add_subplot(projection=...)``."""

DATA = {"projection": PROJECTION}
"""For ``figure.subplots(subplot_kw=DATA)``."""


@dataclass(frozen=True)
class DataSeries:
    """The numbers of one call: a curve, an edge of a band, points, bars, or the cells of a heat map."""

    name: str  # as in the legend; "" without one
    points: Float[np.ndarray, "N 2"]  # in the units of the axes
    kind: str = "curve"  # what it is called without a name
    table: Float[np.ndarray, "N columns"] | None = None  # x, y and the value of a cell, if they are not the points
    categories: str = ""  # "x", "y" or "xy": the axes whose named ticks are the names of its places
    cell: tuple[float, float] | None = None  # half the width and height of a cell
    texts: Sequence[str] | None = None  # what appears at the pointer, if it is not made of the table


def cells(
    values: Float[np.ndarray, "rows columns"],
    extent: tuple[float, float, float, float],
    name: str = "",
    texts: Sequence[str] | None = None,
) -> DataSeries:
    """The cells of a heat map. ``extent``: its left, right, lower and upper edge; the first row is at the upper one."""
    left, right, bottom, top = extent
    wide, high = (right - left) / values.shape[1], (bottom - top) / values.shape[0]
    i, j = (places.ravel() for places in np.indices(values.shape))
    points = np.column_stack([left + (j + 0.5) * wide, top + (i + 0.5) * high])
    table = np.column_stack([points, values.ravel()])
    return DataSeries(name, points, "cells", table, "xy", (abs(wide) / 2, abs(high) / 2), texts)


def keep(axis: Axes, series: DataSeries) -> None:
    """Keep numbers that are drawn otherwise, or only in part; nothing on axes that keep none."""
    if isinstance(axis, DataAxes):
        axis.series.append(series)


class DataAxes(Axes):
    """Axes that keep curves, points, bars, steps and cells as ``series``, in their order.

    What is no data is added as an artist, such as rules and photographs, or is not visible.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from attsvm.plot.series import DATA
    >>> axis = Figure().subplots(subplot_kw=DATA)
    >>> _ = axis.plot([1, 2], [0.5, 0.25], label="margin")
    >>> [(one.name, one.points.tolist()) for one in axis.series]
    [('margin', [[1.0, 0.5], [2.0, 0.25]])]
    """

    name = PROJECTION

    def __init__(self, *args: Any, **options: Any) -> None:
        self.series: list[DataSeries] = []
        super().__init__(*args, **options)

    def plot(self, *args: Any, texts: Sequence[str] | None = None, **options: Any) -> Any:
        """Draw and keep curves."""
        lines = super().plot(*args, **options)
        self.series += [DataSeries(_label(line), _filled(line.get_xydata()), texts=texts) for line in lines]
        return lines

    def scatter(self, *args: Any, **options: Any) -> Any:
        """Draw and keep points."""
        points = super().scatter(*args, **options)
        self.series.append(DataSeries(_label(points), _filled(points.get_offsets()), "points"))
        return points

    def bar(self, *args: Any, **options: Any) -> Any:
        """Draw and keep bars, with their lengths: the end of a bar in a stack counts the bars below, too."""
        bars = super().bar(*args, **options)
        boxes = [bar.get_bbox() for bar in bars.patches]
        if bars.orientation == "horizontal":
            rows = [(box.x1, (box.y0 + box.y1) / 2, box.width, (box.y0 + box.y1) / 2) for box in boxes]
        else:
            rows = [((box.x0 + box.x1) / 2, box.y1, (box.x0 + box.x1) / 2, box.height) for box in boxes]
        found = np.array(rows, dtype=float).reshape(-1, 4)
        along = "y" if bars.orientation == "horizontal" else "x"
        self.series.append(DataSeries(_label(bars), found[:, :2], "bars", found[:, 2:], along))
        return bars

    def stairs(self, values: Any, edges: Any = None, **options: Any) -> Any:
        """Draw a histogram, and keep its values at the middles of the bins."""
        drawn = super().stairs(values, edges, **options)
        found: Any = drawn.get_data()
        ends = np.asarray(found.edges)
        self.series.append(DataSeries(_label(drawn), np.column_stack([(ends[1:] + ends[:-1]) / 2, values]), "steps"))
        return drawn

    def imshow(self, X: Any, *args: Any, texts: Sequence[str] | None = None, **options: Any) -> Any:
        """Draw an image, and keep its cells, unless it is a photograph (it has colours) or hidden."""
        image = super().imshow(X, *args, **options)
        if np.ndim(X) == 2 and image.get_visible():
            self.series.append(cells(_filled(X), image.get_extent(), _label(image), texts))
        return image


register_projection(DataAxes)


def _label(artist: Any) -> str:
    """The name in the legend; Matplotlib's own names start with an underscore."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _filled(values: Any) -> np.ndarray:
    return np.asarray(np.ma.filled(np.ma.asarray(values, dtype=float), np.nan))
