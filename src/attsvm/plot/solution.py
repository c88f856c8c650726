"""``solution.plot()`` and ``prediction.plot()``: the direction of an Att-SVM."""

import numpy as np
from matplotlib.axes import Axes

from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import ink, line, one_axes
from attsvm.results import Status
from attsvm.svm import Solution
from attsvm.theory import Prediction


def solution(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw it as :meth:`attsvm.Solution.plot` says."""
    return _draw(solution, solution.direction, ax)


def prediction(prediction: Prediction, *, ax: Axes | None = None) -> Axes:
    """Draw it as :meth:`attsvm.Prediction.plot` says."""
    own = prediction.direction
    return _draw(prediction.solution, prediction.solution.direction if own is None else own, ax)


def _draw(solution: Solution, direction: np.ndarray, ax: Axes | None) -> Axes:
    """Draw the direction of the first problem of a batch; heads side by side."""
    if not np.size(solution.status):
        raise ProblemError("solution: expected at least one problem, got none")
    number = np.size(solution.status)
    status = str(np.ravel(solution.status)[0])
    shown = direction[(0,) * len(solution.batch_shape)]
    if shown.ndim > 2:
        # several heads, divided by an empty column
        shown = np.concatenate([np.pad(head, ((0, 0), (0, 1)), constant_values=np.nan) for head in shown], axis=1)
    axis = one_axes(ax)
    with style.unless_set():
        of_batch = f", problem 1 of {number}" if number > 1 else ""
        axis.set_title(f"{solution.norm.name} Att-SVM, {status}{of_batch}")
        if status == Status.INFEASIBLE:
            axis.text(0.5, 0.5, "no direction", ha="center", va="center", transform=axis.transAxes)
            axis.set_axis_off()
        elif shown.ndim == 1:
            axis.vlines(np.arange(len(shown)), 0, shown, color=line(0)["color"], rasterized=True)
            axis.axhline(0.0, color=ink(), linewidth=0.6)
            axis.set_xlabel("entry of p")
        else:
            largest = np.nanmax(np.abs(shown)) or 1.0
            image = axis.imshow(shown, cmap="RdBu_r", vmin=-largest, vmax=largest)
            axis.figure.colorbar(image, ax=axis, shrink=0.8)
            axis.grid(False)
            axis.set_xlabel("entry of the query")
            axis.set_ylabel("entry of the key")
    return axis
