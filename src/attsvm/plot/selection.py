"""How the selection of a run changes."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import check_run, line, one_axes
from attsvm.problem import Problem, check_is_problem
from attsvm.selection import optimal_tokens

if TYPE_CHECKING:
    from attsvm.training import Run


def selection(problem: Problem, run: "Run", *, ax: Axes | None = None) -> Axes:
    """Draw the share of queries that select their optimal token, and of those whose selection is final.

    Of a batch, the shares of all its queries.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and a linear head.
    run : Run
    ax : Axes, optional

    Raises
    ------
    ProblemError
        If the optimal tokens are not known, or the run has another problem's shape.

    See Also
    --------
    attsvm.plot.attention

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> attsvm.plot.selection(problem, attsvm.train(problem, steps=50)).get_ylabel()
    'share of the queries'
    """
    check_is_problem(problem)
    check_run(run)
    optimal = optimal_tokens(problem)
    chosen, steps = run.history["selected"], run.history["steps"]
    if chosen.shape[chosen.ndim - optimal.ndim :] != optimal.shape:
        raise ProblemError(
            f"run: expected selections of shape (..., {str(optimal.shape)[1:-1]}), got {chosen.shape[1:]}"
        )
    if not chosen.size:
        raise ProblemError("run: expected a history with records, got none")
    active = chosen[-1] >= 0
    shares = {"optimal": chosen == optimal, "as at the end": chosen == chosen[-1]}
    axis = one_axes(ax)
    with style.unless_set():
        for number, (name, hits) in enumerate(shares.items()):
            share = np.array([row[active].mean() for row in hits])
            axis.plot(steps[steps > 0], share[steps > 0], label=name, **line(number))
        axis.set_xscale("log")
        axis.set_ylim(-0.03, 1.03)
        axis.set_xlabel("steps")
        axis.set_ylabel("share of the queries")
        axis.legend()
    return axis
