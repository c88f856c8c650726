"""The kind of convergence: to the optimal tokens, to a locally optimal selection, or to neither."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from attsvm._utils.extensions import named_by_file
from attsvm._utils.shapes import Bool, Int
from attsvm.errors import ProblemError
from attsvm.measures import attention_of, check_weights, token_logits
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Batched, per_trial
from attsvm.selection import better_support_tokens, scores, selected_tokens, selection_sets, warn_of_ties
from attsvm.svm import solve_svm
from attsvm.theory.signs import SATURATED, kinds_of_signs
from attsvm.theory.standing import norm_for
from attsvm.theory.trained import trained_part
from attsvm.training import Run, parse_map


class Kind(StrEnum):
    """Kinds of convergence.

    ============= ===========================================================================================
    kind          meaning
    ============= ===========================================================================================
    ``global``    Every query selects a token of highest score.
    ``local``     Not global, but the selection is locally optimal.
    ``not_local`` The selection is not locally optimal.
    ``undecided`` Some softmax is not saturated, so the selection can still change.
    ============= ===========================================================================================

    See Also
    --------
    attsvm.classify
    """

    GLOBAL = "global"
    LOCAL = "local"
    NOT_LOCAL = "not_local"
    UNDECIDED = "undecided"


@dataclass(frozen=True, eq=False, repr=False)
class Classification(Batched):
    """The kind of selection that weights have converged to.

    Attributes
    ----------
    kind : Kind, or ndarray of str, shape (*batch_shape,)
        ``global``, ``local``, ``not_local`` or ``undecided``.
    breaking : bool ndarray, shape (*batch_shape, n[, Q], T)
        The tokens that violate local optimality: support tokens of the selection's Att-SVM whose score is not below the
        score of the selected token. All False unless the kind is ``not_local``.
    selected : int ndarray, shape (*batch_shape, n[, Q])
        The token of largest logit; -1 for padded queries.
    largest_dropped : float or ndarray, shape (*batch_shape,)
        The largest probability of a token that is not selected.

    See Also
    --------
    attsvm.classify : Makes one.
    attsvm.theory.Kind : The kinds.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    >>> found = attsvm.classify(problem, 100 * solution.direction)
    >>> found.kind, found.selected
    (<Kind.GLOBAL: 'global'>, array([3, 1, 0]))
    """

    kind: Kind | np.ndarray = per_trial()  # type: ignore[assignment, misc]  # the field hides the base's name of files
    breaking: Bool[np.ndarray, "*queries T"] = per_trial()
    selected: Int[np.ndarray, "*queries"] = per_trial()
    largest_dropped: float | np.ndarray = per_trial()

    @classmethod
    def _kind(cls) -> str:
        return "classification"

    def _summary(self) -> str:
        return f"{self.kind}; largest dropped probability {self.largest_dropped:.3g}"


def classify(problem: Problem, weights: Any, norm: str | float | Norm | None = None) -> Classification:
    """Classify the selection of trained weights as globally, locally or not locally optimal.

    A selection is locally optimal if every support token of its Att-SVM scores strictly below the selected token of
    its query; a tie violates this. Of a run the attention is that of its map. Under the sigmoid the kind is ``global``
    if each token has a logit of the sign of its score, and ``local`` if each support token of the SVM of tokens has.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and a head.
    weights : Run, Solution, or array of shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt
        A run, or weights. Their scale matters: the softmax must be saturated.
    norm : str, float or Norm, optional
        The norm of the Att-SVM. By default that of the run, as in :func:`attsvm.predict_direction`; the Frobenius norm
        for others. Required for a run whose optimiser has no norm.

    Returns
    -------
    Classification
        With the axes of the trials, then those of the problem.

    Raises
    ------
    ProblemError
        If the problem has no labels, more than two classes or no head, the weights do not fit, or the norm of the run
        is not known.

    See Also
    --------
    attsvm.Classification : The result.
    attsvm.theory.local_convergence_conditions, attsvm.predict_direction

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Definition 2; Tarzanagh,
    Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, Definition 2.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    >>> attsvm.classify(problem, 100 * solution.direction).kind
    <Kind.GLOBAL: 'global'>
    """
    check_is_problem(problem)
    problem = problem.binary
    gamma, solved = scores(problem), problem
    warn_of_ties(problem, gamma)
    attention = attention_of
    if isinstance(weights, Run):
        if weights.by_sign:
            found, *of_tokens = kinds_of_signs(problem, weights, norm)
            return Classification(found if weights.batch_shape else Kind(str(found)), *of_tokens)
        with named_by_file():
            attention = parse_map(weights.map).attention_of
        # with fixed parameters the support tokens are those of the Att-SVM of the trained ones
        solved = trained_part(problem, weights).problem
        used, weights = norm_for(weights, norm), weights.weights
    else:
        used = parse_norm("frobenius" if norm is None else norm)
    weights = check_weights(problem, weights)
    batch_shape = trial_axes(problem, weights, "weights") + problem.batch_shape
    selected, chosen, dropped = _attended(problem, weights, attention)
    if not problem.has_query_axis:
        selected, chosen = selected[..., 0], chosen[..., 0, :]

    # of tokens with equal keys one of best score is enough: they are selected together
    best = np.max(np.where(chosen, gamma, -np.inf), axis=-1) >= gamma.max(axis=-1)
    own = tuple(range(len(batch_shape), selected.ndim))
    is_global = (best | (selected < 0)).all(axis=own)
    decided = dropped <= SATURATED
    # an Att-SVM is solved only where it decides: saturated, and not at the optimal tokens
    breaking = _breaking(solved, selected, decided & ~is_global, used)
    # Definition 2 of both papers: each support token scores below the selected token of its query
    is_local = ~breaking.any(axis=(*own, -1))
    kind = np.select(
        [~decided, is_global, is_local],
        [Kind.UNDECIDED.value, Kind.GLOBAL.value, Kind.LOCAL.value],
        Kind.NOT_LOCAL.value,
    )
    if not batch_shape:
        return Classification(Kind(str(kind)), breaking, selected, float(dropped))
    return Classification(kind, breaking, selected, dropped)


def largest_dropped(problem: Problem, weights: np.ndarray) -> np.ndarray:
    """The largest probability of a token that is not selected, of each trial."""
    return _attended(problem, weights, attention_of)[2]


def _attended(
    problem: Problem, weights: np.ndarray, attention_of: Callable[[Problem, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The selected tokens (*batch, n, Q), the same as a mask, and the largest probability of another token."""
    canonical = problem.canonical
    logits = np.where(canonical.allowed, token_logits(problem, weights), -np.inf)
    # products with equal keys may differ in the last digit
    selected = selected_tokens(problem.copies.of_first(logits))
    chosen = selection_sets(problem, selected if problem.has_query_axis else selected[..., 0])
    attention = attention_of(problem, weights)
    dropped = np.where(canonical.allowed & ~chosen, attention, 0.0).max(axis=(-3, -2, -1))
    return selected, chosen, dropped


