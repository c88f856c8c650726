"""Curves along one axis of the grid, as the places of an SVG element."""

from typing import NamedTuple

import numpy as np

from attsvm.pages.figure_data import Panel
from attsvm.pages.sweep.estimates import Axis, Series, Summary
from attsvm.pages.sweep.heat_maps import hover_text
from attsvm.pages.sweep.scales import UNIT, Scale
from attsvm.pages.sweep.words import value_text
from attsvm.pages.words import tick_text

WIDTH, HEIGHT = 420, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 44

STYLES = (
    ("var(--blue, #0072B2)", "none"),
    ("#D55E00", "7 3"),
    ("#009E73", "2 2.5"),
    ("#CC79A7", "8 3 2 3"),
    ("#E69F00", "5 2"),
    ("#56B4E9", "1 3"),
)
"""Colour and dashes of the curves; with more than six they repeat."""


class Point(NamedTuple):
    """A point with its interval and what appears at the pointer; the interval is empty for one trial."""

    x: float
    y: float
    low: float
    high: float
    hover: str


class Curve(NamedTuple):
    """A curve: its name, its parts between cells without a value, and how it is drawn."""

    name: str
    parts: list[list[Point]]
    colour: str
    dashes: str

    @property
    def points(self) -> list[Point]:
        """The points of all parts."""
        return [point for part in self.parts for point in part]

    @property
    def lines(self) -> list[str]:
        """The points of the line of each part, for SVG."""
        return [" ".join(f"{point.x:.1f},{point.y:.1f}" for point in part) for part in self.parts]

    @property
    def bands(self) -> list[str]:
        """The outline of the intervals of each part, for SVG."""
        return [_outline(part) for part in self.parts]


class Diagram(NamedTuple):
    """The curves of one measure, with the ticks of both axes as places and texts.

    The panel says what can be zoomed into; None if one of the axes has names, or only one number.
    """

    curves: list[Curve]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    panel: Panel | None


def _outline(part: list[Point]) -> str:
    upper = [f"{point.x:.1f},{point.high:.1f}" for point in part]
    lower = [f"{point.x:.1f},{point.low:.1f}" for point in reversed(part)]
    return " ".join(upper + lower)


def curve_axis(summary: Summary) -> int:
    """The place of the only axis with more than one value."""
    return next(i for i, axis in enumerate(summary.axes) if len(axis.values) > 1)


def diagram(summary: Summary, series: list[Series]) -> Diagram:
    """The curves of the series of one measure."""
    axis = summary.axes[curve_axis(summary)]
    across = [_across(axis, place) for place in axis.order]
    ends = (x for one in series for part in one.estimate[:3] for x in part.flat)
    scale = UNIT if series[0].is_share else Scale.of(ends).rounded()
    curves = []
    for k, one in enumerate(series):
        colour, dashes = STYLES[k % len(STYLES)]
        curves.append(Curve(one.name, _parts(summary, one, across, scale), colour, dashes))
    labels = [(x, value_text(axis.values[i])) for x, i in zip(across, axis.order, strict=True)]
    ticks = [(_height(scale, value), tick_text(value)) for value in scale.ticks()]
    return Diagram(curves, _apart(labels), ticks, _panel(axis, scale))


def _panel(axis: Axis, scale: Scale) -> Panel | None:
    if not axis.numeric:
        return None
    sides = _scale_across(axis), scale
    if any(side.low == side.high for side in sides):
        return None
    x, y = (("log" if side.log else "linear", side.low, side.high) for side in sides)
    return Panel([LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM], x, y)


def _parts(summary: Summary, one: Series, across: list[float], scale: Scale) -> list[list[Point]]:
    along = curve_axis(summary)
    parts: list[list[Point]] = [[]]
    axis = summary.axes[along]
    for x, place in zip(across, axis.order, strict=True):
        at = tuple(place if i == along else 0 for i in range(len(summary.axes)))
        value, low, high = (float(part[at]) for part in one.estimate[:3])
        if np.isfinite(value):
            low, high = (low, high) if np.isfinite(low) else (value, value)
            y, bottom, top = (_height(scale, number) for number in (value, low, high))
            parts[-1].append(Point(x, y, bottom, top, hover_text({axis.name: axis.values[place]}, one, at)))
        else:
            parts.append([])
    return [part for part in parts if part]


def _across(axis: Axis, place: int) -> float:
    """Where a value of the axis is: numbers on their scale, names at equal distances."""
    share = _scale_across(axis).place(axis.values[place]) if axis.numeric else (place + 0.5) / len(axis.values)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _scale_across(axis: Axis) -> Scale:
    return Scale.of(axis.values, decades=1.0)


def _height(scale: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - scale.place(value) * (HEIGHT - TOP - BOTTOM)


def _apart(labels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The labels that do not cover the one before them."""
    shown: list[tuple[float, str]] = []
    end = -np.inf
    for x, text in labels:
        half = 3.4 * len(text) + 3
        if x - half > end:
            shown.append((x, text))
            end = x + half
    return shown
