"""The figures of an inspection: each measure of every head, layer by layer, and against training steps."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from attsvm._utils.shapes import Float
from attsvm._utils.text import head_label
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import Shown
from attsvm.pages.words import kinds_of_layers, layer_labels
from attsvm.plot import style

if TYPE_CHECKING:
    from attsvm.inspect import Inspection, Measure

GREY = "#808080"

NAMED = 400
"""With more heads, each layer is one curve of the data and not each head."""

Known = dict[tuple[object, ...], Shown]
"""Figures by their names and numbers."""


def draw_inspection(
    inspection: "Inspection",
    twin: "Inspection | None",
    steps: "Sequence[tuple[int, Inspection]]",
    known: Known | None = None,
) -> list[Shown]:
    """The heads of each layer by each measure that is defined, and of checkpoints a line of each measure.

    There are none of the heads if fewer than half of them are inspected, or only one: they would be nearly empty.

    ``known``: figures that were drawn before; those that are drawn now are added.
    """
    known = {} if known is None else known
    keys: dict[str, tuple[object, ...]] = {}
    drawers: dict[str, Callable[[], DrawnFigure | None]] = {}
    mapped = len(inspection.heads) > 1 and np.isnan(inspection.measure("largest_probability")).mean() <= 1 / 2
    for measure in inspection.measures:
        if np.isnan(inspection.measure(measure.name)).all():
            continue
        if mapped:
            both = [one.measure(measure.name) for one in (inspection, twin) if one is not None]
            keys[measure.name] = (measure.name, *(values.tobytes() for values in both))
            drawers[measure.name] = partial(_layer_points, inspection.layer_names, measure, *both)
        if steps:
            name = f"{measure.name}_steps"
            values = np.stack([one.measure(measure.name).reshape(-1) for _, one in steps])
            at = [step for step, _ in steps]
            keys[name] = (name, *at, values.tobytes())
            drawers[name] = partial(_step_curves, measure, at, values)
    fresh = draw_each({name: drawer for name, drawer in drawers.items() if keys[name] not in known})
    known |= {keys[one.name]: one for one in fresh}
    return [known[key] for key in keys.values()]


def _layer_points(
    names: list[str],
    measure: "Measure",
    values: Float[np.ndarray, "layers heads"],
    twin: Float[np.ndarray, "layers heads"] | None = None,
) -> DrawnFigure:
    """A point for each head, those of a layer side by side, and a band for the randomly initialised copy."""
    (layers, heads), labels = values.shape, layer_labels(names)
    figure, axis = style.panel("layer, with its heads side by side", measure.title, 2.4)
    ends = np.array([-0.5, layers - 0.5])
    if twin is not None and not np.isnan(twin).all():
        low, middle, high = (np.full(2, np.nanpercentile(twin, share)) for share in (0, 50, 100))
        style.band(axis, ends, low, high, GREY, "random weights: range")
        axis.plot(ends, middle, color=GREY, linewidth=0.8, label="median")
        style.legend_above(axis, 2)
    places = np.arange(layers)[:, None] + 0.8 * ((np.arange(heads) + 0.5) / heads - 0.5)
    for layer in range(layers):
        for some in np.arange(heads)[:, None] if values.size <= NAMED else [np.arange(heads)]:
            name = f"layer {labels[layer]}" if len(some) > 1 else f"head {head_label(names, layer, some[0])}"
            at = places[layer, some], values[layer, some]
            axis.plot(*at, marker="o", markersize=2.5, linestyle="none", color=style.BLUE, label=name)
    top = np.unravel_index(int(np.nanargmax(values)), values.shape)
    axis.annotate(
        f"{top[0]}.{top[1]}", (places[top], values[top]), (3, 0), textcoords="offset points", va="center", fontsize=6
    )
    known = values[~np.isnan(values)]
    if measure.name == "margin_ratio" and known.min() > 0 and known.max() > 3 * known.min():
        axis.set_yscale("log")
    axis.set_xlim(*ends)
    axis.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axis.yaxis.label.set_wrap(True)
    caption = [_sentence(measure), "The head with the largest value is named.", *kinds_of_layers(names)]
    return DrawnFigure(measure.title, " ".join(caption), figure)


def _step_curves(measure: "Measure", at: list[int], values: np.ndarray) -> DrawnFigure:
    figure, axis = style.panel("training steps", measure.title, 2.2)
    low, middle, high = np.nanpercentile(values, [10, 50, 90], axis=1)
    style.band(axis, at, low, high, style.BLUE, "10 to 90 % of heads")
    axis.plot(at, middle, color=style.BLUE, marker="o", markersize=3, label="median head")
    if measure.name == "margin_ratio" and np.nanmin(values) > 0:
        axis.set_yscale("log")
    else:
        axis.ticklabel_format(axis="y", useOffset=False)
    axis.yaxis.label.set_wrap(True)
    style.legend_above(axis, 2)
    return DrawnFigure(f"{measure.title}, over training", _sentence(measure), figure)


def _sentence(measure: "Measure") -> str:
    return f"{measure.meaning[0].upper()}{measure.meaning[1:]}."
