"""The figures of a record: curves of every measure over the steps, and maps of all heads where there are many."""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from attsvm._utils.text import as_label, slugs
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.monitor import described, recorded
from attsvm.pages.page import Shown
from attsvm.pages.records import Records
from attsvm.plot import line, style

MOST_CURVES = 12
"""With more heads there is a curve for the :data:`EXTREME` largest and smallest at the end, beside median and range."""

EXTREME = 3

MOST_POINTS = 300
"""Records that are drawn, spread evenly; the last one is among them."""

MOST_CELLS = 2500
"""Of a map."""


def draw_measures(records: Records) -> tuple[list[Shown], list[Shown]]:
    """Every measure over the steps; and for many heads, a map of heads and steps of every one with two records."""
    names = recorded(records)
    files = slugs([*names, *(f"{name}_map" for name in names)])
    curves, maps = (
        {file: partial(draw, name, records) for file, name in zip(some, names, strict=True)}
        for draw, some in ((_curves, files[: len(names)]), (_map, files[len(names) :]))
    )
    return draw_each(curves), draw_each(maps) if len(records.heads) > MOST_CURVES else []


def _curves(name: str, records: Records) -> DrawnFigure:
    title, _, meaning = described(name)
    steps, lower, upper = _ends(name, records)
    at = _spread(len(steps), MOST_POINTS)
    steps, lower, upper = steps[at], lower[at], upper[at]
    few = len(records.heads) <= MOST_CURVES
    shown = list(range(len(records.heads))) if few else _extremes(upper[-1])
    figure, axis = style.panel("steps", as_label(title), 2.3 + 0.14 * -(-len(shown) // 3))
    if not few:
        low, high = np.nanpercentile(upper, [10, 90], axis=1)
        style.band(axis, steps, low, high, style.SKY, of="all heads")
        axis.plot(steps, np.nanmedian(upper, axis=1), color=style.INK, label="median")
        meaning += f" The band is the 10-90 % range of all {len(records.heads)} heads; the named heads have the largest"
        meaning += " and the smallest last values."
    for k, head in enumerate(shown):
        drawn = line(k)
        axis.plot(steps, upper[:, head], label=f"head {records.heads[head]}", linewidth=1.1, **drawn, **_marker(steps))
        if name == "margin" and few:
            of = f"interval of head {records.heads[head]}"
            style.band(axis, steps, lower[:, head], upper[:, head], drawn["color"], of)
    if style.spans_decades(2, upper):
        axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    handles, labels = axis.get_legend_handles_labels()
    named = [(handle, label) for handle, label in zip(handles, labels, strict=True) if "interval" not in label]
    axis.legend(
        *zip(*named, strict=True), loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=3, columnspacing=1.0,
        handlelength=1.8,
    )  # fmt: skip
    return DrawnFigure(title, meaning.strip(), figure)


def _ends(name: str, records: Records) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The steps with values, and the two ends of the measure there; they are equal except for the margin."""
    lower, upper = (
        records.values[end] for end in (("margin_lower", "margin_upper") if name == "margin" else (name, name))
    )
    there = np.isfinite(upper).any(axis=1)
    return records.steps[there], lower[there], upper[there]


def _extremes(last: np.ndarray) -> list[int]:
    """The heads with the largest values and those with the smallest ones."""
    order = [int(head) for head in np.argsort(last) if np.isfinite(last[head])]
    return [*order[: -EXTREME - 1 : -1], *order[:EXTREME][::-1]] if len(order) > 2 * EXTREME else order


def _spread(count: int, most: int) -> np.ndarray:
    """At most so many of the records, evenly, the last one among them."""
    return np.arange(count - 1, -1, -max(1, -(-count // most)))[::-1]


def _marker(steps: np.ndarray) -> dict[str, Any]:
    return {"marker": "o", "markersize": 2.5} if len(steps) <= 20 else {}


def _map(name: str, records: Records) -> DrawnFigure | None:
    title = described(name).title
    steps, _, values = _ends(name, records)
    count = len(records.heads)
    at = _spread(len(steps), max(8, MOST_CELLS // count))
    steps, values = steps[at], values[at]
    gaps = np.diff(steps)
    if len(steps) < 2 or (gaps != gaps[0]).any():
        return None  # cells of equal width need records at equal distances
    figure, axis = style.panel("steps", "head", 1.1 + 0.065 * count, columns=2)
    half = gaps[0] / 2
    extent = (steps[0] - half, steps[-1] + half, count - 0.5, -0.5)
    image = style.heat_map(axis, values.T, cmap="cividis", interpolation="nearest", extent=extent)
    axis.set_yticks(range(count), records.heads, fontsize=4.5)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    figure.colorbar(image, ax=axis, fraction=0.05, pad=0.02)
    what = "the upper end of the interval" if name == "margin" else "each row is a head, each column a record"
    thinned = "" if gaps[0] == np.diff(records.steps).min() else f", every {gaps[0]:,} steps"
    return DrawnFigure(f"{title}, every head", f"{what[0].upper()}{what[1:]}{thinned}.", figure)
