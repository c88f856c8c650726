"""The number of steps before which no training selects a token: weights of bounded length have bounded margins.

A query gives its token the attention 1 − δ if its margins m_t satisfy Σ_t exp(−m_t) ≤ δ/(1 − δ). By Gibbs' inequality
Σ_t q_t m_t ≥ log((1 − δ)/δ) + H(q) then holds for every q on the simplex, H the entropy: a margin over the mean token
Σ_t q_t k_t. So the weights are at least as far from W_0 as the Att-SVM with these margins over each token, where H = 0,
and over a few mean tokens, with the q = softmax(−m) of the solution before. Steps with N(ΔW_k) ≤ η_k need Σ η_k to be
as large.

m tokens with equal keys are one token with the sum of their attention. Its margin over m' tokens with another key is at
least log((1 − δ)/δ) + log(m'/m).
"""

from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.checks import check_number, selection_of, weights_of
from attsvm._utils.linear_algebra import softmax
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.norms.factors import induced_norm
from attsvm.optimizers import normalized_gradient_descent, parse_optimizer, rule_of
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Status, plain
from attsvm.svm import solve_svm
from attsvm.theory.ratios import lower_bound, read_factors, token_of_each_query
from attsvm.theory.schedules import Schedule, rates_of

Chosen = Bool[np.ndarray, "*batch n Q T"]  # one token of each query
MOST_STEPS = 1_000_000
"""Steps of a schedule that are added up. A bound of more steps ends here, and remains valid."""

MEAN_TOKENS = 4
"""Mean tokens of each query. With four, the bounds of the problems in the tests are at least 94 % of those with all."""

ROUNDING = 1e-9
"""Part of a length by which the bounds of steps are made smaller, because lengths are sums of rounded numbers."""


class EarliestSelection(NamedTuple):
    """When queries can be selected at the earliest.

    Attributes
    ----------
    steps : ndarray, shape (*batch, n[, Q])
        No run whose steps have these lengths gives a token of the query the attention 1 − δ before this step: 0 if it
        may have it at the start, and ∞ if no weights give it. Bounds of more than a million steps of a schedule end
        there.
    length : ndarray, shape (*batch, n[, Q])
        The length Σ η_k of the path to this step, which does not depend on the learning rate.
    all_steps, all_length : float or ndarray, shape (*batch,)
        The same until all queries are selected.

    See Also
    --------
    attsvm.theory.earliest_selection : Returns one.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[2.0, 0.0], [0.0, 0.0]]], labels=[1.0], head=[1.0, 0.0])
    >>> attsvm.theory.earliest_selection(problem, selected=[0]).steps
    array([23.])
    """

    steps: Float[np.ndarray, "*queries"]
    length: Float[np.ndarray, "*queries"]
    all_steps: float | Float[np.ndarray, "*batch"]
    all_length: float | Float[np.ndarray, "*batch"]


