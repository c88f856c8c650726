"""The margin of weights over the best margin in the same norm."""

from typing import Any

import numpy as np

from attsvm._utils.checks import selection_of
from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import plain
from attsvm.svm import solve_svm
from attsvm.theory.feasibility import is_feasible


def margin_ratio(
    problem: Problem, weights: Any, selected: Any = None, norm: str | float | Norm = "frobenius"
) -> np.ndarray | float:
    """The margin over the best margin of any weights of the same norm: value · min_it A(W)_it / N(W).

    Unlike a direction error it can be compared across norms, and does not need a unique optimum.

    Parameters
    ----------
    problem, weights, selected, norm
        As for :func:`attsvm.margin`.

    Returns
    -------
    float or ndarray, shape (*batch_shape,)
        At most 1 (to rounding), which the Att-SVM direction attains; not positive if the weights do not separate.

    Raises
    ------
    ProblemError
        As for :func:`attsvm.margin`, or if the selection is not separable.

    See Also
    --------
    attsvm.margin, attsvm.direction_error
    attsvm.margin_profile : The ratios of an optimizer in several norms.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> attsvm.margin_ratio(problem, run) > 0.9
    True
    >>> round(attsvm.margin_ratio(problem, attsvm.solve_svm(problem, run)), 6)
    1.0
    """
    check_is_problem(problem)
    selected = selection_of(selected, weights)
    achieved = margin(problem, weights, selected, norm)
    solution = solve_svm(problem, selected, norm=norm)
    if not is_feasible(solution).all():
        raise ProblemError("selected: expected a separable selection, got one whose Att-SVM is infeasible")
    ratio: np.ndarray | float = plain(np.asarray(achieved) * np.asarray(solution.value))
    return ratio
