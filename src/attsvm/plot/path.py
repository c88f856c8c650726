"""``path.plot()``: how the direction of a regularisation path approaches its Att-SVM."""

import numpy as np
from matplotlib.axes import Axes

from attsvm.plot import style
from attsvm.plot.canvas import line, one_axes
from attsvm.regularization import PenaltyPath, RegularizationPath


def regularization_path(path: RegularizationPath, *, ax: Axes | None = None) -> Axes:
    """Draw it as :meth:`attsvm.RegularizationPath.plot` says."""
    axis = _draw(path.radii, path.direction_errors, "radius", ax)
    axis.set_xscale("log")
    return axis


def penalty_path(path: PenaltyPath, *, ax: Axes | None = None) -> Axes:
    """Draw it as :meth:`attsvm.PenaltyPath.plot` says."""
    axis = _draw(path.log_penalties, path.direction_errors, "logarithm of the penalty", ax)
    axis.xaxis.set_inverted(True)  # the penalty vanishes to the right
    return axis


def _draw(x: np.ndarray, errors: np.ndarray, label: str, ax: Axes | None) -> Axes:
    axis = one_axes(ax)
    errors = errors.reshape(len(x), -1)
    errors = errors[:, np.isfinite(errors).all(axis=0)]
    with style.unless_set():
        if errors.size:
            look = line(0)
            style.spread(axis, x, errors, look["color"], look["linestyle"], marker="o", markersize=2.5)
            style.log_scale(axis, errors)
        axis.set_xlabel(label)
        axis.set_ylabel("direction error")
    return axis
