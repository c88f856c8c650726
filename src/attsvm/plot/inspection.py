"""``inspection.plot()``: one measure of every head of a transformer."""

import numpy as np
from matplotlib.axes import Axes

from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import one_axes


def inspection(inspection: object, measure: str | None, *, ax: Axes | None) -> Axes:
    """Draw it as :meth:`attsvm.inspect.Inspection.plot` says."""
    found = {**inspection.numbers, **(inspection.margins or {})}  # type: ignore[attr-defined]
    measure = next(iter(found)) if measure is None else measure
    if measure not in found:
        raise ProblemError(f"measure: expected one of {', '.join(found)}, got {measure!r}")
    layer, head = np.atleast_1d(inspection.layer), np.atleast_1d(inspection.head)  # type: ignore[attr-defined]
    if not layer.size:
        raise ProblemError("inspection: expected at least one head, got none")
    values = np.full((layer.max() + 1, head.max() + 1), np.nan)
    values[layer, head] = found[measure]
    axis = one_axes(ax)
    with style.unless_set():
        image = axis.imshow(values, cmap="viridis", aspect="auto")
        axis.figure.colorbar(image, ax=axis, label=measure.replace("_", " "))
        axis.locator_params(integer=True)
        axis.grid(False)
        axis.set_xlabel("head")
        axis.set_ylabel("layer")
    return axis