def earliest_selection(
    problem: Problem,
    optimizer: Any = None,
    learning_rate: Schedule | None = None,
    *,
    selected: Any = None,
    norm: str | float | Norm | None = None,
    factored: bool = False,
    init: Any = None,
    miss: float = 0.01,
) -> EarliestSelection:
    """The first step at which training can select a token of each query, whatever the loss and the labels are.

    A query selects a token if it gives it, with all tokens of an equal key, the attention 1 − δ. Steps with
    N(W_{k+1} − W_k) ≤ η_k need

        η_0 + η_1 + … ≥ min N(W − W_0) over the weights W with Σ q_t m_t ≥ log((1 − δ)/δ) + H(q) − log m

    for every distribution q over the other tokens. m_t are their margins, H(q) is the entropy, and m the number of
    tokens with the key of the selected one. With q on single tokens and on a few mixtures this is an Att-SVM, whose
    certified bound is returned. It is at least value · log((1 − δ)/δ) − N(W_0) if m = 1. For factors, W = KQ', both
    lengths together have to be large enough: (N(K_0) + Σ η_k)(N(Q_0) + Σ η_k) ≥ this minimum in the norm that N induces
    on products; or ½(‖(K_0, Q_0)‖ + Σ η_k)², if η_k is the length of a step of both factors together in the Frobenius
    norm.

    Parameters
    ----------
    problem : Problem
    optimizer : str or Optimizer, optional
        One whose steps have the length η_k in a norm: ``normalized_gradient_descent`` (the default),
        ``steepest_descent``, ``spectral_descent``, ``row_descent`` or ``column_descent``, with ``momentum`` or without.
    learning_rate : float or callable, optional
        η, or a function of the step. By default the optimizer's own.
    selected : int array, shape (*batch, n[, Q]), Run, Solution or Prediction, optional
        The token of each query. By default any token counts, and the bounds are the smallest of all tokens.
    norm : str, float or Norm, optional
        In place of an optimizer: any steps with N(W_{k+1} − W_k) ≤ η_k; of factors, of each of them.
    factored : bool
        Whether the steps are made on K and Q.
    init : array, Run, or (K, Q), optional
        W_0, by default 0; or K_0 and Q_0, which factors need.
    miss : float
        δ, between 0 and 1/2.

    Returns
    -------
    EarliestSelection
        A bound for each query, and for all queries of a problem together.

    Raises
    ------
    ProblemError
        If an argument does not fit, the steps of the optimiser have no known length (Adam, relative or decayed steps,
        normalisation by a running average), or no norm of products is known for factors.

    See Also
    --------
    attsvm.solve_svm : With ``required`` and ``center``.
    attsvm.theory.observed_rates

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    >>> run = attsvm.train(problem, learning_rate=0.1, steps=400, record=range(401))
    >>> bound = attsvm.theory.earliest_selection(problem, learning_rate=0.1, selected=run)
    >>> probability = run.history["probability"]
    >>> first = (probability.min(axis=1) >= 0.99).argmax()
    >>> int(bound.all_steps), int(first)
    (178, 257)
    """
    check_is_problem(problem)
    miss = check_number("miss", miss, "a number between 0 and 1/2", lambda x: 0 < x < 0.5)
    of_steps, rate, together = _steps(optimizer, learning_rate, norm)
    if factored and not problem.has_queries:
        raise ProblemError("factored: expected False for a prompt, which has no factors")
    chosen = None if selected is None else token_of_each_query(problem, selection_of(selected))
    # log((1 − δ)/δ)
    need = float(np.log1p(-miss) - np.log(miss))
    if factored:
        length, all_length = _path_of_factors(problem, of_steps, chosen, need, init, together=together)
    else:
        length, all_length = _distances(problem, of_steps, chosen, need, init)
    length = length if problem.has_query_axis else length[..., 0]
    first, first_of_all = _reached(rate, length), _reached(rate, all_length)
    return EarliestSelection(first, length, plain(first_of_all), plain(all_length))


def _steps(
    optimizer: Any, learning_rate: Schedule | None, norm: str | float | Norm | None
) -> tuple[Norm, Schedule, bool]:
    """The norm of steps, their length in it, and whether that is one norm over all parameters.

    Raises ProblemError if this is not known.
    """
    if norm is not None:
        if optimizer is not None:
            raise ProblemError(f"norm: expected None with an optimiser, got {norm!r}")
        if learning_rate is None:
            raise ProblemError("learning_rate: expected a number or a function of the step, because norm is given")
        rate = normalized_gradient_descent(learning_rate).rule.rate  # checked
        assert rate is not None
        return parse_norm(norm), rate, False
    options = {} if learning_rate is None else {"learning_rate": learning_rate}
    parsed = parse_optimizer(optimizer, **options)
    found = rule_of(parsed).unit_steps()
    if found is None or found.decays or not found.exact:
        raise ProblemError(
            "optimizer: expected normalized_gradient_descent, steepest_descent, spectral_descent, row_descent or "
            f"column_descent with steps of length learning_rate, got {parsed!r}; for other steps, give their norm and "
            "learning_rate"
        )
    return found.norm, found.rate, found.together


