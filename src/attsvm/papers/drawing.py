"""The common parts of drawings: panels and their axes, lines of several shapes (n, T), and rings on paths."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from attsvm._utils.shapes import Float, Int
from attsvm.pages import at_step
from attsvm.plot import DATA, style

LINES = ((style.BLUE, "-"), (style.VERMILLION, "--"), (style.GREEN, "-."), (style.PURPLE, ":"))
"""Colours and dashes that differ in grey, too."""

GREY = "#808080"
"""Of what is drawn beside the measurement."""

POINTS = ((style.BLUE, "o"), (style.GREEN, "v"), (style.VERMILLION, "d"))
"""Colours and marks of single points."""

GRID_LINES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.5}
    for colour, dashes, marker in (
        (style.BLUE, "-", "o"),
        (style.VERMILLION, "--", "s"),
        (style.GREEN, "-.", "^"),
        (style.PURPLE, (0, (4, 1, 1, 1, 1, 1)), "D"),
        (style.ORANGE, (0, (1, 1)), "v"),
    )
)
"""The lines of several shapes (n, T)."""

Recorded = tuple[Int[np.ndarray, " R"], Float[np.ndarray, "R 2"]]
"""The steps of the records of a path, and where it is at them."""


def label(n: int, T: int, *_: int) -> str:
    """The name of the line of a shape."""
    return f"n = {n}, T = {T}"


def shape_lines(shapes: Iterable[Sequence[int]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the line of each shape, which begins with n and T."""
    return zip((label(*shape) for shape in shapes), cycle(GRID_LINES), strict=False)


def panels(height: float, rows: int, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of a column's width, and its axes as ``Figure.subplots`` returns them. ``height``: in inches."""
    figure = Figure(figsize=(style.WIDTH, height))
    return figure, figure.subplots(rows, columns, subplot_kw=DATA, **options)


def set_axes(axis: Axes, x: str = "", y: str = "", *, log: str = "") -> None:
    """Name the axes, and make those in ``log`` logarithmic: "x", "y" or "xy"."""
    if x:
        axis.set_xlabel(x)
    if y:
        axis.set_ylabel(y)
    if "x" in log:
        axis.set_xscale("log")
    if "y" in log:
        axis.set_yscale("log")


def outer_axes(axes: np.ndarray, x: str, y: str) -> None:
    """Name the axes of panels at the lower and at the left side of a figure."""
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)


def legend_over(figure: Figure | SubFigure, axis: Axes, columns: int, **options: Any) -> None:
    """Place the legend of one pair of axes above the whole figure."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=columns, **options)


def diagonal(axis: Axes) -> None:
    """Draw where x equals y, up to 1."""
    ends = [min(axis.get_xlim()[0], axis.get_ylim()[0]), 1.0]
    axis.plot(ends, ends, ":", color=style.INK, linewidth=0.6)


def longest(steps: Sequence[Int[np.ndarray, " R"]]) -> Int[np.ndarray, " R"]:
    """The steps of the run that was recorded for longest."""
    return max(steps, key=lambda one: int(one[-1]))


def ring_steps(steps: Int[np.ndarray, " R"]) -> list[int]:
    """About a dozen of the recorded steps: the first after each power of two, and the last.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.papers.drawing import ring_steps
    >>> ring_steps(np.array([0, 1, 2, 3, 4, 5, 7, 9, 12]))
    [0, 1, 2, 4, 9, 12]
    """
    powers = 2 ** np.arange(int(steps[-1]).bit_length())
    return sorted({0, int(steps[-1]), *steps[np.searchsorted(steps, powers)].tolist()} & {*steps.tolist()})


def draw_rings(axis: Axes, paths: Sequence[Recorded], steps: Sequence[int]) -> None:
    """Draw a ring on each path at each of the steps; the slider of the page chooses the step that is shown.

    The rings of the last step are shown first. ``paths``: a path without a record at a step has its ring at the record
    before. ``steps``: the same ones for all axes of a figure, for example of :func:`ring_steps`.
    """
    number = axis.figure.figure.axes.index(axis)  # the whole figure, not a part of it
    for step in steps:
        places = [points[max(int(np.searchsorted(of_path, step, side="right")) - 1, 0)] for of_path, points in paths]
        ring = Line2D(
            *np.transpose(places),
            linestyle="none",
            marker="o",
            markersize=5,
            markerfacecolor="none",
            markeredgecolor=style.INK,
            visible=step == steps[-1],
            zorder=4,
            gid=at_step(step, str(number)),
        )
        axis.add_line(ring)
