"""One quantity of several runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import named_runs, one_axes
from attsvm.problem import Problem

if TYPE_CHECKING:
    from attsvm.training import Run


def compare(
    problem: Problem,
    runs: "Mapping[str, Run] | Run",
    target: Any = None,
    *,
    quantity: str = "direction error",
    ax: Axes | None = None,
) -> Axes:
    """Draw one quantity of several runs against the steps.

    Parameters
    ----------
    problem : Problem
        That of the runs.
    runs : dict of str to Run, or Run
        By the names of the legend.
    target : Run, Solution, Prediction or ndarray, optional
        What the direction error is measured to. By default, to the direction predicted for each run.
    quantity : {"direction error", "loss", "dropped probability"}
        One of the ``quantities`` of :meth:`attsvm.Run.plot`.
    ax : Axes, optional

    Raises
    ------
    ProblemError
        If there is no run, or as :meth:`attsvm.Run.plot`.

    See Also
    --------
    attsvm.Run.plot : One run.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.optimizers import steepest_descent
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> sign = steepest_descent(learning_rate=0.1, norm="linf")
    >>> runs = {"GD": attsvm.train(problem, steps=50), "sign": attsvm.train(problem, optimizer=sign, steps=50)}
    >>> attsvm.plot.compare(problem, runs).get_ylabel()
    'direction error'
    """
    named = named_runs(problem, runs)
    # pages of other results need no training, whose import is slow
    history: Any = import_object("attsvm.plot.run:history")
    draw: Any = import_object("attsvm.plot.run:draw")
    target = problem if target is None else target
    values = []
    for name, run in named.items():
        try:
            values.append(history(run, quantity, target))
        except ProblemError as error:
            raise ProblemError(f"runs[{name!r}]: {error}" if name else str(error)) from None
    axis = one_axes(ax)
    for number, (name, run) in enumerate(named.items()):
        draw(axis, run, quantity, values[number], number, name)
    if any(named):
        with style.unless_set():
            axis.legend()
    return axis
