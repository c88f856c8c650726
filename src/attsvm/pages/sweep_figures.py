"""The figures of a sweep: curves along its only long axis, or heat maps of two axes for each value of the others."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from attsvm._utils.text import as_label
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import Shown
from attsvm.pages.sweep_estimates import Axis, Summary, SweepEstimate, cell_text, hover_text, value_text
from attsvm.pages.words import short
from attsvm.plot import DATA, line, style

SHADES = LinearSegmentedColormap.from_list("shades", ["#ffffff", style.BLUE])

WIDEST = 14
"""Most columns of a map whose cells show their number; in wider ones it appears at the pointer."""

NARROW = 7
"""Most columns of a map that shares a line with another figure."""

MOST_TICKS = 8
"""Most values of an axis that are all named on a curve."""


def draw_sweep(
    summary: Summary, groups: Mapping[str, Sequence[SweepEstimate]], tables: Mapping[str, str]
) -> list[Shown]:
    """Draw every measure; nothing if no axis has several values.

    ``groups``: the series of each measure, by the name of its figure. ``tables``: their estimates as CSV.
    """
    longer = sum(len(axis.values) > 1 for axis in summary.axes)
    draw = _maps if longer > 1 else _curves
    if not longer:
        return []
    return draw_each({name: partial(draw, summary, group, tables[name]) for name, group in groups.items()})


def wide(summary: Summary, groups: Mapping[str, Sequence[SweepEstimate]]) -> list[str]:
    """The measures whose figures have the full width of the page."""
    if sum(len(axis.values) > 1 for axis in summary.axes) < 2:
        return []
    return [name for name, group in groups.items() if _is_wide(summary, group)]


def curve_axis(summary: Summary) -> int:
    """The place of the only axis with more than one value."""
    return next(i for i, axis in enumerate(summary.axes) if len(axis.values) > 1)


def map_axes(summary: Summary) -> tuple[int, int]:
    """The places of the axes that run up and to the right: the last two, and numbers rather than names."""
    longer = [i for i, axis in enumerate(summary.axes) if len(axis.values) > 1]
    last = sorted(longer, key=lambda i: (summary.axes[i].numeric, i))[-2:]
    up, right = sorted(last)
    return up, right


def _curves(summary: Summary, series: Sequence[SweepEstimate], table: str) -> DrawnFigure:
    along = curve_axis(summary)
    axis = summary.axes[along]
    measure = "share" if series[0].is_share else as_label(series[0].title)
    figure, panel = style.panel(as_label(axis.label), measure, 2.6)
    x = np.array([axis.values[i] for i in axis.order] if axis.numeric else range(len(axis.values)), dtype=float)
    places = [tuple(place if i == along else 0 for i in range(len(summary.axes))) for place in axis.order]
    for k, one in enumerate(series):
        value, low, high = (np.array([part[at] for at in places], dtype=float) for part in one.estimate[:3])
        known = np.isfinite(value)
        drawn = line(k)
        texts = [hover_text({axis.name: axis.values[place[along]]}, one, place) for place in places]
        # a curve has gaps where there is no value; a value without neighbours has its interval as a line
        gaps = np.where(known, value, np.nan)
        panel.plot(x, gaps, marker="o", markersize=3, label=as_label(one.name) or None, **drawn, texts=texts)
        style.band(panel, x, np.where(known, low, np.nan), np.where(known, high, np.nan), drawn["color"])
        alone = known & ~np.r_[False, known[:-1]] & ~np.r_[known[1:], False] & np.isfinite(low)
        panel.vlines(x[alone], low[alone], high[alone], color=drawn["color"], alpha=0.5)
    if series[0].is_share:
        panel.set_ylim(-0.03, 1.03)
    elif style.spans_decades(2, *(part for one in series for part in one.estimate[:3])):
        panel.set_yscale("log")
    _across(panel, axis, x)
    if len(series) > 1:
        style.legend_above(panel, 3)
    return DrawnFigure(series[0].title, _interval(summary, series), figure, table=table)


def _across(panel: Axes, axis: Axis, x: np.ndarray) -> None:
    """Numbers on their scale, names at equal distances, each named if they are few."""
    if axis.numeric and style.spans_decades(1, x):
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    if len(x) <= MOST_TICKS or not axis.numeric:
        panel.set_xticks(x, [as_label(value_text(axis.values[i])) for i in axis.order])


def _maps(summary: Summary, series: Sequence[SweepEstimate], table: str) -> DrawnFigure:
    up, right = map_axes(summary)
    fixed = [i for i in range(len(summary.axes)) if i not in (up, right)]
    panels = [
        (one, dict(zip(fixed, place, strict=True)))
        for one in series
        for place in np.ndindex(*(len(summary.axes[i].values) for i in fixed))
    ]
    columns, rows = len(summary.axes[right].values), len(summary.axes[up].values)
    width = style.WIDTH * (2 if _is_wide(summary, series) else 1)
    across = min(len(panels), max(1, 3 * WIDEST // max(columns, WIDEST)))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(width, 0.4 + down * (0.35 + 0.2 * rows)))
    axes = figure.subplots(down, across, squeeze=False, subplot_kw=DATA)
    values = np.concatenate([one.estimate.value.ravel() for one in series])
    norm = _norm(series[0].is_share, values[np.isfinite(values)])
    for panel, (one, places) in zip(axes.flat, panels, strict=False):
        _map(panel, summary, one, places, norm)
        named = {
            axis.name: axis.values[axis.order[places[i]]]
            for i, axis in enumerate(summary.axes)
            if i in places and len(axis.values) > 1
        }
        panel.set_title(" · ".join(map(as_label, filter(None, (one.name, cell_text(named))))))
        if len(panels) == across * down:
            panel.label_outer()  # all maps have the same axes
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    figure.colorbar(axes[0, 0].images[0], ax=axes, fraction=0.05, pad=0.02)
    caption = f"{_interval(summary, series)} Hatched: no value. Dashed frame: trials are missing."
    return DrawnFigure(series[0].title, caption, figure, table=table)


def _map(panel: Axes, summary: Summary, one: SweepEstimate, fixed: Mapping[int, int], norm: Normalize) -> None:
    """Draw one map: numbers grow upwards and to the right, names are read from the top and the left."""
    up, right = map_axes(summary)
    y, x = summary.axes[up], summary.axes[right]
    rows = y.order[::-1] if y.numeric else y.order
    cells = {
        (i, j): tuple(
            {up: row, right: column}.get(k, axis.order[fixed.get(k, 0)]) for k, axis in enumerate(summary.axes)
        )
        for i, row in enumerate(rows)
        for j, column in enumerate(x.order)
    }
    values = np.array([one.estimate.value[at] for at in cells.values()], dtype=float).reshape(len(rows), -1)
    texts = [_hover_text(summary, one, at) for at in cells.values()]
    image = style.heat_map(panel, values, cmap=SHADES, norm=norm, interpolation="nearest", texts=texts)
    for (i, j), at in cells.items():
        if not np.isfinite(values[i, j]):
            _frame(panel, i, j, hatch="//////", linewidth=0, edgecolor="#b8b8b8")
        elif len(x.values) <= WIDEST:
            colour = style.ink_on(image.to_rgba(values[i, j]))
            panel.text(j, i, short(values[i, j]), ha="center", va="center", fontsize=6, color=colour)
        if summary.done[at] < summary.trials:
            _frame(panel, i, j, linestyle="--", linewidth=0.8, edgecolor=style.VERMILLION)
    panel.set_xticks(range(len(x.order)), [as_label(value_text(x.values[k])) for k in x.order])
    panel.set_yticks(range(len(rows)), [as_label(value_text(y.values[k])) for k in rows])
    if len(x.values) > WIDEST:
        panel.tick_params(axis="x", labelrotation=90)
    panel.spines[:].set(visible=True, color="#b8b8b8", linewidth=0.5)  # cells of 0 are as white as the page
    panel.set_xlabel(as_label(x.label))
    panel.set_ylabel(as_label(y.label))


def _hover_text(summary: Summary, one: SweepEstimate, at: tuple[int, ...]) -> str:
    named = {axis.name: axis.values[k] for axis, k in zip(summary.axes, at, strict=True)}
    missing = f"; {summary.done[at]} of {summary.trials} finished" if summary.done[at] < summary.trials else ""
    return hover_text(named, one, at) + missing


def _frame(panel: Axes, i: int, j: int, **options: Any) -> None:
    panel.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, **options))


def _norm(is_share: bool, values: np.ndarray) -> Normalize:
    """The scale of the colours of one measure, the same for all its maps."""
    if is_share:
        return Normalize(0, 1)
    if not values.size:
        return Normalize(0, 1)
    low, high = float(values.min()), float(values.max())
    return LogNorm(low, high) if style.spans_decades(2, values) else Normalize(low, high)


def _is_wide(summary: Summary, series: Sequence[SweepEstimate]) -> bool:
    up, right = map_axes(summary)
    panels = np.prod([len(axis.values) for i, axis in enumerate(summary.axes) if i not in (up, right)], initial=1)
    return bool(panels * len(series) > 1 or len(summary.axes[right].values) > NARROW)


def _interval(summary: Summary, series: Sequence[SweepEstimate]) -> str:
    if series[0].is_share:
        return f"Share of the trials, with its Wilson interval ({summary.level:.0%})."
    return f"Mean of the trials, with its bootstrap interval ({summary.level:.0%}) if they are not all equal."
