"""Token scores, optimal tokens, selections and local optimality."""

import warnings
from typing import Any

import numpy as np

from attsvm._utils.checks import check_softmax, parameters_of, selection_of, weights_of
from attsvm._utils.linear_algebra import softmax
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.problem import Problem, check_is_problem

# for the other packages of attsvm, beside the public names
__door__ = ("better_support_tokens", "is_locally_optimal", "selected_tokens", "selection_sets", "warn_of_ties")

TIE = 1e-14
"""Scores whose relative difference is at most this are equal up to rounding."""


def scores(problem: Problem, run: Any = None) -> Float[np.ndarray, "*queries T"]:
    """Value of each token for its query's label: γ_it = y_i ⟨v, x_it⟩, or −⟨∂ℓ/∂o, x_it⟩ for class labels.

    Two classes have the scores of labels ±1 with the head v_1 − v_0, unless a run is given.

    Tokens of a query with equal keys have equal attention under all weights, so that only the mean of their values
    matters. Each of them has this mean.

    Parameters
    ----------
    problem : Problem
        With ``labels`` and a ``head``.
    run : Run, optional
        Required for C ≥ 3 classes: the slope of the cross-entropy is taken at the outputs o and with the linear head of
        this run. For labels ±1 the scores do not depend on a run.

    Returns
    -------
    ndarray, shape (*batch, n[, Q], T)
        Larger values are better for the loss; ``-inf`` for tokens that the masks exclude. With a run, its batch axes
        come first.

    Raises
    ------
    ProblemError
        If the problem has no labels or no head, if it has C ≥ 3 classes and no run is given, or labels ±1 and a run,
        or if the head of the run is not linear.

    See Also
    --------
    attsvm.optimal_tokens

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Definition 1.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[1.0, 0.0], [0.0, 3.0]]], labels=[-1], head=[2.0, 1.0])
    >>> attsvm.scores(problem)
    array([[-2., -3.]])
    """
    check_is_problem(problem)
    if problem.labels is None or problem.head is None:
        missing = "labels" if problem.labels is None else 'head; problem.with_head("mean") fits one to the labels'
        raise ProblemError(f"problem: expected labels and a prediction head for token scores, but it has no {missing}")
    if run is None and problem.num_classes == 2:
        problem = problem.binary
    assert problem.labels is not None
    assert problem.head is not None
    if problem.num_classes is not None:
        if run is None:
            raise ProblemError(f"run: expected a run, because the problem has {problem.num_classes} classes")
        return _class_scores(problem, run)
    if run is not None:
        raise ProblemError("run: expected None for labels ±1, whose scores do not depend on a run, got a run")
    # ⟨v, x⟩ of each token; the queries of a sequence share it
    values = np.einsum("...td,...d->...t", problem.tokens, problem.head[..., None, :])
    if problem.has_query_axis:
        values = values[..., None, :]
    gamma = np.where(_allowed(problem), problem.labels[..., None] * values, -np.inf)
    return problem.copies.mean(gamma) if problem.has_query_axis else problem.copies.mean(gamma[..., None, :])[..., 0, :]


def _class_scores(problem: Problem, run: Any) -> Float[np.ndarray, "*queries T"]:
    """−⟨∂ℓ/∂o, x_t⟩ = ⟨v_y − Σ_c softmax(Vo)_c v_c, x_t⟩ at the outputs of a run."""
    assert problem.labels is not None
    assert problem.head is not None
    check_softmax(run, "run")
    head, num_classes = parameters_of(run, "run").get("v"), problem.head.shape[-2]
    if head is None or np.shape(head)[-2:] != (num_classes, problem.dim):
        raise ProblemError("run: expected a run with a linear head, because token scores are defined for linear heads")
    allowed = problem.canonical.allowed
    weights = weights_of(run, "run") if problem.has_queries else weights_of(run, "run")[..., None]
    pooled = softmax(problem.terms.logits(weights), allowed) @ problem.tokens
    outputs = pooled @ np.swapaxes(head, -1, -2)[..., None, :, :]
    # attention heads are added up
    probability = softmax(outputs.sum(axis=tuple(-4 for _ in problem.heads_shape), keepdims=True))
    labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
    right = labels[..., None] == np.arange(num_classes)
    # 1 − p without cancellation
    others = np.sum(np.where(right, 0.0, probability), axis=-1, keepdims=True)
    slope = np.where(right, others, -probability) @ head[..., None, :, :]
    values = problem.copies.mean(np.where(allowed, slope @ np.swapaxes(problem.tokens, -1, -2), -np.inf))
    return values if problem.has_query_axis else values[..., 0, :]


def optimal_tokens(problem: Problem) -> Int[np.ndarray, "*queries"]:
    """The token with the highest score for each query, int ndarray (*batch, n[, Q]).

    Of tokens with equal keys it is the first one. Other ties give the lowest index, with a warning, as for a head of
    zeros: the theorems assume one optimal token. Padded queries give -1.

    Raises
    ------
    ProblemError
        If the problem has no labels or no head, or more than two classes.

    See Also
    --------
    attsvm.scores, attsvm.solve_svm

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Definition 1.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[1.0, 0.0], [0.0, 3.0]]], labels=[-1], head=[2.0, 1.0])
    >>> attsvm.optimal_tokens(problem)
    array([0])
    """
    check_is_problem(problem)
    gamma = scores(problem.binary)
    warn_of_ties(problem, gamma)
    return selected_tokens(gamma)


