"""Observed rates of convergence to the predicted direction, and the proved ones."""

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any

import numpy as np

from attsvm._utils.checks import check_kind, check_number, check_softmax
from attsvm.errors import ProblemError
from attsvm.measures import bregman_divergence, direction_error, margin
from attsvm.norms import Lp, Norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import plain
from attsvm.theory.conditions import is_feasible
from attsvm.theory.laws import Rates, compare_laws
from attsvm.theory.prediction import Prediction, predict_direction
from attsvm.theory.trained import trained_part
from attsvm.training import Run


def observed_rates(problem: Problem, run: Run, prediction: Prediction | None = None) -> dict[str, Rates]:
    """How fast a run approaches its predicted direction, once its selection is final.

    The laws describe the limit. They are fitted to the later half, on a logarithmic scale, of the steps since the last
    change of the selection, because the errors right after that change follow neither of them.

    Parameters
    ----------
    problem : Problem
    run : Run
        With enough records (``record=``) after the last change of its selection.
    prediction : Prediction, optional
        By default that of :func:`attsvm.predict_direction`.

    Returns
    -------
    dict of str to Rates
        Of ``direction_error``; of ``margin_gap``, which is 1 − margin ratio; and of ``bregman_divergence`` if the norm
        has one (ℓp norms have). Each holds a power law, a poly-log law, and which of them fits better.

    Raises
    ------
    ProblemError
        As for :func:`attsvm.predict_direction`, or if the predicted Att-SVM has no solution.

    See Also
    --------
    attsvm.theory.convergence_rate, attsvm.theory.compare_laws, attsvm.theory.mirror_descent_bound

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, steps=5000)
    >>> rates = attsvm.theory.observed_rates(problem, run)
    >>> sorted(rates)
    ['bregman_divergence', 'direction_error', 'margin_gap']
    >>> rates["margin_gap"].preferred
    'power'
    """
    check_is_problem(problem)
    check_kind("run", run, Run, "attsvm.train(problem)")
    check_softmax(run, "run")
    prediction = predict_direction(problem, run) if prediction is None else prediction
    solution, norm = prediction.solution, prediction.norm
    if not is_feasible(solution).all():
        raise ProblemError("prediction: expected a feasible Att-SVM, because an infeasible one has no direction")
    part = trained_part(problem, run)
    steps, weights = run.history["steps"], part.history
    axis = (-2, -1) if part.problem.has_queries else (-1,)
    # 1 − V min A(W)/N(W)
    gap = 1 - np.asarray(margin(part.problem, weights, prediction.selected, norm)) * np.asarray(solution.value)
    errors = {"direction_error": direction_error(weights, solution.direction, axis=axis), "margin_gap": gap}
    divergence = divergence_of(norm)
    if divergence is not None:
        errors["bregman_divergence"] = divergence(weights, solution.direction, axis=axis)
    # the geometric mean of the first step with the final selection and the last step
    since = np.sqrt(np.maximum(_final_since(run), 1) * float(steps[-1]))
    return {name: compare_laws(steps, error, since) for name, error in errors.items()}


def mirror_descent_bound(steps: Any, p: float) -> np.ndarray | float:
    """The rate proved for ℓp mirror descent with a constant step, up to a constant factor.

    The directional Bregman divergence between the weights and their Att-SVM is at most a constant times
    log log k / log k for p > 2, (log log k)² / log k for p = 2, and (log k)^(1 − p) for p < 2.

    Parameters
    ----------
    steps : int or int array, shape (R,)
        k, at least 3.
    p : float
        More than 1.

    Returns
    -------
    float or ndarray, shape (R,)

    Raises
    ------
    ProblemError
        If a step is below 3, where log log k is not positive, or p is not above 1.

    See Also
    --------
    attsvm.theory.observed_rates : The rate of a run.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*: the theorem on the rate of
    ℓp-AttGD, for a start in the cone of a locally optimal selection and a small step.

    Examples
    --------
    >>> from attsvm.theory import mirror_descent_bound
    >>> round(mirror_descent_bound(1_000_000, 1.5), 3)
    0.269
    """
    p = check_number("p", p, "a number above 1", lambda number: number > 1)
    k = np.asarray(steps, dtype=np.float64)
    if not (k >= 3).all():
        raise ProblemError(f"steps: expected at least 3, got {np.min(k):g}")
    log = np.log(k)
    slow = np.log(log) ** (2 if p == 2 else 1) / log
    return plain(log ** (1.0 - p) if p < 2 else slow)  # type: ignore[no-any-return]


@singledispatch
def divergence_of(norm: Norm) -> Callable[..., np.ndarray | float] | None:
    """The directional Bregman divergence of a norm, found by its type; None if it has none.

    Returns a function of two arrays and ``axis=``. ``divergence_of.register`` adds one for another type of norm.

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
    # final are the records from which on all have the selection of the end: a cumulative "and" from the last one
    same = (selected == run.selected).all(axis=own)
    final = np.flip(np.logical_and.accumulate(np.flip(same, 0), axis=0), 0)
    return np.asarray(np.where(final.any(axis=0), steps[final.argmax(axis=0)], steps[-1]))