def trial_axes(problem: Problem, weights: np.ndarray, name: str) -> tuple[int, ...]:
    """The axes of weights in front of the batch axes of the problem.

    Raises ProblemError if the axes of the weights do not end with the batch axes of the problem.
    """
    found = weights.shape[: weights.ndim - (2 if problem.has_queries else 1)]
    trials, batch = found[: len(found) - len(problem.batch_shape)], found[len(found) - len(problem.batch_shape) :]
    if batch != problem.batch_shape:
        raise ProblemError(
            f"{name}: expected axes that end with those of the problem, {problem.batch_shape}, got {found}"
        )
    return trials


def _breaking(problem: Problem, selected: np.ndarray, in_question: np.ndarray, norm: Norm) -> np.ndarray:
    """The tokens that violate local optimality, in the trials in question."""
    # a joint norm has one Att-SVM for all heads of a trial
    axes = in_question.ndim - norm.head_axes
    models = in_question.any(axis=tuple(range(axes, in_question.ndim)))
    breaking = np.zeros((*selected.shape, problem.num_tokens), dtype=bool)
    flat = selected.reshape(-1, *selected.shape[axes:])
    flat_breaking = breaking.reshape(-1, *breaking.shape[axes:])
    lead = problem.batch_shape[: len(problem.batch_shape) - norm.head_axes]
    for which, part, choices in _distinct(problem, lead, np.flatnonzero(models.reshape(-1)), flat):
        solution = solve_svm(part, choices, norm=norm)
        flat_breaking[which] = better_support_tokens(part, choices, solution.support)
    own: np.ndarray = breaking & in_question[(..., *(None,) * (breaking.ndim - in_question.ndim))]
    return own


def _distinct(
    problem: Problem, lead: tuple[int, ...], trials: np.ndarray, selected: np.ndarray
) -> Iterator[tuple[np.ndarray, Problem, np.ndarray]]:
    """Trials, their problems, with axes ``lead``, and selections. Equal selections of one problem are solved once."""
    if not trials.size:
        return
    # problems of a batch have different keys, so that each trial is solved by itself
    if lead:
        yield trials, problem[np.unravel_index(trials % int(np.prod(lead)), lead)], selected[trials]
        return
    choices, inverse = np.unique(selected[trials], axis=0, return_inverse=True)
    for i, choice in enumerate(choices):
        yield trials[inverse.reshape(-1) == i], problem, choice
