"""Conditions of training the prediction head together with the attention: labels, slack and swapped tokens."""

from typing import Any

import numpy as np

from attsvm._utils.checks import selection_of
from attsvm._utils.shapes import Bool, Float
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.selection import selection_sets
from attsvm.svm import Solution, solve_head, solve_svm
from attsvm.theory.conditions import Conditions, Hypothesis, conditions, is_feasible, three_valued


def joint_conditions(problem: Problem, selected: Any, norm: str | float | Norm = "frobenius") -> Conditions:
    """Check the conditions of joint training of the head v and the attention for a selection.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes. The head is not used.
    selected : int array, shape (*batch, n[, Q]), or Run, Solution or Prediction
        One token per query.
    norm : str, float or Norm
        The norm of the Att-SVM; the head has that of vectors.

    Returns
    -------
    Conditions
        With the relaxed Att-SVM as ``solution``, and the max-margin head as ``head``. The names of the hypotheses and
        of their numbers:

        - ``label_margin``: Γ = 1/‖v‖ of the max-margin head v on the selected tokens is positive; 0 if the labels are
          not separable.
        - ``relaxed_feasible``: the Att-SVM is feasible with the queries of labels with slack relaxed.
        - ``score_gap``: the smallest 1 − y_i v'x_it over the other tokens of queries without slack is positive. Then
          mixing a little of another token into such a query reduces the label margin.
        - ``swap_ratio``: the largest label margin after swapping the token of one query without slack, over Γ, is
          below 1.

        Further numbers:

        - ``slack``, shape (*batch_shape, n[, Q]): the labels that are no support vectors of the head. Their queries are
          relaxed if the head grows faster.
        - ``certified``: a bound shows that every mixture of the tokens of one query without slack reduces the label
          margin, in proportion to the share of the other tokens. This is sufficient for ``score_gap`` and
          ``swap_ratio``.
        - ``plain_feasible``: the Att-SVM is feasible without relaxed queries.

    Raises
    ------
    ProblemError
        If the problem has no labels or more than two classes, or the selection or the norm does not fit.

    See Also
    --------
    attsvm.theory.Conditions : The result.
    attsvm.solve_head

    Notes
    -----
    The papers assume that the labels are separable on the selected tokens with margin Γ, and that every mixture of
    tokens with the share a of the selected one has a label margin of at most Γ − ν(1 − a). ``score_gap`` tests this for
    small shares of other tokens, ``swap_ratio`` for swapped tokens, by one SVM for each. If λ are the multipliers of
    the head, scaled to sum 1, the label margin of any tokens r is at most N*(Σ λ_i y_i r_i). As a function of one r_i
    this bound is convex, so it suffices that it is below Γ at each swapped token (``certified``).

    A label with slack does not determine the head, and swapping its token need not change the margin. Therefore its
    query is relaxed, and only has to keep other tokens from overtaking the selected one.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*: the assumptions of the
    joint regularisation path; Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.papers.examples import joint_prompt
    >>> attsvm.theory.joint_conditions(joint_prompt(True), [1, 1, 1])
    Conditions(all hypotheses hold)
    """
    check_is_problem(problem)
    problem, used, selected = problem.binary, parse_norm(norm), selection_of(selected)
    head = solve_head(problem, selected, used.of_vectors)
    solved = (is_feasible(head) == 1) & np.isfinite(head.value)
    active = problem.canonical.active if problem.has_query_axis else problem.canonical.active[..., 0]
    own = tuple(range(-active.ndim + len(problem.batch_shape), 0))
    # labels with slack need their token only not to fall behind
    slack = active & ~head.support & np.expand_dims(solved, own)
    relaxed = solve_svm(problem, selected, norm=used, relaxed=slack)
    # Γ = 1/‖v‖ for the shortest v with y_i v'x_i ≥ 1
    margin = np.divide(1.0, head.value, out=np.zeros(solved.shape), where=solved & (np.asarray(head.value) > 0))
    # the gap of scores under the head, the label margin after a swap of tokens, and after any mixture
    others, gaps = _gaps(problem, selected, head, slack)
    swaps = _swap_ratio(problem, selected, used, others, margin)
    gap = np.where(others, gaps, np.inf).min(axis=(*(axis - 1 for axis in own), -1))
    bound = np.where(others, _mixture_bounds(problem, selected, head, used), 0.0).max(
        axis=(*(axis - 1 for axis in own), -1)
    )
    gap = np.where(solved, gap, 0.0)
    return conditions(
        (
            Hypothesis("label_margin", "the label margin is positive", margin > 0, margin),
            Hypothesis(
                "relaxed_feasible", "the selected tokens can be separated from the others", is_feasible(relaxed)
            ),
            Hypothesis("score_gap", "the gap of the scores under the head is positive", gap > 0, gap),
            Hypothesis("swap_ratio", "a swap of tokens reduces the label margin", swaps < 1, swaps, "of the margin"),
        ),
        {
            "slack": slack,
            # the bound is convex in r_i, so that its largest value over mixtures is at a single token
            "certified": (margin > 0) & (bound < margin * (1 - 1e-9)),
            "plain_feasible": three_valued(is_feasible(solve_svm(problem, selected, norm=used))),
        },
        relaxed,
        head,
    )


