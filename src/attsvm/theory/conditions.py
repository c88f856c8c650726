"""When a selection is feasible, and when gradient descent must end at the best one."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.measures import check_weights
from attsvm.norms import Lp, Norm
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens, scores
from attsvm.svm import Solution, solve_svm
from attsvm.training.gradient import loss_gradient

TIED = 1e-12
"""Scores are equal if they differ by less than this part of the largest."""


@dataclass(frozen=True, eq=False)
class Feasibility:
    """Whether weights exist that keep a selection.

    Attributes
    ----------
    almost_sure : bool
        Whether the sizes alone decide it: for generic tokens and queries every selection is feasible when
        d_k ≥ T − 1 and d_q is at least the number of queries. Sufficient, not necessary. Never for a prompt.
    feasible : bool or bool ndarray (*lead)
        The actual answer for these data.
    solution : Solution
        Its certificate: the Att-SVM's optimum, or the Farkas multipliers that prove that there is none.
    """

    almost_sure: bool
    feasible: Any
    solution: Solution


def feasibility(problem: Problem, selected: Any = None, norm: str | float | Norm = "frobenius") -> Feasibility:
    """Whether the Att-SVM of a selection has a solution: what the sizes say, and the answer with its certificate.

    Parameters
    ----------
    problem : Problem
    selected : array, optional
        As for :func:`attsvm.solve_svm`; by default the optimal tokens, for which labels and a head are needed.
    norm : str, float or Norm
        In which it is solved; the answer does not depend on it.

    Returns
    -------
    Feasibility

    Raises
    ------
    ProblemError
        If the selection does not fit, or there is none and the problem has no labels or no head.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, Theorem 1.
    """
    allowed = problem.canonical.allowed
    queries = int(problem.canonical.active.sum(axis=(-2, -1)).max())
    most_tokens = int(allowed.sum(axis=-1).max())
    almost_sure = problem.has_queries and problem.key_dim >= most_tokens - 1 and problem.query_dim >= queries
    solution = solve_svm(problem, optimal_tokens(problem) if selected is None else selected, norm=norm)
    feasible = np.asarray(solution.status) != "infeasible"
    return Feasibility(almost_sure, bool(feasible) if feasible.ndim == 0 else feasible, solution)


@dataclass(frozen=True, eq=False)
class GlobalConditions:
    """The conditions under which gradient descent is known to end at the optimal tokens.

    Attributes
    ----------
    feasible : bool or bool ndarray (*batch)
        Whether some weights select the optimal tokens.
    equal_scores : bool or bool ndarray (*batch)
        Whether the tokens that are not optimal all score alike, in each query.
    gradient_margin : float or ndarray (*lead)
        min_it −⟨(x_i,opt − x_it) z_i', ∇L(W_0)⟩ over the lengths of both, in [−1, 1]; the first step favours the
        optimal tokens where it is positive.
    init_norm : float or ndarray (*lead)
        ‖W_0‖: both conditions are for small starts, and from large ones some runs end elsewhere all the same.
    holds : bool or bool ndarray (*lead)
        Feasible, and equal scores or a positive gradient margin.
    solution : Solution
        The certificate of ``feasible``.
    """

    feasible: Any
    equal_scores: Any
    gradient_margin: Any
    init_norm: Any
    holds: Any
    solution: Solution


def global_convergence_conditions(problem: Problem, init: Any = None, loss: str = "logistic") -> GlobalConditions:
    """The conditions for global convergence of gradient descent on W or p, evaluated.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and a head.
    init : array, shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt, optional
        Where gradient descent starts; zeros by default.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    GlobalConditions

    Raises
    ------
    ProblemError
        If the problem has no labels ±1 or no head, or an argument does not fit.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the theorems on global convergence.
    """
    gamma = scores(problem)
    allowed = problem.canonical.allowed
    best = optimal_tokens(problem)
    core = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    start = np.zeros(problem.batch_shape + core) if init is None else check_weights(problem, init)
    lead = start.shape[: start.ndim - len(core)]
    if lead[len(lead) - len(problem.batch_shape) :] != problem.batch_shape:
        raise ProblemError(f"init: axes {lead} do not end with the batch axes {problem.batch_shape} of the problem")

    solution = solve_svm(problem, best)
    feasible = np.asarray(solution.status) != "infeasible"
    spelled = gamma if problem.has_query_axis else gamma[..., None, :]
    chosen = (best if problem.has_query_axis else best[..., None])[..., None] == np.arange(problem.num_tokens)
    rest = allowed & ~chosen
    highest = np.max(np.where(rest, spelled, -np.inf), axis=-1)
    lowest = np.min(np.where(rest, spelled, np.inf), axis=-1)
    largest = np.max(np.where(allowed, np.abs(spelled), 0.0), axis=-1)
    equal = ~rest.any(axis=-1) | (np.where(rest.any(axis=-1), highest - lowest, 0.0) <= TIED * largest)
    equal_scores = equal.all(axis=(-2, -1))

    gradient, _ = loss_gradient(problem, start, loss)
    margin = _gradient_margin(problem, gradient, chosen, rest)
    holds = feasible & (equal_scores | (margin > 0))
    size = Lp(2.0).values(start, len(core))
    return GlobalConditions(
        _plain(feasible), _plain(equal_scores), _plain(margin), _plain(size), _plain(holds), solution
    )


def _gradient_margin(problem: Problem, gradient: np.ndarray, chosen: np.ndarray, rest: np.ndarray) -> np.ndarray:
    keys, queries = problem.canonical.keys, problem.canonical.queries
    matrix = gradient if problem.has_queries else gradient[..., None]
    length = np.sqrt(np.sum(matrix**2, axis=(-2, -1)))
    kept = np.einsum("...qt,...tk->...qk", chosen.astype(np.float64), keys)
    away = kept[..., None, :] - keys[..., None, :, :]
    downhill = -np.einsum("...nqtk,...ke,...nqe->...nqt", away, matrix, queries)
    rows = np.linalg.norm(away, axis=-1) * np.linalg.norm(queries, axis=-1)[..., None]
    size = rows * length[..., None, None, None]
    # a token that equals the optimal one is favoured by nothing
    relative = np.where(size > 0, downhill / np.where(size > 0, size, 1.0), 0.0)
    return np.min(np.where(rest, relative, 1.0), axis=(-3, -2, -1))


def _plain(value: np.ndarray) -> Any:
    return np.asarray(value).item() if np.ndim(value) == 0 else value
