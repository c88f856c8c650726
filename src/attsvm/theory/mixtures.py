"""Whether a prediction head prefers one token of each sequence to all mixtures: the condition for the Att-SVM limit."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from attsvm.errors import ProblemError
from attsvm.heads import Head, parse_head
from attsvm.losses import parse_loss
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization import HeadFunction
from attsvm.svm import solve_svm
from attsvm.theory.conditions import Conditions, Hypothesis, conditions, is_feasible
from attsvm.training import Objective, parse_attention

_SHARES = np.array([1.0, 0.5, 0.25, 0.1, 0.01])  # of the other tokens in the mixtures that are tried first
_DRAWS = 64  # random mixtures of the other tokens
_REFINED = 3  # the best mixtures, from which descent starts
_NEAR = 1e-6  # nearer the optimal token, the limit there is more exact than the ratio
_LEAST_REST = 1e-12  # keeps the ratio finite at the optimal token itself


def mixture_conditions(problem: Problem, head: str | Head = "linear") -> Conditions:
    """Evaluate the conditions for the limit of the regularisation path under any prediction head.

    If each query has a token with y h(x_opt) − y h(Σ a_t x_t) ≥ c (1 − a_opt) for all attention a and some c > 0, then
    the excess of a decreasing loss lies between two multiples of the largest 1 − a_opt, for h with bounded slope.
    Among weights of norm R, 1 − a_opt is smallest for large margins, so the direction of the path converges to the
    Att-SVM of these tokens.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes.
    head : str or Head
        As for :func:`attsvm.train`.

    Returns
    -------
    Conditions
        Of the Att-SVM ``solution`` of the optimal tokens, whose direction is the limit if both hypotheses hold: it is
        ``feasible``, and the ``constant`` is positive. Further numbers:

        - ``constants``, shape (*batch_shape, n[, Q]): c_i, the smallest (y h(x_opt) − y h(Σ a_t x_t)) / (1 − a_opt)
          over all attention a of a query; ∞ for a query with one token, and for padded queries. ``constant`` is the
          smallest of them.
        - ``mixture``, shape (*batch_shape, n[, Q], T): the attention where it was found; that of the optimal token
          alone where the limit a_opt → 1 is smallest.
        - ``selected``, shape (*batch_shape, n[, Q]): the optimal tokens, argmax_t y h(x_t); -1 for padded queries.

        A constant that is not positive proves that the condition fails, by its ``mixture``. A positive one is the
        smallest that a search from tokens, pairs and random mixtures found; it is exact for heads that are convex or
        concave, such as linear and quadratic ones.

    Raises
    ------
    ProblemError
        If the problem has no labels or more than two classes, or the head does not fit or is not finite at mixtures.

    See Also
    --------
    attsvm.theory.Conditions : The result.
    attsvm.regularization_path

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*: regularisation paths
    with nonlinear heads.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> found = attsvm.theory.mixture_conditions(problem)
    >>> found.holds, round(found.constant, 3)
    (True, 0.316)
    >>> attsvm.theory.mixture_conditions(problem, attsvm.heads.Quadratic(1.0)).holds
    False
    """
    check_is_problem(problem)
    problem.check_one_head()
    problem = problem.binary
    if problem.labels is None:
        raise ProblemError("problem: expected labels -1 and 1, but it has none")
    objective, parameters = Objective.of(
        problem, parse_attention(None, problem, None), parse_head(head), parse_loss("logistic", None)
    )
    batch = problem.batch_shape
    shape = problem.canonical.allowed.shape
    constants, mixtures = np.full(shape[:-1], np.inf), np.zeros(shape)
    selected = np.full(shape[:-1], -1)
    for index in np.ndindex(*batch):
        one = problem[index] if batch else problem
        function = HeadFunction(objective.head, {name: x[index] for name, x in parameters.items()})
        means = np.broadcast_to(one.tokens[:, None], (*one.canonical.allowed.shape, one.dim))
        means = one.copies.mean(means, axes=1)
        for place in np.argwhere(one.canonical.active):
            at = (*index, *place)
            found = _worst_mixture(one, function, int(place[0]), int(place[1]), means[tuple(place)])
            constants[at], selected[at], mixtures[at] = found
    mixtures = problem.copies.of_first(mixtures) / problem.copies.number
    if not problem.has_query_axis:
        constants, selected, mixtures = constants[..., 0], selected[..., 0], mixtures[..., 0, :]
    constant = constants.min(axis=tuple(range(len(batch), constants.ndim)))
    solution = solve_svm(problem, selected)
    return conditions(
        (
            Hypothesis("feasible", "the optimal tokens can be separated from the others", is_feasible(solution)),
            Hypothesis(
                "constant", "each optimal token is better than the mixtures that were tried", constant > 0, constant
            ),
        ),
        {"constants": constants, "mixture": mixtures, "selected": selected},
        solution,
    )


class _WorstMixture(NamedTuple):
    constant: float
    selected: int
    mixture: np.ndarray  # (T,)


def _worst_mixture(problem: Problem, head: HeadFunction, sequence: int, query: int, means: np.ndarray) -> _WorstMixture:
    """The smallest ratio of one query, its optimal token, and the mixture. ``means``: its tokens."""
    assert problem.labels is not None
    label = float(problem.labels[sequence, query] if problem.has_query_axis else problem.labels[sequence])
    # of tokens with equal keys the first one, with their mean
    allowed = np.flatnonzero(problem.copies.distinct[sequence, query])
    tokens = means[allowed]

    def score(points: np.ndarray) -> np.ndarray:
        values = label * head.values(points)
        if not np.isfinite(values).all():
            raise ProblemError(f"head: expected finite outputs at mixtures, got {values[~np.isfinite(values)][0]}")
        return values

    scores = score(tokens)
    best = int(np.argmax(scores))
    away = tokens[best] - tokens

    def ratio_and_slope(free: np.ndarray) -> tuple[float, np.ndarray]:
        attention = np.exp(free - free.max())
        attention /= attention.sum()
        rest = max(float(np.sum(np.delete(attention, best))), _LEAST_REST)
        pooled = (attention @ tokens)[None]
        # c(a) = (y h(x_opt) − y h(o))/(1 − a_opt), whose derivative in a is taken to the logits of the softmax below
        ratio = (scores[best] - score(pooled)[0]) / rest
        slope = -label * tokens @ head.gradients(pooled)[0] / rest
        slope[best] += ratio / rest
        return float(ratio), attention * (slope - attention @ slope)

    constant, mixture = np.inf, np.eye(len(tokens))[best]
    if len(tokens) > 1:
        # the limit a_opt → 1 is linear in the rest, hence smallest at one token
        limits = label * away @ head.gradients(tokens[best][None])[0]
        constant = float(np.min(np.delete(limits, best)))
        for start in _candidates(len(tokens), best, lambda a: scores[best] - score(a @ tokens)):
            constant, mixture = min((constant, mixture), start, key=lambda found: found[0])
            # mixtures of a few tokens are reached as limits of the softmax
            found = minimize(ratio_and_slope, np.log(np.maximum(start[1], 1e-9)), jac=True, method="L-BFGS-B")
            attention = np.exp(found.x - found.x.max())
            attention /= attention.sum()
            if 1 - attention[best] > _NEAR:
                constant, mixture = min((constant, mixture), (float(found.fun), attention), key=lambda one: one[0])
    whole = np.zeros(problem.num_tokens)
    whole[allowed] = mixture
    return _WorstMixture(constant, int(allowed[best]), whole)


def _candidates(num_tokens: int, best: int, drop: Callable[[np.ndarray], np.ndarray]) -> list[tuple[float, np.ndarray]]:
    """The mixtures of smallest ratio among those of the optimal token with single others, pairs and random ones."""
    one = np.eye(num_tokens)
    others = np.delete(one, best, axis=0)
    pairs = (others[:, None] + others[None]).reshape(-1, num_tokens) / 2
    draws = np.random.default_rng(0).dirichlet(np.full(len(others), 0.5), size=_DRAWS) @ others
    rest = np.concatenate([others, pairs, draws])
    shares = np.repeat(_SHARES, len(rest))
    attention = (1 - shares)[:, None] * one[best] + shares[:, None] * np.tile(rest, (len(_SHARES), 1))
    ratios = drop(attention) / shares
    return [(float(ratios[i]), attention[i]) for i in np.argsort(ratios)[:_REFINED]]