def least_score_gap(
    problem: Problem, selected: Any, head: Solution, slack: Bool[np.ndarray, "*queries"]
) -> Float[np.ndarray, "*batch"]:
    """The smallest 1 − y_i v'x_it over the other tokens of queries without slack; ∞ if there are none."""
    others, gaps = _gaps(problem, selected, head, slack)
    own = 2 if problem.has_query_axis else 1
    return np.asarray(np.where(others, gaps, np.inf).min(axis=tuple(range(-own - 1, 0))))


def _gaps(
    problem: Problem, selected: Any, head: Solution, slack: Bool[np.ndarray, "*queries"]
) -> tuple[Bool[np.ndarray, "*queries T"], Float[np.ndarray, "*queries T"]]:
    """The other tokens of queries without slack, and 1 − y_i v'x_it of every token."""
    assert problem.labels is not None
    values = np.einsum("...td,...d->...t", problem.tokens, np.nan_to_num(head.direction)[..., None, :])
    # tokens with equal keys have the value of their mean
    values = problem.copies.mean(np.where(problem.canonical.allowed, values[..., None, :], 0.0))
    values = values if problem.has_query_axis else values[..., 0, :]
    others = problem.canonical.allowed & ~selection_sets(problem, selected)
    others = others if problem.has_query_axis else others[..., 0, :]
    return others & ~slack[..., None], 1.0 - problem.labels[..., None] * values


def _swap_ratio(
    problem: Problem, selected: np.ndarray, norm: Norm, others: np.ndarray, margin: np.ndarray
) -> Float[np.ndarray, "*batch"]:
    """The largest label margin after one swap of a token in ``others``, over the label margin."""
    axes = len(problem.query_shape) - len(problem.batch_shape)
    core = selected.shape[selected.ndim - axes :]
    largest = np.zeros(margin.shape)
    for place in np.ndindex(*core, problem.num_tokens):
        wanted = others[(..., *place)]
        if not wanted.any():
            continue
        swapped = np.broadcast_to(selected, others.shape[:-1]).copy()
        swapped[(..., *place[:-1])] = np.where(wanted, place[-1], swapped[(..., *place[:-1])])
        # 1/value is the label margin of the swapped tokens
        head = solve_head(problem, swapped, norm.of_vectors)
        value = np.where(is_feasible(head), head.value, np.inf)
        ratio = np.divide(1.0, margin * value, out=np.full(margin.shape, np.inf), where=margin > 0)
        largest = np.where(wanted, np.maximum(largest, ratio), largest)
    return np.where(margin > 0, largest, np.inf)


def _mixture_bounds(problem: Problem, selected: Any, head: Solution, norm: Norm) -> Float[np.ndarray, "*queries T"]:
    """N*(Σ λ_j y_j r_j) with r_i replaced by each token of its query, the multipliers scaled to sum 1."""
    assert problem.labels is not None
    sets = selection_sets(problem, selected)
    kept = np.einsum("...qt,...td->...qd", sets / problem.copies.number, problem.tokens)
    kept = kept if problem.has_query_axis else kept[..., 0, :]
    own = tuple(range(-len(problem.query_shape) + len(problem.batch_shape), 0))
    # λ on the simplex certify the margin of any tokens r: it is at most N*(Σ λ_j y_j r_j)
    total = head.dual.sum(axis=own, keepdims=True)
    share = problem.labels * np.nan_to_num(head.dual) / np.where(total > 0, total, 1.0)
    centre = np.sum(share[..., None] * kept, axis=tuple(axis - 1 for axis in own), keepdims=True)
    tokens = problem.tokens[..., None, :, :] if problem.has_query_axis else problem.tokens
    # r_i replaced by x_it changes the term λ_i y_i r_i of the sum only
    moved = centre[..., None, :] + share[..., None, None] * (tokens - kept[..., None, :])
    return np.asarray(norm.of_vectors.dual.values(moved, 1))
