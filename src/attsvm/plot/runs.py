"""The history of runs: ``run.plot()``, one quantity of several runs, and how their selection changes."""

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm._utils.checks import check_choice, check_softmax, weights_of
from attsvm.errors import ProblemError
from attsvm.measures import direction_error, margin
from attsvm.plot import style
from attsvm.plot.canvas import check_run, line, named_runs, one_axes, several_axes
from attsvm.problem import Problem, check_is_problem
from attsvm.selection import optimal_tokens
from attsvm.theory import Prediction, predict_direction
from attsvm.training import Run

LABELS = {
    "loss": "loss",
    "dropped probability": "1 − largest probability",
    "direction error": "direction error",
    "margin ratio": "margin ratio",
}
"""What an axis says of each quantity."""

BANDS: dict[str, dict[str, Any]] = {"range": {}, "interval": {"middle": np.nanmean, "limits": style.interval_of_mean}}
"""How :func:`attsvm.plot.style.spread` draws each band."""


def run(run: Run, target: Any, *, quantities: str | Sequence[str] | None, band: str, ax: Any) -> Any:
    """Draw it as :meth:`attsvm.Run.plot` says."""
    names = ["loss", "dropped probability", *(["direction error"] if target is not None else [])]
    if quantities is not None:
        names = [quantities] if isinstance(quantities, str) else list(quantities)
    elif isinstance(ax, Axes):
        names = names[-1:]
    check_choice("band", band, *BANDS)
    values = [_history(run, name, target)[0] for name in names]
    axes = several_axes(ax, len(names))
    for axis, name, of_name in zip(axes, names, values, strict=True):
        _draw(axis, run, name, of_name, 0, None, band)
    return axes[0] if len(axes) == 1 else np.array(axes)


def compare(
    problem: Problem,
    runs: Mapping[str, Run] | Run,
    target: Any = None,
    *,
    quantity: str = "direction error",
    band: str = "range",
    ax: Axes | None = None,
) -> Axes:
    """Draw one quantity of several runs against the steps. A note lists runs without this quantity, and says why.

    The legend names the norms of the predictions where these differ.

    Parameters
    ----------
    problem : Problem
        That of the runs.
    runs : dict of str to Run, or Run
        By the names of the legend.
    target : Run, Solution, Prediction or ndarray, optional
        What the direction error is measured to. By default, to the direction predicted for each run.
    quantity : {"direction error", "loss", "dropped probability", "margin ratio"}
    band : {"range", "interval"}
        As for :meth:`attsvm.Run.plot`.
    ax : Axes, optional

    Raises
    ------
    ProblemError
        If there is no run, or as :meth:`attsvm.Run.plot` for every run.

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
    check_choice("quantity", quantity, *LABELS)
    check_choice("band", band, *BANDS)
    target = problem if target is None else target
    values, without = {}, {}
    for name, run in named.items():
        try:
            values[name] = _history(run, quantity, target)
        except ProblemError as error:
            without[name] = f"runs[{name!r}]: {error}" if name else str(error)
    if not values:
        raise ProblemError(next(iter(without.values())))
    axis = one_axes(ax)
    several = len({norm for _, norm in values.values()}) > 1
    for number, (name, run) in enumerate(named.items()):
        if name in values:
            history, norm = values[name]
            _draw(axis, run, quantity, history, number, f"{name} ({norm})" if several else name, band)
    with style.unless_set():
        if any(named):
            axis.legend()
        if without:
            note = "\n".join(fill(f"not drawn: {why}", 72) for why in without.values())
            axis.set_title(note, loc="left", fontsize="x-small")
    return axis


def selection(problem: Problem, run: Run, *, ax: Axes | None = None) -> Axes:
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
    check_softmax(run, "run")
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


def _draw(axis: Axes, run: Run, name: str, values: np.ndarray, number: int, label: str | None, band: str) -> None:
    """Draw one quantity of a run, of which :func:`_history` has the values, as the line of this number."""
    steps = run.history["steps"]
    later = steps > 0  # step 0 has no place on a logarithmic axis
    steps, values = steps[later], values[later].reshape(int(later.sum()), math.prod(values.shape[1:]))
    with style.unless_set():
        if len(steps):
            look = line(number)
            style.spread(axis, steps, values, look["color"], look["linestyle"], label, **BANDS[band])
            axis.set_xscale("log")
            if name != "margin ratio":
                style.log_scale(axis, values)
        axis.set_xlabel("steps")
        axis.set_ylabel(LABELS[name])


def _history(run: Run, name: str, target: Any) -> tuple[np.ndarray, str]:
    """One quantity at each record, (R, *batch_shape), and the norm of the prediction that it needs, if it does.

    Raises ProblemError if it is unknown, or needs another target.
    """
    if not run.history["steps"].size:
        raise ProblemError("run: expected a history with records, got none")
    if name == "loss":
        return run.history["loss"], ""
    if name == "dropped probability":
        dropped = 1 - np.where(run.history["selected"] >= 0, run.history["probability"], 1.0)
        return np.asarray(dropped.max(axis=tuple(range(1 + len(run.batch_shape), dropped.ndim)))), ""
    check_choice("quantities", name, *LABELS)
    if name == "margin ratio":
        if not isinstance(target, Problem):
            raise ProblemError(
                f"target: expected the Problem of the run, for the margin ratio, got {type(target).__name__}"
            )
        found = predict_direction(target, run)
        margins = [margin(target, weights, found.selected, found.norm) for weights in run.history["weights"]]
        return np.array(margins) * np.asarray(found.solution.value), found.norm.name
    target = predict_direction(target, run) if isinstance(target, Problem) else target
    norm = target.norm.name if isinstance(target, Prediction) else ""
    direction = weights_of(target, "target", "a Problem, a Prediction, a Solution, a Run or an array of numbers")
    weights = run.history["weights"]
    own = weights.ndim - 1 - len(run.batch_shape)
    return np.asarray(direction_error(weights, direction, axis=tuple(range(-own, 0)))), norm
