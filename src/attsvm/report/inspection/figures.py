"""The figures of an inspection: heads × layers heat maps, and measures against training steps."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attsvm.plot import style
from attsvm.report.drawn import Drawn, Shown, draw_each

if TYPE_CHECKING:
    from attsvm.torch.inspection import Inspection, Measure

COLOURS = "cividis"


Known = dict[tuple[object, ...], Shown]
"""Figures by their names and numbers."""


def draw_inspection(
    inspection: "Inspection",
    twin: "Inspection | None",
    steps: "Sequence[tuple[int, Inspection]]",
    known: Known | None = None,
) -> list[Shown]:
    """A heat map of each measure that is defined, and of checkpoints a line of each.

    There are no heat maps of one head, or if fewer than half of the heads are inspected: they would be nearly empty.

    Parameters
    ----------
    inspection, twin : Inspection
    steps : sequence of (int, Inspection)
    known : dict, optional
        Figures that were drawn before; those that are drawn now are added.
    """
    known = {} if known is None else known
    keys: dict[str, tuple[object, ...]] = {}
    drawers: dict[str, Callable[[], Drawn | None]] = {}
    mapped = len(inspection.heads) > 1 and np.isnan(inspection.measure("effective_rank")).mean() <= 1 / 2
    for measure in inspection.measures:
        if np.isnan(inspection.measure(measure.name)).all():
            continue
        if mapped:
            panels = [one.measure(measure.name) for one in (inspection, twin) if one is not None]
            keys[measure.name] = (measure.name, *(values.tobytes() for values in panels))
            drawers[measure.name] = partial(_map, measure, panels)
        if steps:
            name = f"{measure.name}_steps"
            values = np.stack([one.measure(measure.name).reshape(-1) for _, one in steps])
            at = [step for step, _ in steps]
            keys[name] = (name, *at, values.tobytes())
            drawers[name] = partial(_against_steps, measure, at, values)
    fresh = draw_each({name: drawer for name, drawer in drawers.items() if keys[name] not in known})
    known |= {keys[one.name]: one for one in fresh}
    return [known[key] for key in keys.values()]


def _map(measure: "Measure", panels: list[np.ndarray]) -> Drawn:
    every = np.concatenate([values[~np.isnan(values)] for values in panels])
    scale = _scale(measure, every)
    layers, heads = panels[0].shape
    height = 0.55 + len(panels) * (0.32 + style.WIDTH * 0.72 * min(1.6, max(0.22, layers / heads)))
    figure = Figure(figsize=(style.WIDTH, height))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    image = None
    names = ["trained", "randomly initialised twin"] if len(panels) > 1 else [""]
    if panels[-1].shape[1] < heads:
        names[-1] += f" ({panels[-1].shape[1]} heads)"
    for axis, name, values in zip(axes, names, panels, strict=True):
        image = axis.imshow(values, cmap=COLOURS, norm=scale, aspect="auto", interpolation="nearest")
        axis.set_title(name, loc="left")
        axis.set_ylabel("layer")
        axis.grid(False)
        axis.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.tick_params(length=0)
    axes[-1].set_xlabel("head")
    assert image is not None
    figure.colorbar(image, ax=axes.tolist(), fraction=0.05, pad=0.02)
    return Drawn(measure.name, measure.title, _sentence(measure), figure)


def _against_steps(measure: "Measure", at: list[int], values: np.ndarray) -> Drawn:
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
    return Drawn(f"{measure.name}_steps", f"{measure.title}, over training", _sentence(measure), figure)


def _sentence(measure: "Measure") -> str:
    return f"{measure.meaning[0].upper()}{measure.meaning[1:]}."


def _scale(measure: "Measure", values: np.ndarray) -> Normalize:
    if measure.name == "margin_ratio" and values.min() > 0 and values.max() > 3 * values.min():
        return LogNorm(values.min(), values.max())
    if measure.name.endswith(("share", "probability")):
        return Normalize(0, max(float(values.max()), 1e-12))
    return Normalize(float(values.min()), float(values.max()))
