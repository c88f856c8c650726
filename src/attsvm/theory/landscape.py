"""Conditions under which the training loss has no stationary point at finite weights."""

from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, identity

from attsvm.measures import token_logits
from attsvm.problem import Problem, check_is_problem
from attsvm.selection import optimal_tokens, selection_sets
from attsvm.svm import solve_svm
from attsvm.theory.conditions import Conditions, Hypothesis, conditions, is_feasible
from attsvm.theory.smoothness import scores_of_queries

ORDERED = 1e-9
"""Logits are ordered like the scores if no difference is below minus this part of the largest."""


def landscape_conditions(problem: Problem) -> Conditions:
    r"""Test two conditions under which the loss in W or p has no stationary point at finite weights.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and a head, which is not trained.

    Returns
    -------
    Conditions
        With the Att-SVM of the optimal tokens. If the only hypothesis, ``no_stationary_point``, holds, one of the two
        conditions does, up to rounding and to the slack of support tokens, 1e-6. Then the gradient is not zero at any
        weights. The numbers:

        - ``all_support``: the condition of the papers: the optimal tokens are feasible, and every other token is a
          support token of their Frobenius Att-SVM.
        - ``ordered``: some weights order the logits of every query like its scores, and not all of them equally. This
          is weaker than ``all_support``.
        - ``order``, of the shape of the weights: such weights, the certificate of ``ordered``: the loss decreases along
          them everywhere. Zero if there are none.

    Raises
    ------
    ProblemError
        If the problem has no labels, more than two classes or no head.

    See Also
    --------
    attsvm.theory.Conditions : The result.
    attsvm.theory.global_convergence_conditions

    Notes
    -----
    Along weights V with logits h_it = k_it'Vz_i the loss changes at the rate

    .. math:: \langle -\nabla L(W), V\rangle = \frac{1}{2n}\sum_i |\ell'(f_i)| \sum_{s,t} a_{is} a_{it}
              (\gamma_{is} - \gamma_{it})(h_{is} - h_{it}).

    If V orders the logits of each query like its scores, no term is negative, whatever the attention a is, and one is
    positive. So the gradient is nowhere zero, for every decreasing loss. If every token is a support token, the Att-SVM
    solution is such a V: h_i,opt exceeds the other logits, which are equal. The same V serves if all other scores are
    equal. If a query is not a linear combination of the other queries, and no keys replace the tokens, V = y_i v u'
    with u'z_i = 1 and u'z_j = 0 is such a V: a problem with linearly independent queries has no stationary point.

    A linear program finds V, or shows that there is none. Then there may be stationary points.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the benign landscape of
    over-parameterised problems, in which every token is a support token. The condition on the order is ours.

    Examples
    --------
    >>> import attsvm
    >>> few = attsvm.theory.landscape_conditions(attsvm.datasets.random_problem(2, 3, 4, seed=0))
    >>> many = attsvm.theory.landscape_conditions(attsvm.datasets.random_problem(10, 6, 2, seed=0))
    >>> few.holds, many.holds
    (True, False)
    """
    check_is_problem(problem)
    problem = problem.binary
    best = optimal_tokens(problem)
    solution = solve_svm(problem, best)
    chosen = selection_sets(problem, best)
    rest = problem.canonical.allowed & ~chosen
    support = solution.support if problem.has_query_axis else solution.support[..., None, :]
    # then all other logits are equal under the Att-SVM, below that of the optimal token
    all_support = (is_feasible(solution) == 1) & (support | ~rest).all(axis=(-3, -2, -1)) & rest.any(axis=(-3, -2, -1))

    core = problem.weights_shape
    order = np.zeros(problem.batch_shape + core)
    for index in np.ndindex(problem.batch_shape):
        order[index] = _order(problem[index] if index else problem)
    ordered = order.any(axis=tuple(range(-len(core), 0)))
    statement = "weights order the logits of every query like its scores, or every token is a support token"
    return conditions(
        (Hypothesis("no_stationary_point", statement, all_support | ordered),),
        {"all_support": all_support, "ordered": ordered, "order": order},
        solution,
    )


def _order(problem: Problem) -> np.ndarray:
    """Weights of length 1 whose logits are ordered like the scores; zero if there are none.

    Maximises Σ s over 0 ≤ s ≤ 1 and (k_j − k_j+1)'Vz ≥ s, j and j + 1 neighbours in the order of the scores. Tokens of
    equal scores may have any order, so each is compared with all tokens of the next higher score.
    """
    rows = _chain(problem)
    if not len(rows):
        return np.zeros(_core(problem))
    count, size = rows.shape
    # V is bounded, since only its direction matters; 1e3 row lengths leave room for s = 1
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    matrix = hstack([csr_array(-rows), identity(count)], format="csr")
    limits = [(-1e3, 1e3)] * size + [(0.0, 1.0)] * count
    # max Σ s, as a linear program in (V, s)
    found = linprog(np.r_[np.zeros(size), -np.ones(count)], A_ub=matrix, b_ub=np.zeros(count), bounds=limits)
    weights = found.x[:size].reshape(_core(problem)) if found.status == 0 else np.zeros(_core(problem))
    return weights / np.linalg.norm(weights) if _is_ordered(problem, weights) else np.zeros(_core(problem))


def _core(problem: Problem) -> tuple[int, ...]:
    return problem.weights_shape


def _chain(problem: Problem) -> np.ndarray:
    """The rows (k_s − k_t) z' for each token t and each token s of the next higher score, flat."""
    keys, queries, _, active = problem.canonical
    gamma = scores_of_queries(problem)
    rows: list[Any] = []
    for i, q in np.argwhere(active):
        kept = np.flatnonzero(problem.copies.distinct[i, q])
        # tokens of equal scores are one level; each is compared with the level above
        levels, level = np.unique(gamma[i, q, kept], return_inverse=True)
        for k in range(1, len(levels)):
            for s in kept[level == k]:
                rows += [np.outer(keys[i, s] - keys[i, t], queries[i, q]).ravel() for t in kept[level == k - 1]]
    return np.array(rows).reshape(len(rows), problem.key_dim * problem.query_dim)


def _is_ordered(problem: Problem, weights: np.ndarray) -> bool:
    """Whether the logits of weights are ordered like the scores, with a difference that is not rounding."""
    allowed, gamma = problem.canonical.allowed, scores_of_queries(problem)
    logits = token_logits(problem, weights)
    # every token of a higher score must have a logit that is not lower
    higher = allowed[..., :, None] & allowed[..., None, :] & (gamma[..., :, None] > gamma[..., None, :])
    difference = np.where(higher, logits[..., :, None] - logits[..., None, :], 0.0)
    largest = np.abs(difference).max()
    return bool(largest > ORDERED and difference.min() >= -ORDERED * largest)
