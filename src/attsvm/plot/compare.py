"""One quantity of several runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import one_axes

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
    # imported here, because pages of other results need no training, whose import takes more than a second
    from attsvm.plot.run import draw
    from attsvm.training import Run

    if isinstance(runs, Run):
        raise ProblemError("runs: expected a dict of runs by their names, got a run; run.plot() draws one")
    if not runs:
        raise ProblemError("runs: expected at least one, got none")
    quantity = ("loss" if target is None else "direction error") if quantity is None else quantity
    axis = one_axes(ax)
    for number, (name, run) in enumerate(runs.items()):
        draw(axis, run, quantity, target, number, name)
    with style.applied():
        axis.legend()
    return axis
