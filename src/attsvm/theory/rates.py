"""How fast a run came: slopes against the number of steps, both logarithmic."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import theilslopes

from attsvm.errors import ProblemError
from attsvm.measures import bregman_divergence, direction_error, margin
from attsvm.norms import Lp
from attsvm.problem import Problem
from attsvm.theory.prediction import Prediction, predict_direction
from attsvm.training import Run

FLOOR = 1e-14
"""Errors below this are rounding."""
FEWEST = 4
"""Records that a slope needs."""


class Rate(NamedTuple):
    """error ~ steps^slope.

    Attributes
    ----------
    slope : float or ndarray (*batch)
        Median of the slopes between all pairs of records (Theil and Sen), which outliers and the last digits of a run
        do not move. 0 where there are fewer than 4 records, with an interval from −∞ to ∞.
    low, high : float or ndarray (*batch)
        Its confidence interval.
    points : int or int ndarray (*batch)
        Records that it rests on.
    """

    slope: Any
    low: Any
    high: Any
    points: Any


def convergence_rate(steps: Any, errors: Any, since: Any = 1, confidence: float = 0.95) -> Rate:
    """The power of the number of steps with which errors fall.

    Parameters
    ----------
    steps : int array, shape (R,)
        Best spaced evenly in the logarithm, as a run's records are.
    errors : array, shape (R, *batch)
        Those below 1e-14 are rounding and left out.
    since : int or int array (*batch)
        The first step that counts.
    confidence : float
        Of the interval, between 0 and 1.

    Returns
    -------
    Rate

    Raises
    ------
    ProblemError
        If shapes do not fit or the confidence is out of range.
    """
    steps, errors = np.asarray(steps), np.asarray(errors, dtype=np.float64)
    if steps.ndim != 1 or errors.shape[:1] != steps.shape:
        raise ProblemError(f"errors: shape {errors.shape} found, {steps.shape} and the batch axes wanted")
    if not 0 < confidence < 1:
        raise ProblemError(f"confidence: {confidence!r} found, a number between 0 and 1 wanted")
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
    """How fast a run approached its predicted direction, from when its selection was final.

    Parameters
    ----------
    problem : Problem
    run : Run
        Records enough (``record=``) past the last change of its selection.
    prediction : Prediction, optional
        By default that of :func:`attsvm.predict_direction`.

    Returns
    -------
    dict of str to Rate
        ``direction_error``; ``margin_gap``, 1 − margin ratio; and, where the norm is an ℓp norm with 1 < p < ∞,
        ``bregman_divergence``.

    Raises
    ------
    ProblemError
        As :func:`attsvm.predict_direction`, or if the predicted Att-SVM has no solution.
    """
    prediction = predict_direction(problem, run) if prediction is None else prediction
    solution, norm = prediction.solution, prediction.norm
    if np.any(np.asarray(solution.status) == "infeasible"):
        raise ProblemError("prediction: its Att-SVM is infeasible, so nothing can approach it")
    steps, weights = run.history["steps"], run.history["weights"]
    axis = (-2, -1) if problem.has_queries else (-1,)
    best = np.asarray(solution.value)
    since = _final_since(run)
    gap = 1 - np.asarray(margin(problem, weights, prediction.selected, norm)) * best
    errors = {"direction_error": direction_error(weights, solution.direction, axis=axis), "margin_gap": gap}
    if isinstance(norm, Lp) and 1 < norm.p < np.inf:
        errors["bregman_divergence"] = bregman_divergence(weights, solution.direction, norm.p, axis=axis)
    return {name: convergence_rate(steps, error, since) for name, error in errors.items()}


def _final_since(run: Run) -> np.ndarray:
    """The first recorded step from which a trial's selection is that of its end."""
    selected, steps = run.history["selected"], run.history["steps"]
    own = tuple(range(1 + len(run.batch_shape), selected.ndim))
    same = (selected == run.selected).all(axis=own)
    final = np.flip(np.logical_and.accumulate(np.flip(same, 0), axis=0), 0)
    return np.where(final.any(axis=0), steps[final.argmax(axis=0)], steps[-1])
