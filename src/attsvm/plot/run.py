"""``run.plot()``: loss, probability and direction error against the steps."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm._utils.checks import weights_of
from attsvm.errors import ProblemError
from attsvm.measures import direction_error
from attsvm.plot import style
from attsvm.plot.canvas import line, several_axes
from attsvm.problem import Problem
from attsvm.theory import predict_direction
from attsvm.training import Run

LABELS = {
    "loss": "loss",
    "dropped probability": "1 − largest probability",
    "direction error": "direction error",
}


def run(run: Run, target: Any = None, *, quantities: Sequence[str] | None = None, ax: Any = None) -> Any:
    """Draw the history of a run. Of a batch, the median and the 10-90 % range over its trials.

    Parameters
    ----------
    run : Run
    target : Problem, Prediction, Solution, Run or ndarray, optional
        What the direction error is measured to: the direction that is predicted for the run on a problem, or a given
        direction.
    quantities : sequence of str, optional
        Of "loss", "dropped probability" (1 minus the largest probability, of the query where it is largest) and
        "direction error". By default the first two, and the third if there is a target. On a single ``ax``, the last
        of them.
    ax : Axes, or sequence of one Axes for each quantity, optional

    Returns
    -------
    Axes, or ndarray of Axes if there are several quantities

    Raises
    ------
    ProblemError
        If a quantity is unknown or needs a target.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> axes = attsvm.train(problem, steps=50).plot(problem)
    >>> [axis.get_ylabel() for axis in axes]
    ['loss', '1 − largest probability', 'direction error']
    """
    names = ["loss", "dropped probability", *(["direction error"] if target is not None else [])]
    names = (names[-1:] if isinstance(ax, Axes) else names) if quantities is None else list(quantities)
    values = [history(run, name, target) for name in names]
    axes = several_axes(ax, len(names))
    for axis, name, of_name in zip(axes, names, values, strict=True):
        draw(axis, run, name, of_name, 0, None)
    return axes[0] if len(axes) == 1 else np.array(axes)


def draw(axis: Axes, run: Run, name: str, values: np.ndarray, number: int, label: str | None) -> None:
    """Draw one quantity of a run, of which :func:`history` has the values, as the line of this number."""
    steps = run.history["steps"]
    if not values.size:
        raise ProblemError("run: expected a history with records, got none")
    later = steps > 0  # step 0 has no place on a logarithmic axis
    steps, values = steps[later], values[later].reshape(int(later.sum()), math.prod(values.shape[1:]))
    with style.unless_set():
        if len(steps):
            look = line(number)
            style.spread(axis, steps, values, look["color"], look["linestyle"], label)
            axis.set_xscale("log")
            style.log_scale(axis, values)
        axis.set_xlabel("steps")
        axis.set_ylabel(LABELS[name])


def history(run: Run, name: str, target: Any) -> np.ndarray:
    """One quantity at each record, (R, *batch_shape).

    Raises ProblemError if it is unknown, or the direction error has no target.
    """
    if name == "loss":
        return run.history["loss"]
    if name == "dropped probability":
        dropped = 1 - np.where(run.history["selected"] >= 0, run.history["probability"], 1.0)
        return np.asarray(dropped.max(axis=tuple(range(1 + len(run.batch_shape), dropped.ndim))))
    if name != "direction error":
        raise ProblemError(f"quantities: expected {', '.join(map(repr, LABELS))}, got {name!r}")
    target = predict_direction(target, run) if isinstance(target, Problem) else target
    direction = weights_of(target, "target", "a Problem, a Prediction, a Solution, a Run or an array of numbers")
    weights = run.history["weights"]
    own = weights.ndim - 1 - len(run.batch_shape)
    return np.asarray(direction_error(weights, direction, axis=tuple(range(-own, 0))))
