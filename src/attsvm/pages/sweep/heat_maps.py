"""Heat maps of two axes of the grid as tables, one for each value of the further axes."""

from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.progress import counted
from attsvm.pages.sweep.estimates import Axis, Series, Summary
from attsvm.pages.sweep.scales import UNIT, Scale
from attsvm.pages.sweep.words import cell_text, estimate_text, value_text
from attsvm.pages.words import short

WIDEST = 14
"""Most columns of a map whose cells show their number; in wider ones it appears at the pointer."""


class Cell(NamedTuple):
    """A cell of a map."""

    text: str  # the number, if there is room for it
    hover: str  # the values of the axes, the estimate with its interval, and the number of trials
    shade: float | None  # of the colour, in [0, 1]; None without a value
    whole: bool  # whether all trials are finished


class HeatMap(NamedTuple):
    """A map, from top to bottom; ``panel`` names the values of the further axes."""

    panel: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


def map_axes(summary: Summary) -> tuple[int, int]:
    """The places of the axes that run up and to the right: the last two, and numbers rather than names."""
    longer = [i for i, axis in enumerate(summary.axes) if len(axis.values) > 1]
    last = sorted(longer, key=lambda i: (summary.axes[i].numeric, i))[-2:]
    up, right = sorted(last)
    return up, right


def colour_scale(series: list[Series]) -> Scale:
    """The scale of the colours of one measure, the same for all its maps."""
    return UNIT if series[0].is_share else Scale.of(x for one in series for x in one.estimate.value.flat)


def heat_maps(summary: Summary, one: Series, scale: Scale) -> list[HeatMap]:
    """The maps of a series."""
    up, right = map_axes(summary)
    y, x = summary.axes[up], summary.axes[right]
    others = [i for i in range(len(summary.axes)) if i not in (up, right)]
    orders = [summary.axes[i].order for i in others]
    # numbers grow upwards as on a diagram; names are read from the top
    rows = y.order[::-1] if y.numeric else y.order
    maps = []
    for places in np.ndindex(*map(len, orders)):
        fixed = {i: order[place] for i, order, place in zip(others, orders, places, strict=True)}
        panel = {axis.name: axis.values[fixed[i]] for i, axis in enumerate(summary.axes) if _named(i, axis, fixed)}
        lines = [
            (
                value_text(y.values[row]),
                [_cell(summary, one, scale, {**fixed, up: row, right: column}) for column in x.order],
            )
            for row in rows
        ]
        maps.append(HeatMap(cell_text(panel), [value_text(x.values[i]) for i in x.order], lines))
    return maps


def _named(i: int, axis: Axis, fixed: dict[int, int]) -> bool:
    return i in fixed and len(axis.values) > 1


def _cell(summary: Summary, one: Series, scale: Scale, places: dict[int, int]) -> Cell:
    at = tuple(places[i] for i in range(len(summary.axes)))
    value = float(one.estimate.value[at])
    values = {axis.name: axis.values[i] for axis, i in zip(summary.axes, at, strict=True)}
    known = np.isfinite(value)
    whole = bool(summary.done[at] == summary.trials)
    hover = hover_text(values, one, at) + ("" if whole else f"; {summary.done[at]} of {summary.trials} finished")
    wide = len(summary.axes[map_axes(summary)[1]].values) > WIDEST
    return Cell(short(value) if known and not wide else "", hover, scale.place(value) if known else None, whole)


def hover_text(values: dict[str, Any], one: Series, at: tuple[int, ...]) -> str:
    """What appears at the pointer: the cell, the estimate with its interval, the number of trials."""
    value, low, high, trials = (x[at] for x in one.estimate)
    name = f"{one.name}: " if one.name else ""
    equal = ", all equal" if np.isfinite(value) and np.isnan(low) and trials > 1 else ""
    return (
        f"{cell_text(values)}: {name}{estimate_text(value, low, high, one.is_share)}, {counted(trials, 'trial')}{equal}"
    )
