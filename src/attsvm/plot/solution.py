"""``solution.plot()`` and ``prediction.plot()``: the direction of an Att-SVM."""

import numpy as np
from matplotlib.axes import Axes

from attsvm.displays import PLOTS
from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import one_axes
from attsvm.svm import Solution
from attsvm.theory import Prediction


def solution(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw the direction: a matrix as a heat map, a prompt as bars. Of a batch, the first problem.

    Parameters
    ----------
    solution : Solution
    ax : Axes, optional

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).plot().get_title()
    'frobenius Att-SVM, optimal'
    """
    first = solution if not solution.batch_shape else solution[(0,) * len(solution.batch_shape)]
    if first.direction.ndim > 2:
        raise ProblemError("solution: expected one head, got weights of several; index the problem by its heads")
    axis = one_axes(ax)
    with style.applied():
        of_batch = f", problem 1 of {np.size(solution.status)}" if solution.batch_shape else ""
        axis.set_title(f"{solution.norm.name} Att-SVM, {first.status}{of_batch}")
        if not np.isfinite(first.direction).all():
            axis.text(0.5, 0.5, "no direction", ha="center", va="center", transform=axis.transAxes)
            axis.set_axis_off()
        elif first.direction.ndim == 1:
            axis.bar(np.arange(len(first.direction)), first.direction, color=style.BLUE)
            axis.set_xlabel("entry of p")
        else:
            largest = np.abs(first.direction).max() or 1.0
            image = axis.imshow(first.direction, cmap="RdBu_r", vmin=-largest, vmax=largest)
            axis.figure.colorbar(image, ax=axis, shrink=0.8)
            axis.grid(False)
            axis.set_xlabel("entry of the query")
            axis.set_ylabel("entry of the key")
    return axis


def prediction(prediction: Prediction, *, ax: Axes | None = None) -> Axes:
    """Draw the direction of the predicted Att-SVM, see :func:`attsvm.plot.solution.solution`."""
    return solution(prediction.solution, ax=ax)


PLOTS.register(Solution.kind, solution)
PLOTS.register(Prediction.kind, prediction)
