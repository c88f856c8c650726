"""How near weights, or factors K and Q of them, are to the best ones of their size: margin ratio and factor ratio.

The size of factors is that of steepest descent on them: the largest norm of what is one matrix.
"""

from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from attsvm._utils.checks import check_choice, parameters_of, selection_of
from attsvm._utils.shapes import Bool, Float
from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Lp, MaxOfHeads, Norm, parse_norm
from attsvm.norms.factors import induced_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import plain
from attsvm.selection import selection_sets
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import is_feasible
from attsvm.theory.standing import norm_for
from attsvm.training import Run

Keys = Float[np.ndarray, "*model H d_k m"]
Queries = Float[np.ndarray, "*model H d_q m"]
Groups = list[tuple[np.ndarray, ...]]


def margin_ratio(
    problem: Problem, weights: Any, selected: Any = None, norm: str | float | Norm | None = None
) -> np.ndarray | float:
    """The margin over the best margin of any weights of the same norm: value · min_it A(W)_it / N(W).

    Unlike a direction error it can be compared across norms, and does not need a unique optimum.

    Parameters
    ----------
    problem, weights, selected
        As for :func:`attsvm.margin`.
    norm : str, float or Norm, optional
        By default that of the limit of a run, as in :func:`attsvm.predict_direction`, that of a solution or a
        prediction, and the Frobenius norm for arrays. Required for a run whose optimiser has no norm.

    Returns
    -------
    float or ndarray, shape (*batch_shape,)
        At most 1 (to rounding), which the Att-SVM direction attains; not positive if the weights do not separate.

    Raises
    ------
    ProblemError
        As for :func:`attsvm.margin`, if the selection is not separable, or if the norm of a run is not known.

    See Also
    --------
    attsvm.margin, attsvm.direction_error
    attsvm.classify : Finds trials that are undecided, whose ratio can still change.
    attsvm.margin_profile : The ratios of an optimiser in several norms.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> attsvm.margin_ratio(problem, run) > 0.9
    True
    >>> round(attsvm.margin_ratio(problem, attsvm.solve_svm(problem, run)), 6)
    1.0
    """
    check_is_problem(problem)
    if norm is None:
        own = norm_for(weights, None) if isinstance(weights, Run) else getattr(weights, "norm", None)
        norm = own if isinstance(own, Norm) else "frobenius"
    achieved = margin(problem, weights, selected, norm)
    solution = solve_svm(problem, selection_of(selected, weights), norm=norm)
    if not is_feasible(solution).all():
        raise ProblemError("selected: expected a separable selection, got one whose Att-SVM is infeasible")
    # the largest min A(W)/N(W) of any weights is 1/V
    ratio: np.ndarray | float = plain(np.asarray(achieved) * np.asarray(solution.value))
    return ratio


