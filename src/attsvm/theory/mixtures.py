"""Whether a nonlinear head prefers one token of each sequence to all mixtures: the condition for the Att-SVM limit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize

from attsvm.errors import ProblemError
from attsvm.heads import Head, parse_head
from attsvm.losses import parse_loss
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization import HeadFunction
from attsvm.results import Batched, Status, per_trial, plain
from attsvm.svm import Solution, solve_svm
from attsvm.theory.feasibility import is_feasible
from attsvm.training.attention import parse_attention
from attsvm.training.setup import make_objective

_SHARES = np.array([1.0, 0.5, 0.25, 0.1, 0.01])
_DRAWS = 64
_REFINED = 3
_NEAR = 1e-6
_LEAST_REST = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class MixtureConditions(Batched):
    """The conditions under which the regularisation path of any head converges to the Att-SVM of single tokens.

    Attributes
    ----------
    holds : bool, or bool ndarray, shape (*batch_shape,)
        Feasible, and a positive constant.
    feasible : bool, or bool ndarray, shape (*batch_shape,)
        Whether some weights select the optimal tokens.
    constant : float, or ndarray, shape (*batch_shape,)
        The smallest of ``constants``.
    constants : ndarray, shape (*batch_shape, n[, Q])
        c_i, the smallest (y h(x_opt) − y h(Σ a_t x_t)) / (1 − a_opt) over all attention a of a query; ∞ for a query
        with one token, and for padded queries.
    mixture : ndarray, shape (*batch_shape, n[, Q], T)
        The attention where it was found; that of the optimal token alone where the limit a_opt → 1 is smallest.
    selected : int ndarray, shape (*batch_shape, n[, Q])
        The optimal tokens, argmax_t y h(x_t); -1 for padded queries.
    solution : Solution
        The certificate of ``feasible``; its direction is the limit if the conditions hold.

    See Also
    --------
    attsvm.theory.mixture_conditions : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> found = attsvm.theory.mixture_conditions(problem)
    >>> found.holds, found.selected
    (True, array([3, 1, 0]))
    """

    kind: ClassVar[str] = "mixture conditions"

    holds: bool | np.ndarray = per_trial()
    feasible: bool | np.ndarray = per_trial()
    constant: float | np.ndarray = per_trial()
    constants: np.ndarray = per_trial()
    mixture: np.ndarray = per_trial()
    selected: np.ndarray = per_trial()
    solution: Solution = per_trial()

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    def _summary(self) -> str:
        feasible = "feasible" if self.feasible else "infeasible"
        return f"{'hold' if self.holds else 'do not hold'}: {feasible}, constant {self.constant:.3g}"

    def _batch_summary(self) -> str:
        return f"hold for {np.sum(self.holds)}"


def mixture_conditions(problem: Problem, head: str | Head = "linear") -> MixtureConditions:
    """Evaluate the conditions for the limit of the regularisation path under a head of any kind.

    If each query has a token with y h(x_opt) − y h(Σ a_t x_t) ≥ c (1 − a_opt) for all attention a and some c > 0, then
    the excess of a decreasing loss lies between two multiples of the largest 1 − a_opt, for h with bounded slope.
    Among weights of norm R, 1 − a_opt is smallest for large margins, so the direction of the path converges to the
    Att-SVM of these tokens.

    Parameters
    ----------
    problem : Problem
        With labels ±1.
    head : str or Head
        As for :func:`attsvm.train`.

    Returns
    -------
    MixtureConditions
        A constant that is not positive proves that the condition fails, by its ``mixture``. A positive one is the
        smallest that a search from tokens, pairs and random mixtures found; it is exact for heads that are convex or
        concave, such as linear and quadratic ones.

    Raises
    ------
    ProblemError
        If the problem has no labels ±1, or the head does not fit or is not finite at the mixtures.

    See Also
    --------
    attsvm.theory.MixtureConditions : The result.
    attsvm.regularization_path

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*: regularization paths
    with nonlinear heads.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> attsvm.theory.mixture_conditions(problem)
    MixtureConditions(hold: feasible, constant 0.316)
    >>> attsvm.theory.mixture_conditions(problem, attsvm.heads.Quadratic(1.0)).holds
    False
    """
    check_is_problem(problem)
    problem.check_one_head()
    if problem.labels is None or problem.num_classes is not None:
        raise ProblemError("problem: expected labels -1 and 1, got none or class numbers")
    objective, parameters = make_objective(
        problem,
        parse_attention(None, problem, None),
        parse_head(head),
        parse_loss("logistic", None),
        train_head=False,
        penalized=False,
    )
    batch = problem.batch_shape
    shape = problem.canonical.allowed.shape
    constants, mixtures = np.full(shape[:-1], np.inf), np.zeros(shape)
    selected = np.full(shape[:-1], -1)
    for index in np.ndindex(*batch):
        one = problem[index] if batch else problem
        function = HeadFunction(objective.head, {name: x[index] for name, x in parameters.items()})
        for place in np.argwhere(one.canonical.active):
            at = (*index, *place)
            found = _of_query(one, function, int(place[0]), int(place[1]))
            constants[at], selected[at], mixtures[at] = found
    if not problem.has_query_axis:
        constants, selected, mixtures = constants[..., 0], selected[..., 0], mixtures[..., 0, :]
    constant = constants.min(axis=tuple(range(len(batch), constants.ndim)))
    solution = solve_svm(problem, selected)
    feasible = is_feasible(solution)
    return MixtureConditions(
        holds=plain(feasible & (constant > 0)),
        feasible=plain(feasible),
        constant=plain(constant),
        constants=constants,
        mixture=mixtures,
        selected=selected,
        solution=solution,
    )


class _OfQuery(NamedTuple):
    constant: float
    selected: int
    mixture: np.ndarray  # (T,)


def _of_query(problem: Problem, head: HeadFunction, sequence: int, query: int) -> _OfQuery:
    """The smallest ratio of one query, its optimal token, and the mixture."""
    assert problem.labels is not None
    label = float(problem.labels[sequence, query] if problem.has_query_axis else problem.labels[sequence])
    allowed = np.flatnonzero(problem.canonical.allowed[sequence, query])
    tokens = problem.tokens[sequence, allowed]

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
    return _OfQuery(constant, int(allowed[best]), whole)


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