def _path_of_factors(
    problem: Problem, norm: Norm, chosen: Chosen | None, need: float, init: Any, *, together: bool
) -> tuple[Float[np.ndarray, "*batch n Q"], Float[np.ndarray, "*batch"]]:
    """The lengths of paths of K and of Q, or of both together."""
    if init is None:
        raise ProblemError("init: expected (K, Q) for factors")
    given = dict(zip("KQ", init, strict=True)) if isinstance(init, tuple | list) and len(init) == 2 else init
    keys, queries = read_factors(problem, given)
    heads = problem.num_heads is not None
    first, second = (norm.values(part if heads else part[..., 0, :, :]) for part in (keys, queries))
    lengths = _distances(problem, induced_norm(norm, keys.shape[-1]), chosen, need, None)

    def path(products: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        if together:
            # ½(r + S)² ≥ products, with the nuclear norm of KQ' at most ½(‖K‖² + ‖Q‖²)
            rest = np.sqrt(2 * products) - np.hypot(first, second)
        else:
            # (a + S)(b + S) ≥ products
            rest = 0.5 * (np.sqrt((first - second) ** 2 + 4 * products) - first - second)
        return np.asarray(np.maximum(rest, 0.0))

    each = path(lengths[0], first[..., None, None], second[..., None, None])
    return each, path(lengths[1], first, second)


def _distances(
    problem: Problem, norm: Norm, chosen: Chosen | None, need: float, init: Any
) -> tuple[Float[np.ndarray, "*batch n Q"], Float[np.ndarray, "*batch"]]:
    """Lower bounds on N(W − W_0) until each query is selected, and all of them; 0 for padded queries."""
    keys, queries, allowed, _ = problem.canonical
    batch, (n, Q, T) = problem.batch_shape, allowed.shape[-3:]
    # one problem for each query and each of its possible tokens
    shape = (*batch, n, Q, T if chosen is None else 1)
    token = np.arange(T) if chosen is None else chosen.argmax(axis=-1)[..., None]
    token = np.broadcast_to(token, shape)
    possible = np.take_along_axis(np.broadcast_to(allowed, (*batch, n, Q, T)), token, axis=-1)

    def each(array: np.ndarray, own: int) -> np.ndarray:
        """An array over (*batch, n, Q, token, …) as one over the problems that are solved."""
        return np.asarray(np.broadcast_to(array, shape + array.shape[array.ndim - own :])[possible])

    center = center_of_each = None
    if init is not None:
        center = weights_of(init, "init")
        own = problem.weights_shape
        if center.shape not in (own, batch + own):
            raise ProblemError(f"init: expected shape {batch + own}, got {center.shape}")
        if not np.isfinite(center).all():
            raise ProblemError("init: expected finite numbers, got NaN or inf")
        center_of_each = each(np.broadcast_to(center, batch + own).reshape(*batch, 1, 1, 1, *own), len(own))
    one = _Queries(
        each(keys[..., :, None, None, :, :], 2)[:, None],
        each(queries[..., None, :], 1)[:, None, None] if problem.has_queries else None,
        each(allowed[..., None, :], 1)[:, None, None],
    )
    lengths = np.full(shape, np.inf)
    lengths[possible] = one.least_distance(token[possible][:, None, None], norm, need, center_of_each)
    # of several possible tokens the one for which the least change of W_0 is enough
    single = np.where(allowed.any(axis=-1), lengths.min(axis=-1), 0.0)
    single = np.broadcast_to(single, (*batch, n, Q))
    longest = single.max(axis=(-2, -1), initial=0.0)
    if chosen is None:  # all queries are selected only after each of them
        return single, longest
    if problem.num_heads is not None:  # which may share one norm: with a margin over each single token
        picks = chosen.argmax(axis=-1) if problem.has_query_axis else chosen[..., 0, :].argmax(axis=-1)
        offsets = np.log(np.broadcast_to(problem.copies.number, chosen.shape))
        # log((1 − δ)/δ) + log(m'/m) over m' tokens with another key
        margins = need + offsets - np.take_along_axis(offsets, chosen.argmax(axis=-1)[..., None], axis=-1)
        solution = solve_svm(problem, picks, norm, required=margins.reshape(*picks.shape, T), center=center)
        return single, np.maximum(_lower_values(solution), longest)
    whole = _Queries(keys, queries if problem.has_queries else None, allowed)
    together = whole.least_distance(np.broadcast_to(token[..., 0], (*batch, n, Q)), norm, need, center)
    return single, np.maximum(together, longest)


class _Queries(NamedTuple):
    """Queries of some problems that share their weights."""

    keys: Float[np.ndarray, "*batch n T d_k"]
    queries: Float[np.ndarray, "*batch n Q d_q"] | None
    allowed: Bool[np.ndarray, "*batch n Q T"]

    def least_distance(
        self, token: Int[np.ndarray, "*batch n Q"], norm: Norm, need: float, center: np.ndarray | None
    ) -> Float[np.ndarray, "*batch"]:
        """A certified lower bound on N(W − W_0), slightly smaller, for weights that give each query its token.

        ∞ where no weights do.
        """
        problem, number = self._problem(), self.allowed.shape[-2]
        copies, places = problem.copies, token[..., None]
        # m tokens with the key of the selected one have its attention together
        need = need - np.log(np.take_along_axis(np.broadcast_to(copies.number, self.allowed.shape), places, axis=-1))
        of = np.arange(self.allowed.shape[-1]) if copies.first is None else copies.first
        of = np.broadcast_to(of, self.allowed.shape)
        others = self.allowed & (of != np.take_along_axis(of, places, axis=-1))
        margins = np.broadcast_to(need + np.log(copies.number), self.allowed.shape)
        extended, best = self, np.zeros(token.shape[:-2])
        for _ in range(MEAN_TOKENS + 1):
            problem = extended._problem()
            own, required = (token, margins) if self.queries is not None else (token[..., 0], margins[..., 0, :])
            solution = solve_svm(problem, own, norm, required=required, center=center)
            # each set of these inequalities is necessary, so that the largest bound counts
            best = np.maximum(best, _lower_values(solution))
            weights = np.nan_to_num(solution.direction)
            weights = weights if self.queries is not None else weights[..., None]
            # the deepest inequality at these weights, q = softmax(−m)
            images = self._queries() @ weights.mT[..., None, :, :]
            logits = np.where(others, images @ self.keys.mT, -np.inf)
            q = np.nan_to_num(softmax(logits))
            # Σ q_t m_t ≥ need + H(q): a token of key Σ q_t k_t with this margin
            means, entropy = q @ self.keys, -np.sum(q * np.log(np.where(q > 0, q, 1.0)), axis=-1, keepdims=True)
            # a mean token is one of its own query only
            mine = np.eye(number, dtype=bool) & others.any(axis=-1, keepdims=True)
            extended = _Queries(
                np.concatenate([extended.keys, means], axis=-2),
                self.queries,
                np.concatenate([extended.allowed, np.broadcast_to(mine, (*token.shape, number))], axis=-1),
            )
            margins = np.concatenate([margins, np.broadcast_to(need + entropy, (*token.shape, number))], axis=-1)
        return best

    def _queries(self) -> np.ndarray:
        return np.ones((*self.allowed.shape[:-1], 1)) if self.queries is None else self.queries

    def _problem(self) -> Problem:
        if self.queries is None:
            return Problem(self.keys, mask=self.allowed[..., 0, :])
        return Problem(self.keys, queries=self.queries, mask=self.allowed, query_mask=self.allowed.any(axis=-1))


def _lower_values(solution: Any) -> np.ndarray:
    """The certified lower bounds on the values, slightly smaller; ∞ where no weights exist."""
    infeasible = np.asarray(solution.status) == Status.INFEASIBLE
    return np.where(infeasible, np.inf, (1 - ROUNDING) * lower_bound(solution))


def _reached(rate: Schedule, lengths: Float[np.ndarray, "*some"]) -> Float[np.ndarray, "*some"]:
    """The first k for which the sum of the first k rates is at least a length."""
    if not callable(rate):
        return np.ceil(lengths / float(rate))
    goal = lengths.max(where=np.isfinite(lengths), initial=0.0)
    sums = np.zeros(1)
    while sums[-1] < goal and len(sums) < MOST_STEPS:
        rates = np.abs(rates_of(rate, len(sums) - 1, min(2 * len(sums) + 1000, MOST_STEPS)))
        sums = np.concatenate([sums, sums[-1] + np.cumsum(rates)])
    # larger sums make the bound smaller, so that rounding does not spoil it
    first = np.searchsorted(sums * (1 + ROUNDING), lengths).astype(np.float64)
    return np.where(np.isinf(lengths), np.inf, np.minimum(first, MOST_STEPS))