def warn_of_ties(problem: Problem, gamma: Float[np.ndarray, "*queries T"]) -> None:
    """Warn where several tokens of a query with different keys have its highest score, up to rounding."""
    best, distinct = gamma.max(axis=-1, keepdims=True), problem.copies.distinct
    distinct = distinct if problem.has_query_axis else distinct[..., 0, :]
    counts = np.sum(distinct & np.isfinite(gamma) & (gamma >= best - TIE * np.abs(best)), axis=-1)
    tied = np.count_nonzero(counts > 1)
    if not tied:
        return
    zero = " Every score is 0: the head is zero." if not gamma[np.isfinite(gamma)].any() else ""
    warnings.warn(
        f"{tied} of {np.count_nonzero(counts)} queries have several tokens with the highest score. The first one "
        f"counts as the optimal token, but the theorems assume that there is only one.{zero}",
        stacklevel=3,
    )


def selected_tokens(
    logits: Float[np.ndarray, "*batch T"], allowed: Bool[np.ndarray, "*batch T"] | None = None
) -> Int[np.ndarray, "*batch"]:
    """The allowed token of largest logit, the lowest index on ties; -1 if no token is allowed."""
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    return np.where(np.isneginf(logits).all(axis=-1), -1, np.argmax(logits, axis=-1))


def selection_sets(problem: Problem, selected: Any) -> Bool[np.ndarray, "*batch n Q T"]:
    """A selection as sets of tokens, with a Q axis.

    ``selected``: integers, shape (*trials, *batch, n[, Q]): one token for each query. Or booleans, shape (*trials,
    *batch, n[, Q], T): the set of tokens that are kept together. The batch axes may be left out if all problems share
    the selection. Entries of padded queries are ignored. A result gives its ``selected``.

    Returns Q = 1 for a problem without a query axis. Padded queries have False only. A set with a token has all tokens
    of this query with the same key.

    Raises ProblemError if the shape or type does not fit, an index is out of range, a set is empty, or a token that the
    masks exclude is selected.
    """
    chosen = selection_of(selected)
    if chosen.dtype == bool:
        expected: tuple[int, ...] = (*problem.query_shape, problem.num_tokens)
    else:
        expected = problem.query_shape
    core = expected[len(problem.batch_shape) :]
    if chosen.shape == core != expected:
        chosen = np.broadcast_to(chosen, expected)
    if chosen.ndim < len(expected) or chosen.shape[chosen.ndim - len(expected) :] != expected:
        raise ProblemError(f"selected: expected shape {expected} of the problem, got {chosen.shape}")

    allowed, active = problem.canonical.allowed, problem.canonical.active
    sets = chosen if chosen.dtype == bool else chosen[..., None] == np.arange(problem.num_tokens)
    kept = np.asarray((sets if problem.has_query_axis else sets[..., None, :]) & allowed)
    # single tokens are right if there is one for each query in use, which is quickly counted
    if chosen.dtype == bool or np.count_nonzero(kept) != kept.size // allowed.size * np.count_nonzero(active):
        _check_tokens(problem, chosen, sets)
    return problem.copies.largest(kept)


def _check_tokens(problem: Problem, chosen: np.ndarray, sets: Bool[np.ndarray, "*queries T"]) -> None:
    """Check that each query that is in use has a token, and none that the masks exclude."""
    allowed = _allowed(problem)
    active = np.asarray(allowed.any(axis=-1))
    missing = np.asarray(active & ~sets.any(axis=-1))
    if missing.any():
        where, T = _first(missing), problem.num_tokens
        if chosen.dtype == bool:
            raise ProblemError(f"selected: expected at least one token for each query, got none for query {where}")
        raise ProblemError(f"selected: expected tokens 0..{T - 1}, got {chosen[where]} for query {where}")
    forbidden = sets & active[..., None] & ~allowed
    if forbidden.any():
        raise ProblemError(f"selected: token {_first(forbidden)[-1]} of query {_first(forbidden)[:-1]} is masked")


def better_support_tokens(
    problem: Problem, selected: Any, support: Bool[np.ndarray, "*queries T"]
) -> Bool[np.ndarray, "*queries T"]:
    """The support tokens that violate local optimality: their score is not below that of the selected token.

    ``problem``: with labels and a head. ``selected``: shape (*batch, n[, Q]). ``support``: support tokens of the
    Att-SVM of ``selected``, as in ``Solution.support``.

    All False if and only if the selection is locally optimal. A tie violates it.

    Raises ProblemError as for :func:`scores`, and if ``selected`` has sets: local optimality is defined for single
    tokens.

    References: Tarzanagh, Li, Zhang and Oymak (2023), Definition 2.
    """
    problem, sets = problem.binary, selection_sets(problem, selected)
    if ((sets & problem.copies.distinct).sum(axis=-1) > 1).any():
        raise ProblemError(
            "selected: expected one token per query, got sets, for which local optimality is not defined"
        )
    gamma = scores(problem)
    if not problem.has_query_axis:
        sets = sets[..., 0, :]
    of_selected = np.max(np.where(sets, gamma, -np.inf), axis=-1, keepdims=True)
    return np.asarray(np.asarray(support, dtype=bool) & ~sets & _allowed(problem) & (gamma >= of_selected))


def is_locally_optimal(
    problem: Problem, selected: Any, support: Bool[np.ndarray, "*queries T"]
) -> Bool[np.ndarray, "*batch"]:
    """Whether every support token scores strictly below the selected token of its query.

    The parameters, errors and reference are those of :func:`better_support_tokens`.
    """
    axes = tuple(range(-3 if problem.has_query_axis else -2, 0))
    return np.asarray(~better_support_tokens(problem, selected, support).any(axis=axes))


def _allowed(problem: Problem) -> Bool[np.ndarray, "*queries T"]:
    allowed = problem.canonical.allowed
    return allowed if problem.has_query_axis else allowed[..., 0, :]


def _first(found: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(found)[0])
