"""The margin of weights over the best margin in the same norm."""

from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.results import plain
from attsvm.svm import solve_svm


def margin_ratio(
    problem: Problem, weights: Any, selected: Any, norm: str | float | Norm = "frobenius"
) -> np.ndarray | float:
    """The margin over the best margin that any weights of the same norm have: value · min_it A(W)_it / N(W).

    It compares across norms, and where the optimum is not unique. Parameters as :func:`margin`.

    Returns
    -------
    float or ndarray, shape (*lead,)
        At most 1 (to rounding), which the Att-SVM direction reaches; not positive where the weights do not separate.

    Raises
    ------
    ProblemError
        As :func:`margin`, or if the selection is not separable.
    """
    achieved = margin(problem, weights, selected, norm)
    solution = solve_svm(problem, selected, norm=norm)
    if np.any(np.asarray(solution.status) == "infeasible"):
        raise ProblemError("selected: not separable (its Att-SVM is infeasible), so no margin is the best one")
    return plain(np.asarray(achieved) * np.asarray(solution.value))
