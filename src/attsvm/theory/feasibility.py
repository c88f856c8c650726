"""Whether weights exist that keep a selection."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm.norms import Norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Batched, Status, per_trial, plain, shared
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm


@dataclass(frozen=True, eq=False, repr=False)
class Feasibility(Batched):
    """Whether weights exist that keep a selection.

    Attributes
    ----------
    feasible : bool, or bool ndarray, shape (*batch_shape,)
        The answer for these data.
    solution : Solution
        The certificate: the optimum of the Att-SVM, or Farkas multipliers that prove that there is none.
    almost_sure : bool
        Whether the sizes alone are sufficient: for generic tokens and queries every selection is feasible if
        d_k ≥ T − 1 and d_q is at least the number of queries. This is not necessary, and never holds for a prompt.

    See Also
    --------
    attsvm.feasibility : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> found = attsvm.feasibility(problem, attsvm.optimal_tokens(problem))
    >>> found.feasible, found.solution.status
    (True, <Status.OPTIMAL: 'optimal'>)
    """

    kind: ClassVar[str] = "feasibility"

    feasible: bool | np.ndarray = per_trial()
    solution: Solution = per_trial()
    almost_sure: bool = shared()

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    def _summary(self) -> str:
        return f"{'feasible' if self.feasible else 'infeasible'}; {self.solution!r}"

    def _batch_summary(self) -> str:
        return f"{np.sum(self.feasible)} feasible"


def feasibility(problem: Problem, selected: Any = None, norm: str | float | Norm = "frobenius") -> Feasibility:
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
    Feasibility

    Raises
    ------
    ProblemError
        If the selection does not fit, or there is none and the problem has no labels or no head.

    See Also
    --------
    attsvm.solve_svm
    attsvm.theory.Feasibility : The result.

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
    return Feasibility(plain(is_feasible(solution)), solution, almost_sure)


def is_feasible(solution: Solution) -> np.ndarray:
    """Whether an Att-SVM has weights that satisfy its constraints; bool, with the batch axes."""
    return np.asarray(np.asarray(solution.status) != Status.INFEASIBLE)
