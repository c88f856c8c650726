"""Where a run has ended: at the best tokens, at a locally optimal selection, or at neither."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from scipy.special import softmax

from attsvm.errors import ProblemError
from attsvm.measures import check_weights, token_logits
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem
from attsvm.selection import better_support_tokens, scores, selected_tokens
from attsvm.svm import solve_svm

SATURATED = 1e-6
"""A softmax is saturated when no dropped token has a larger probability."""


class Kind(StrEnum):
    """Kinds of convergence."""

    GLOBAL = "global"
    LOCAL = "local"
    NOT_LOCAL = "not_local"
    UNDECIDED = "undecided"


@dataclass(frozen=True, eq=False)
class Classification:
    """To what kind of selection weights have converged.

    Attributes
    ----------
    kind : str, or ndarray of str (*lead)
        ``global``: every query selects a token of highest score; ``local``: not so, but the selection is locally
        optimal; ``not_local``: it is not; ``undecided``: some softmax is not saturated.
    breaking : bool ndarray, shape (*lead, n[, Q], T)
        The tokens that break local optimality: support tokens of the selection's Att-SVM whose score is not below the
        selected token's. All False but for ``not_local``.
    selected : int ndarray, shape (*lead, n[, Q])
        The token of largest logit; -1 for padded queries.
    largest_dropped : float or ndarray (*lead)
        The largest probability of a token that is not selected.
    """

    kind: Any
    breaking: Bool[np.ndarray, "*queries T"]
    selected: Int[np.ndarray, "*queries"]
    largest_dropped: Any

    def __repr__(self) -> str:
        if isinstance(self.kind, str):
            return f"Classification({self.kind}; largest dropped probability {self.largest_dropped:.3g})"
        counts = ", ".join(f"{np.sum(self.kind == kind.value)} {kind.value}" for kind in Kind)
        return f"Classification({counts})"


def classify(problem: Problem, weights: Any, norm: str | float | Norm = "frobenius") -> Classification:
    """Tell whether trained weights select globally, locally or not optimally, by the definitions.

    A selection is locally optimal if every support token of its Att-SVM scores strictly below the selected token of
    its query; a tie breaks it.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and a head.
    weights : array, shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt
        Their scale matters: it is what saturates the softmax.
    norm : str, float or Norm
        Of the optimiser, in which the Att-SVM is solved; "nuclear" for trained factors.

    Returns
    -------
    Classification

    Raises
    ------
    ProblemError
        If the problem has no labels ±1 or no head, or the weights do not fit.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Definition 2; Tarzanagh,
    Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, Definition 2.
    """
    norm, gamma = parse_norm(norm), scores(problem)
    weights = check_weights(problem, weights)
    trials = _trial_axes(problem, weights)
    lead = trials + problem.batch_shape
    canonical = problem.canonical
    logits = np.where(canonical.allowed, token_logits(problem, weights), -np.inf)
    selected = selected_tokens(logits)
    chosen = selected[..., None] == np.arange(problem.num_tokens)
    probability = softmax(np.where(canonical.active[..., None], logits, 0.0), axis=-1)
    dropped = np.where(canonical.allowed & ~chosen, probability, 0.0).max(axis=(-3, -2, -1))
    if not problem.has_query_axis:
        selected, chosen = selected[..., 0], chosen[..., 0, :]

    best = np.max(np.where(chosen, gamma, -np.inf), axis=-1) >= gamma.max(axis=-1)
    own = tuple(range(len(lead), selected.ndim))
    is_global = (best | (selected < 0)).all(axis=own)
    decided = dropped <= SATURATED
    breaking = np.zeros(chosen.shape, dtype=bool)
    in_question = np.flatnonzero((decided & ~is_global).reshape(-1))
    flat = selected.reshape(-1, *selected.shape[len(lead) :])
    flat_breaking = breaking.reshape(-1, *breaking.shape[len(lead) :])
    for which, part, choices in _distinct(problem, in_question, flat):
        solution = solve_svm(part, choices, norm=norm)
        flat_breaking[which] = better_support_tokens(part, choices, solution.support)
    is_local = ~breaking.any(axis=(*own, -1))
    kind = np.select(
        [~decided, is_global, is_local],
        [Kind.UNDECIDED.value, Kind.GLOBAL.value, Kind.LOCAL.value],
        Kind.NOT_LOCAL.value,
    )
    if not lead:
        return Classification(str(kind), breaking, selected, float(dropped))
    return Classification(kind, breaking, selected, dropped)


def _trial_axes(problem: Problem, weights: np.ndarray) -> tuple[int, ...]:
    lead = weights.shape[: weights.ndim - (2 if problem.has_queries else 1)]
    trials, batch = lead[: len(lead) - len(problem.batch_shape)], lead[len(lead) - len(problem.batch_shape) :]
    if batch != problem.batch_shape:
        raise ProblemError(f"weights: axes {lead} do not end with the batch axes {problem.batch_shape} of the problem")
    return trials


def _distinct(problem: Problem, trials: np.ndarray, selected: np.ndarray) -> Any:
    """Yield trials, their problems and selections, so that starts of one problem that select alike are solved once."""
    if not trials.size:
        return
    if problem.batch_shape:
        number = int(np.prod(problem.batch_shape))
        yield trials, problem[np.unravel_index(trials % number, problem.batch_shape)], selected[trials]
        return
    choices, inverse = np.unique(selected[trials], axis=0, return_inverse=True)
    for i, choice in enumerate(choices):
        yield trials[inverse.reshape(-1) == i], problem, choice
