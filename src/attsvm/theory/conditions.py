"""Conditions under which gradient descent converges to the optimal tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm.measures import check_weights
from attsvm.norms import Lp
from attsvm.problem import Problem
from attsvm.results import Batched, Status, per_trial, plain, repeated
from attsvm.selection import optimal_tokens, scores
from attsvm.svm import Solution, solve_svm
from attsvm.theory.feasibility import is_feasible
from attsvm.theory.kinds import trial_axes
from attsvm.training.gradient import loss_gradient

TIED = 1e-12
"""Scores are equal if they differ by less than this part of the largest."""


@dataclass(frozen=True, eq=False, repr=False)
class GlobalConditions(Batched):
    """The conditions under which gradient descent is known to converge to the optimal tokens.

    Attributes
    ----------
    holds : bool, or bool ndarray, shape (*batch_shape,)
        Feasible, and either equal scores or a positive gradient margin.
    feasible : bool, or bool ndarray, shape (*batch_shape,)
        Whether some weights select the optimal tokens.
    equal_scores : bool, or bool ndarray, shape (*batch_shape,)
        Whether the tokens that are not optimal have equal scores, in each query.
    gradient_margin : float, or ndarray, shape (*batch_shape,)
        min_it −⟨(x_i,opt − x_it) z_i', ∇L(W_0)⟩ divided by the lengths of both, in [−1, 1]. If it is positive, the
        first step favours the optimal tokens.
    init_norm : float, or ndarray, shape (*batch_shape,)
        ‖W_0‖. Both conditions are for small initial weights; from large ones some runs still converge elsewhere.
    solution : Solution
        The certificate of ``feasible``.
    """

    kind: ClassVar[str] = "global conditions"
    nested: ClassVar[Mapping[str, type[Batched]]] = {"solution": Solution}

    holds: bool | np.ndarray = per_trial()
    feasible: bool | np.ndarray = per_trial()
    equal_scores: bool | np.ndarray = per_trial()
    gradient_margin: float | np.ndarray = per_trial()
    init_norm: float | np.ndarray = per_trial()
    solution: Solution = per_trial()

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    def _summary(self) -> str:
        reasons = {
            "infeasible": not self.feasible,
            "equal scores": self.equal_scores,
            f"gradient margin {self.gradient_margin:.3g}": True,
            f"initial norm {self.init_norm:.3g}": True,
        }
        shown = (reason for reason, known in reasons.items() if known)
        return f"{'hold' if self.holds else 'do not hold'}: {', '.join(shown)}"

    def _batch_summary(self) -> str:
        return f"hold for {np.sum(self.holds)}"


def global_convergence_conditions(problem: Problem, init: Any = None, loss: str = "logistic") -> GlobalConditions:
    """Evaluate the conditions for global convergence of gradient descent on W or p.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and a head.
    init : array, shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt, optional
        The initial weights of gradient descent; zeros by default.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    GlobalConditions
        With the axes of the trials, then those of the problem.

    Raises
    ------
    ProblemError
        If the problem has no labels ±1 or no head, or an argument does not fit.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the theorems on global convergence.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> conditions = attsvm.global_convergence_conditions(problem)
    >>> conditions.feasible, conditions.equal_scores
    (True, False)
    """
    gamma = scores(problem)
    best = optimal_tokens(problem)
    core = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    start = np.zeros(problem.batch_shape + core) if init is None else check_weights(problem, init)
    trials = trial_axes(problem, start, "init")

    solution = solve_svm(problem, best)
    chosen = (best if problem.has_query_axis else best[..., None])[..., None] == np.arange(problem.num_tokens)
    allowed = problem.canonical.allowed
    rest = allowed & ~chosen
    equal = _equal_scores(gamma if problem.has_query_axis else gamma[..., None, :], rest, allowed)
    gradient, _ = loss_gradient(problem, start, loss)
    margin = _gradient_margin(problem, gradient, chosen, rest)

    feasible, equal = (np.broadcast_to(x, trials + x.shape) for x in (is_feasible(solution), equal))
    return GlobalConditions(
        holds=plain(feasible & (equal | (margin > 0))),
        feasible=plain(feasible),
        equal_scores=plain(equal),
        gradient_margin=plain(margin),
        init_norm=plain(Lp(2.0).values(start, len(core))),
        solution=repeated(solution, trials),
    )


def _equal_scores(gamma: np.ndarray, rest: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Whether the scores of the tokens in ``rest`` are equal, in all queries of a problem."""
    highest = np.max(np.where(rest, gamma, -np.inf), axis=-1)
    lowest = np.min(np.where(rest, gamma, np.inf), axis=-1)
    largest = np.max(np.where(allowed, np.abs(gamma), 0.0), axis=-1)
    equal = ~rest.any(axis=-1) | (np.where(rest.any(axis=-1), highest - lowest, 0.0) <= TIED * largest)
    return np.asarray(equal.all(axis=(-2, -1)))


def _gradient_margin(problem: Problem, gradient: np.ndarray, chosen: np.ndarray, rest: np.ndarray) -> np.ndarray:
    keys, queries = problem.canonical.keys, problem.canonical.queries
    matrix = gradient if problem.has_queries else gradient[..., None]
    length = np.sqrt(np.sum(matrix**2, axis=(-2, -1)))
    kept = np.einsum("...qt,...tk->...qk", chosen.astype(np.float64), keys)
    away = kept[..., None, :] - keys[..., None, :, :]
    downhill = -np.einsum("...nqtk,...ke,...nqe->...nqt", away, matrix, queries)
    rows = np.linalg.norm(away, axis=-1) * np.linalg.norm(queries, axis=-1)[..., None]
    size = rows * length[..., None, None, None]
    # a token equal to the optimal one is neither favoured nor disfavoured
    relative = np.where(size > 0, downhill / np.where(size > 0, size, 1.0), 0.0)
    return np.asarray(np.min(np.where(rest, relative, 1.0), axis=(-3, -2, -1)))
