"""Whether weights exist that keep a selection."""

from typing import Any

import numpy as np

from attsvm.norms import Norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Status
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import Conditions, Hypothesis, conditions


def feasibility(problem: Problem, selected: Any = None, norm: str | float | Norm = "frobenius") -> Conditions:
    """Whether the Att-SVM of a selection has a solution, with a certificate.

    Parameters
    ----------
    problem : Problem
    selected : array, Run, Solution or Prediction, optional
        As for :func:`attsvm.solve_svm`; by default the optimal tokens, which need labels and a head.
    norm : str, float or Norm
        The norm of the Att-SVM. The answer does not depend on it.

    Returns
    -------
    Conditions
        With one hypothesis, ``feasible``, whose certificate is ``solution``: the optimum of the Att-SVM, or Farkas
        multipliers that prove that there is none. The number ``almost_sure`` says whether the sizes alone are
        sufficient: for generic tokens and queries every selection is feasible if d_k ≥ T − 1 and d_q is at least the
        number of queries. This is not necessary, and never holds for a prompt.

    Raises
    ------
    ProblemError
        If the selection does not fit, or there is none and the problem has no labels or no head.

    See Also
    --------
    attsvm.solve_svm
    attsvm.theory.Conditions : The result.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, Theorem 1.

    Examples
    --------
    >>> import attsvm
    >>> found = attsvm.feasibility(attsvm.datasets.random_problem(3, 4, 5, seed=0))
    >>> found.feasible, found.almost_sure
    (True, True)
    """
    check_is_problem(problem)
    queries = int(problem.canonical.active.sum(axis=(-2, -1)).max())
    most_tokens = int(problem.canonical.allowed.sum(axis=-1).max())
    almost_sure = problem.has_queries and problem.key_dim >= most_tokens - 1 and problem.query_dim >= queries
    solution = solve_svm(problem, optimal_tokens(problem) if selected is None else selected, norm=norm)
    statement = "the selected tokens can be separated from the others"
    return conditions(
        (Hypothesis("feasible", statement, is_feasible(solution)),), {"almost_sure": almost_sure}, solution
    )


def is_feasible(solution: Solution) -> np.ndarray:
    """Whether an Att-SVM has weights that satisfy its constraints; bool, with the batch axes."""
    return np.asarray(np.asarray(solution.status) != Status.INFEASIBLE)