def factor_ratio(
    problem: Problem,
    parameters: Any,
    selected: Any = None,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' divided by a bound on the best margin of any factors of the same size.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    The bound is the best margin in the norm M that N induces on the products, M(KQ') ≤ N(K) N(Q); see
    :func:`attsvm.norms.factors.induced_norm`. Where the Att-SVM of M has no exact solution, its lower bound counts.

    Parameters
    ----------
    problem : Problem
    parameters : Run or mapping
        "K" of shape (*batch, d_k, m) and "Q" of shape (*batch, d_q, m), such as ``run.parameters``. With ``num_heads``
        the axis of heads is the last of the batch axes.
    selected : int array, shape (*batch, n[, Q]), Run, Solution or Prediction, optional
        One token per query. A bool array is allowed if each set has one token. By default the selection of the run.
    norm : str, float or Norm
        N, the norm of the factors.
    scope : {"heads", "fused", "kq"}
        What is one matrix, as in :func:`attsvm.optimizers.spectral_descent`: each K_h and Q_h; [K_1 … K_H] and
        [Q_1 … Q_H]; or all of them together. Without ``num_heads``, "fused" is the same as "heads".

    Returns
    -------
    float or ndarray, shape (*batch_shape,)
        At most 1, without the axis of heads; 1 if the factors have the best margin and M(KQ') = N(K) N(Q). 0 if their
        size is 0; not positive if the weights do not separate. It does not depend on the common scale of K and Q.

    Raises
    ------
    ProblemError
        If the arguments do not fit, the problem is one of prompts, the selection keeps sets of tokens or is not
        separable, or no norm of products is known for N with this scope.

    See Also
    --------
    attsvm.theory.kkt_ratio, attsvm.margin_ratio

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> selected = attsvm.optimal_tokens(problem)
    >>> U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected, norm="nuclear").direction)
    >>> factors = {"K": U * np.sqrt(sigma), "Q": Vt.T * np.sqrt(sigma)}
    >>> round(attsvm.theory.factor_ratio(problem, factors, selected, "frobenius"), 6)
    1.0
    """
    own = FactorsOfRatio.of(problem, parameters, selected, norm, scope)
    problem, selected = own.problem, selection_of(selected, parameters)
    induced = induced_norm(own.norm, own.keys.shape[-1], own.scope, problem.num_heads)
    own = own.normalised()
    weights = own.keys @ own.queries.mT
    weights = weights if problem.num_heads is not None else weights[..., 0, :, :]
    length: Norm = Lp(2.0) if problem.num_heads is None else MaxOfHeads(Lp(2.0))
    # min_it A(W)_it of factors of size 1, over 1/V of the induced norm
    smallest = np.asarray(margin(problem, weights, selected, length)) * length.values(weights)
    # M(KQ') ≤ N(K) N(Q) ≤ 1, so that no factors of size 1 have a larger margin than 1/V of M
    solution = solve_svm(problem, selected, induced)
    if not is_feasible(solution).all():
        raise ProblemError("selected: expected a separable selection, got one whose Att-SVM is infeasible")
    ratio: np.ndarray | float = plain(smallest * lower_bound(solution))
    return ratio


def _scale_to_unit(problem: Problem) -> Problem:
    """The problems with a largest key and query between 1/2 and 1, which changes no ratio."""
    if problem.queries is None:
        raise ProblemError("problem: expected queries, because a prompt has no factors K and Q")
    if problem.key_groups is not None:
        raise ProblemError(f"problem: expected one without key_groups, got key_groups={problem.key_groups}")
    num_axes = len(problem.model_shape)
    # all heads have the same keys and queries
    one = problem if problem.num_heads is None else problem[(slice(None),) * num_axes + (0,)]

    def scaled(x: Any) -> np.ndarray:
        largest = np.abs(x).max(axis=tuple(range(num_axes, x.ndim)), keepdims=True)
        # a power of two changes no digit
        return np.asarray(np.ldexp(x, -np.frexp(largest)[1]))

    keys, queries = scaled(one.canonical.keys), scaled(one.queries)
    return Problem(keys, queries=queries, mask=one.mask, query_mask=one.query_mask, num_heads=problem.num_heads)


def token_of_each_query(problem: Problem, selected: Any) -> Bool[np.ndarray, "*batch n Q T"]:
    """The selection as sets of one token, and of those with its key."""
    sets = selection_sets(problem, selected)
    if sets.shape[:-3] != problem.batch_shape:
        raise ProblemError(
            f"selected: expected one selection for each problem, with batch axes {problem.batch_shape}, "
            f"got batch axes {sets.shape[:-3]}"
        )
    # tokens with equal keys are one token
    if ((sets & problem.copies.distinct).sum(axis=-1) > 1).any():
        raise ProblemError("selected: expected one token per query, got sets of several tokens")
    return sets


def read_factors(problem: Problem, given: Any) -> tuple[Keys, Queries]:
    """K and Q, with an axis of heads."""
    batch, parameters = problem.batch_shape, parameters_of(given)
    arrays = []
    for name, size in (("K", problem.key_dim), ("Q", problem.query_dim)):
        if name not in parameters:
            raise ProblemError(f'parameters: expected "K" and "Q", got {", ".join(map(str, parameters)) or "nothing"}')
        array: np.ndarray = np.asarray(parameters[name], dtype=np.float64)
        if array.ndim < 2 or array.shape[-2] != size or array.shape[:-2] != batch or array.shape[-1] == 0:
            raise ProblemError(
                f"parameters: {name}: expected shape ({', '.join(map(str, (*batch, size)))}, m) with m >= 1, "
                f"got {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ProblemError(f"parameters: {name}: expected finite numbers, got NaN or inf")
        arrays.append(array if problem.num_heads is not None else array[..., None, :, :])
    if arrays[0].shape[-1] != arrays[1].shape[-1]:
        raise ProblemError(
            f"parameters: expected as many columns of Q as of K, {arrays[0].shape[-1]}, got {arrays[1].shape[-1]}"
        )
    return arrays[0], arrays[1]


def shape_of(keys: Keys, queries: Queries) -> tuple[int, int, int, int]:
    """Return (H, d_k, d_q, m)."""
    return keys.shape[-3], keys.shape[-2], queries.shape[-2], keys.shape[-1]


class FactorsOfRatio(NamedTuple):
    """Factors of a problem at unit scale."""

    problem: Problem
    sets: Bool[np.ndarray, "*batch n Q T"]  # of one token per query
    norm: Norm
    scope: str
    keys: Keys
    queries: Queries

    @classmethod
    def of(cls, problem: Problem, parameters: Any, selected: Any, norm: str | float | Norm, scope: str) -> Self:
        """Check the arguments of :func:`factor_ratio`."""
        check_is_problem(problem)
        norm, problem = parse_norm(norm), _scale_to_unit(problem)
        check_choice("scope", scope, "heads", "fused", "kq")
        sets = token_of_each_query(problem, selection_of(selected, parameters))
        return cls(problem, sets, norm, scope, *read_factors(problem, parameters))

    def normalised(self) -> Self:
        """Scale the factors of each model to a size of 1; zeros where the size is 0.

        The size is the largest N(K) N(Q) of a pair of matrices, or N([K, Q])² where keys and queries are one matrix.
        Both matrices of a pair get the same norm, and the products of all heads are divided by the same number.
        """
        keys, queries, flat = self.keys, self.queries, self.numbers
        groups = groups_of(*shape_of(keys, queries), self.scope)
        for index in np.ndindex(keys.shape[:-3]):
            numbers = flat[index]
            # log N(K) + log N(Q) of each pair, or 2 log N([K, Q]); the largest one is the size of the model
            logarithms = np.array([_normalise(self.norm, group, numbers) for group in groups])
            most = logarithms.max()
            # both matrices of a pair get the root of its size over the largest one
            roots = np.exp(0.5 * (logarithms - most)) if most > -np.inf else np.zeros(len(groups))
            for root, group in zip(roots, groups, strict=True):
                for part in group:
                    numbers[part] *= root
        own_keys, own_queries = np.split(flat, [int(np.prod(keys.shape[-3:]))], axis=-1)
        return self._replace(keys=own_keys.reshape(keys.shape), queries=own_queries.reshape(queries.shape))

    @property
    def numbers(self) -> Float[np.ndarray, "*model number"]:
        """All numbers of K and Q of each model."""
        models = self.keys.shape[:-3]
        return np.concatenate([part.reshape(*models, -1) for part in (self.keys, self.queries)], axis=-1)


def _normalise(norm: Norm, group: tuple[np.ndarray, ...], numbers: np.ndarray) -> float:
    """Divide each matrix of a group by its norm, in place. Returns the logarithm of the size, which may be no float."""
    logarithm = 0.0
    for part in group:
        largest = float(np.abs(numbers[part]).max())
        if largest == 0:
            return -np.inf
        # the largest entry first, so that the squares in a norm neither overflow nor underflow
        numbers[part] /= largest
        own = float(norm.values(numbers[part]))
        numbers[part] /= own
        # of a pair the sum of both logarithms, of one matrix [K, Q] twice its own
        logarithm += (np.log(largest) + np.log(own)) * 2 / len(group)
    return logarithm


def lower_bound(solution: Solution) -> np.ndarray:
    """The certified lower bound on the value; 0 where there is none."""
    # V ≥ value · (1 − gap), since the gap is relative to the value
    value, gap = np.asarray(solution.value), np.asarray(solution.gap)
    return np.where(gap < 1, value, 0.0) * np.where(gap < 1, 1 - gap, 0.0)


@lru_cache(maxsize=16)
def groups_of(num_heads: int, key_dim: int, query_dim: int, columns: int, scope: str) -> Groups:
    """The places of the matrices among the numbers of K (H, d_k, m) and Q (H, d_q, m), keys and queries in pairs.

    Raises ProblemError if keys and queries of different dimensions are to be one matrix.
    """
    keys = np.arange(num_heads * key_dim * columns).reshape(num_heads, key_dim, columns)
    queries = keys.size + np.arange(num_heads * query_dim * columns).reshape(num_heads, query_dim, columns)
    if scope == "heads":
        return list(zip(keys, queries, strict=True))
    # [K_1 … K_H] and [Q_1 … Q_H], side by side
    fused = np.concatenate(list(keys), axis=1), np.concatenate(list(queries), axis=1)
    if scope == "fused":
        return [fused]
    if key_dim != query_dim:
        raise ProblemError(f'scope: expected keys and queries of one dimension for "kq", got {key_dim} and {query_dim}')
    return [(np.concatenate(fused, axis=1),)]
