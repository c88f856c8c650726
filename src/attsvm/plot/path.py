"""``path.plot()``: how the direction of a regularisation path approaches its Att-SVM."""

import numpy as np
from matplotlib.axes import Axes

from attsvm.plot import style
from attsvm.plot.canvas import line, one_axes
from attsvm.regularization import PenaltyPath, RegularizationPath


def regularization_path(path: RegularizationPath, *, ax: Axes | None = None) -> Axes:
    """Draw the direction error against the radius; of a batch, the median and the 10-90 % range.

    Parameters
    ----------
    path : RegularizationPath
    ax : Axes, optional

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> attsvm.regularization_path(problem, [1.0, 10.0, 100.0]).plot().get_xlabel()
    'radius'
    """
    axis = _draw(path.radii, path.direction_errors, "radius", ax)
    axis.set_xscale("log")
    return axis


def penalty_path(path: PenaltyPath, *, ax: Axes | None = None) -> Axes:
    """Draw the direction error against the logarithm of the penalty; of a batch, the median and the 10-90 % range."""
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
