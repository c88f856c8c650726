"""One quantity of several runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from attsvm.errors import ProblemError
from attsvm.extensions import import_object
from attsvm.plot import style
from attsvm.plot.canvas import one_axes
from attsvm.results import Result

if TYPE_CHECKING:
    from attsvm.training import Run


def compare(
    runs: "Mapping[str, Run]", target: Any = None, *, quantity: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw one quantity of several runs against the steps.

    Parameters
    ----------
    runs : dict of str to Run
        By the names of the legend.
    target, quantity
        As ``target`` and one of the ``quantities`` of :meth:`attsvm.Run.plot`. By default the direction error if there
        is a target, otherwise the loss. A problem as target gives each run the direction predicted for its optimizer.
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
    >>> attsvm.plot.compare(runs, problem).get_ylabel()
    'direction error'
    """
    if isinstance(runs, Result):
        raise ProblemError("runs: expected a dict of runs by their names, got a run; run.plot() draws one")
    if not runs:
        raise ProblemError("runs: expected at least one, got none")
    quantity = ("loss" if target is None else "direction error") if quantity is None else quantity
    draw: Any = import_object("attsvm.plot.run:draw")  # pages of other results need no training, whose import is slow
    axis = one_axes(ax)
    for number, (name, run) in enumerate(runs.items()):
        draw(axis, run, quantity, target, number, name)
    with style.applied():
        axis.legend()
    return axis
