"""Rates of convergence: slopes against the number of steps, both on a logarithmic scale."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import theilslopes

from attsvm.errors import ProblemError
from attsvm.measures import bregman_divergence, direction_error, margin
from attsvm.norms import Lp, Norm
from attsvm.problem import Problem
from attsvm.results import Batched, per_trial
from attsvm.theory.feasibility import is_feasible
from attsvm.theory.prediction import Prediction, predict_direction
from attsvm.theory.trained import trained_part
from attsvm.training import Run

FLOOR = 1e-14
"""Errors below this are rounding errors."""
FEWEST = 4
"""Records that a slope needs."""


@dataclass(frozen=True, eq=False, repr=False)
class Rate(Batched):
    """error ~ steps^slope.

    Attributes
    ----------
    slope : float or ndarray, shape (*batch_shape,)
        Median of the slopes between all pairs of records (Theil and Sen), which is robust to outliers. With fewer than
        4 records it is 0, with an interval from −∞ to ∞.
    low, high : float or ndarray, shape (*batch_shape,)
        The confidence interval.
    points : int or int ndarray, shape (*batch_shape,)
        Number of records used.
    """

    kind: ClassVar[str] = "rate"

    slope: float | np.ndarray = per_trial()
    low: float | np.ndarray = per_trial()
    high: float | np.ndarray = per_trial()
    points: int | np.ndarray = per_trial()

    def _summary(self) -> str:
        return f"steps^{self.slope:.3g}; interval {self.low:.3g} to {self.high:.3g}; {self.points} points"

    def _batch_summary(self) -> str:
        return f"slopes {np.min(self.slope):.3g} to {np.max(self.slope):.3g}"


def convergence_rate(steps: Any, errors: Any, since: Any = 1, confidence: float = 0.95) -> Rate:
    """The power of the number of steps with which errors decrease.

    Parameters
    ----------
    steps : int array, shape (R,)
        Preferably evenly spaced on a logarithmic scale, like the records of a run.
    errors : array, shape (R, *batch)
        Errors below 1e-14 are rounding errors and are left out.
    since : int or int array, shape (*batch,)
        The first step that is used.
    confidence : float
        The confidence of the interval, between 0 and 1.

    Returns
    -------
    Rate

    Raises
    ------
    ProblemError
        If shapes do not fit or the confidence is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> steps = np.array([1, 10, 100, 1000])
    >>> attsvm.convergence_rate(steps, 1 / steps)
    Rate(steps^-1; interval -1 to -1; 4 points)
    """
    steps, errors = np.asarray(steps), np.asarray(errors, dtype=np.float64)
    if steps.ndim != 1 or errors.shape[:1] != steps.shape:
        raise ProblemError(f"errors: expected shape {steps.shape} and the batch axes, got {errors.shape}")
    if not 0 < confidence < 1:
        raise ProblemError(f"confidence: expected a number between 0 and 1, got {confidence!r}")
    batch = errors.shape[1:]
    begin = np.broadcast_to(np.maximum(since, 1), batch).reshape(-1)
    columns = errors.reshape(len(steps), -1)
    found = [_slope(steps, columns[:, i], int(begin[i]), confidence) for i in range(columns.shape[1])]
    slope, low, high, points = (np.array(column).reshape(batch) for column in zip(*found, strict=True))
    if not batch:
        return Rate(float(slope), float(low), float(high), int(points))
    return Rate(slope, low, high, points)


def _slope(
    steps: Int[np.ndarray, " R"], errors: Float[np.ndarray, " R"], since: int, confidence: float
) -> tuple[float, float, float, int]:
    used = (steps >= since) & np.isfinite(errors) & (errors > FLOOR)
    if used.sum() < FEWEST:
        return 0.0, -np.inf, np.inf, int(used.sum())
    found = theilslopes(np.log(errors[used]), np.log(steps[used]), confidence)
    return float(found.slope), float(found.low_slope), float(found.high_slope), int(used.sum())


def observed_rates(problem: Problem, run: Run, prediction: Prediction | None = None) -> dict[str, Rate]:
    """How fast a run approaches its predicted direction, from the step at which its selection is final.

    Parameters
    ----------
    problem : Problem
    run : Run
        With enough records (``record=``) after the last change of its selection.
    prediction : Prediction, optional
        By default that of :func:`attsvm.predict_direction`.

    Returns
    -------
    dict of str to Rate
        ``direction_error``; ``margin_gap``, which is 1 − margin ratio; and ``bregman_divergence`` if the norm has one,
        see :func:`divergence_of`.

    Raises
    ------
    ProblemError
        As for :func:`attsvm.predict_direction`, or if the predicted Att-SVM has no solution.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> sorted(attsvm.observed_rates(problem, run))
    ['bregman_divergence', 'direction_error', 'margin_gap']
    """
    prediction = predict_direction(problem, run) if prediction is None else prediction
    solution, norm = prediction.solution, prediction.norm
    if not is_feasible(solution).all():
        raise ProblemError("prediction: expected a feasible Att-SVM, got an infeasible one, which has no direction")
    part = trained_part(problem, run)
    steps, weights = run.history["steps"], part.history
    axis = (-2, -1) if part.problem.has_queries else (-1,)
    gap = 1 - np.asarray(margin(part.problem, weights, prediction.selected, norm)) * np.asarray(solution.value)
    errors = {"direction_error": direction_error(weights, solution.direction, axis=axis), "margin_gap": gap}
    divergence = divergence_of(norm)
    if divergence is not None:
        errors["bregman_divergence"] = divergence(weights, solution.direction, axis=axis)
    since = _final_since(run)
    return {name: convergence_rate(steps, error, since) for name, error in errors.items()}


@singledispatch
def divergence_of(norm: Norm) -> Callable[..., np.ndarray | float] | None:
    """The directional Bregman divergence of a norm, found by its type; None if it has none.

    Returns
    -------
    callable or None
        A function of two arrays and ``axis=``. ``divergence_of.register`` adds one for another type of norm.

    Examples
    --------
    >>> from attsvm.norms import Lp, Nuclear
    >>> from attsvm.theory.rates import divergence_of
    >>> divergence_of(Nuclear()) is None
    True
    >>> divergence_of(Lp(1.5))([1.0, 0.0], [2.0, 0.0])
    0.0
    """
    return None


@divergence_of.register
def _(norm: Lp) -> Callable[..., np.ndarray | float] | None:
    return partial(bregman_divergence, p=norm.p) if 1 < norm.p < np.inf else None


def _final_since(run: Run) -> np.ndarray:
    """The first recorded step from which the selection of a trial is that of its end."""
    selected, steps = run.history["selected"], run.history["steps"]
    own = tuple(range(1 + len(run.batch_shape), selected.ndim))
    same = (selected == run.selected).all(axis=own)
    final = np.flip(np.logical_and.accumulate(np.flip(same, 0), axis=0), 0)
    return np.asarray(np.where(final.any(axis=0), steps[final.argmax(axis=0)], steps[-1]))
