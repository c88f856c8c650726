"""The figures of a comparison: changed selections by head, measures before and after, and curves over checkpoints."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from attsvm._utils.text import as_label, head_label
from attsvm.pages.comparison import model_names
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import Shown
from attsvm.plot import line, style

if TYPE_CHECKING:
    from attsvm.inspect import HeadChange, Measure, Series

OVER_MODELS = ("largest_probability", "effective_tokens", "first_share", "effective_rank", "margin_ratio")
"""Measures that are drawn before and after, or over the checkpoints."""

COLOURS = "cividis"

NAMED = 4
"""Heads with a curve of their own: those that changed most."""


def draw_comparison(series: "Series") -> list[Shown]:
    """A map of changed selections, and each measure before and after, or over the models if there are several."""
    drawers: dict[str, Callable[[], DrawnFigure | None]] = {"changed": partial(_map, series)}
    several = len(series.inspections) > 2
    if several:
        drawers["changed_over_models"] = partial(_changed, series)
    for measure in series.inspections[0].measures:
        if measure.name in OVER_MODELS:
            drawers[measure.name] = partial(_model_curves if several else _before_after, measure, series)
    return draw_each(drawers)


def _map(series: "Series") -> DrawnFigure | None:
    heads = series.total.heads
    layers, width = (1 + max(place) for place in zip(*((one.layer, one.head) for one in heads), strict=True))
    values = np.full((layers, width), np.nan)
    for one in heads:
        values[one.layer, one.head] = 100 * one.changed
    if np.isnan(values).mean() > 1 / 2 or values.size == 1:
        return None  # nearly empty
    figure, axis = style.panel("head", "layer", 0.87 + style.WIDTH * 0.72 * min(1.6, max(0.22, layers / width)))
    image = style.heat_map(axis, values, cmap=COLOURS, vmin=0, interpolation="nearest")
    axis.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    figure.colorbar(image, ax=axis, fraction=0.05, pad=0.02)
    names = model_names(series)
    caption = f"Percentage of the queries that select a different token in {names[-1]} than in {names[0]}."
    return DrawnFigure("Changed selections", caption, figure)


def _before_after(measure: "Measure", series: "Series") -> DrawnFigure | None:
    of_margin = measure.name == "margin_ratio"
    pairs = [(one, _ends(one, measure.name)) for one in series.total.heads]
    found = [(one, ends) for one, ends in pairs if ends is not None]
    if not found:
        return None
    names = [as_label(name) for name in model_names(series)]
    figure, axis = style.panel(names[0], names[-1], 2.6)
    _diagonal(axis, np.array([ends for _, ends in found]))
    for one, (before, after) in found:
        moved = one.margin_moved if of_margin else one.changed > 0
        colour, at = style.VERMILLION if moved else style.BLUE, (np.mean(before), np.mean(after))
        marker = "o" if moved else "s"
        label = f"head {head_label(series.inspections[0].layer_names, one.layer, one.head)}"
        axis.plot(*at, marker=marker, markersize=3.5, alpha=0.75, linestyle="none", color=colour, label=label)
        if of_margin:
            across, up = ([before[0], before[-1]], [at[1]] * 2), ([at[0]] * 2, [after[0], after[-1]])
            for ends, name in ((across, names[0]), (up, names[-1])):
                axis.plot(*ends, color=colour, linewidth=0.8, label=f"{label}, {name}")
    what = "whose margin ratio certainly moved; lines are the intervals" if of_margin else "that changed selections"
    caption = f"A point for each head: {measure.meaning}. Orange circles: heads {what}."
    return DrawnFigure(f"{measure.title}, before and after", caption, figure)


def _ends(change: "HeadChange", name: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """A measure before and after; for the margin ratio the ends of both intervals."""
    if name == "margin_ratio":
        return change.margin
    if name not in change.numbers:
        return None
    before, after = change.numbers[name]
    return (before,), (after,)


def _diagonal(axis: Axes, values: np.ndarray) -> None:
    """The line on which nothing changes; logarithmic axes for values of several sizes."""
    low, high = float(values.min()), float(values.max())
    if style.spans_decades(2, values):
        axis.set_xscale("log")
        axis.set_yscale("log")
    ends = [low, high] if high > low else [low - 0.5, high + 0.5]
    axis.plot(ends, ends, color=style.INK, linewidth=0.7, linestyle=":", label="unchanged")


def _changed(series: "Series") -> DrawnFigure:
    places = series.places[1:]
    figure, axis = style.panel(_across(series), "changed selections (%)", 2.4)
    values = 100 * np.stack([series.since_first[one.layer, one.head] for one in series.total.heads])
    _curves(axis, places, values, series)
    between = 100 * np.stack([*series.since_previous.values()])
    axis.plot(places, np.nanmedian(between, axis=0), color=style.INK, linestyle=":", label="median, one to the next")
    style.legend_above(axis, 2)
    caption = (
        f"Share of the queries that select another token than in {model_names(series)[0]}; dotted: than in the"
        f" {'checkpoint' if series.steps else 'model'} before. {_bands(series)}"
    )
    return DrawnFigure("Changed selections", caption, figure)


def _model_curves(measure: "Measure", series: "Series") -> DrawnFigure | None:
    values = np.full((len(series.total.heads), len(series.inspections)), np.nan)
    for k, inspection in enumerate(series.inspections):
        of_head = {(one.layer, one.head): one.numbers.get(measure.name) for one in inspection.heads}
        found = [of_head.get((one.layer, one.head)) for one in series.total.heads]
        values[:, k] = [np.nan if value is None else value for value in found]
    if np.isnan(values).all(axis=0).any():
        return None
    figure, axis = style.panel(_across(series), measure.title, 2.4)
    _curves(axis, series.places, values, series)
    if style.spans_decades(2, values):
        axis.set_yscale("log")
    style.legend_above(axis, 2)
    caption = f"{measure.meaning[0].upper()}{measure.meaning[1:]}. {_bands(series)}"
    return DrawnFigure(measure.title, caption, figure)


def _curves(axis: Axes, places: list[int], values: np.ndarray, series: "Series") -> None:
    """The median and the range of all heads, and the heads that changed most, from one row for each head."""
    style.spread(axis, np.array(places), values.T, style.BLUE, "-", "median head")
    for k, one in enumerate(series.total.heads[:NAMED], start=1):
        label = f"head {head_label(series.inspections[0].layer_names, one.layer, one.head)}"
        axis.plot(places, values[k - 1], label=label, **line(k), marker="o", markersize=2.5)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.label.set_wrap(True)


def _across(series: "Series") -> str:
    return "training steps" if series.steps else "model"


def _bands(series: "Series") -> str:
    return f"The band is the 10-90 % range of all {len(series.total.heads)} heads; named heads changed most."
