"""How near factors K and Q are to the best ones of their size: the factor ratio and the KKT ratio.

Their size is that of steepest descent on them: the largest norm of what is one matrix.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attsvm._utils.checks import parameters_of, selection_of
from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Lp, MaxOfHeads, Norm, parse_norm
from attsvm.norms.base import project_on_ball, refuse_joint_parts
from attsvm.norms.factors import induced_norm
from attsvm.optimizers.matrix_directions import MatrixScope, read_matrix_scope
from attsvm.problem import Problem, check_is_problem
from attsvm.results import plain
from attsvm.selection import selection_sets
from attsvm.svm import Solution, solve_svm
from attsvm.theory.feasibility import is_feasible

Groups = list[tuple[np.ndarray, ...]]


@lru_cache(maxsize=16)
def groups_of(num_heads: int, key_dim: int, query_dim: int, columns: int, scope: MatrixScope) -> Groups:
    """The places of the matrices among the numbers of K (H, d_k, m) and Q (H, d_q, m), keys and queries in pairs.

    Raises ProblemError if keys and queries of different dimensions are to be one matrix.
    """
    keys = np.arange(num_heads * key_dim * columns).reshape(num_heads, key_dim, columns)
    queries = keys.size + np.arange(num_heads * query_dim * columns).reshape(num_heads, query_dim, columns)
    if scope == "heads":
        return list(zip(keys, queries, strict=True))
    fused = np.concatenate(list(keys), axis=1), np.concatenate(list(queries), axis=1)
    if scope == "fused":
        return [fused]
    if key_dim != query_dim:
        raise ProblemError(f'scope: expected keys and queries of one dimension for "kq", got {key_dim} and {query_dim}')
    return [(np.concatenate(fused, axis=1),)]


@dataclass(frozen=True)
class _OfGroups(Norm):
    """A norm of vectors that hold K and Q, made of the norms of their matrices."""

    of: Norm
    sizes: tuple[int, int, int, int]  # (H, d_k, d_q, m)
    scope: MatrixScope  # {"heads", "fused", "kq"}

    def __post_init__(self) -> None:
        refuse_joint_parts(self)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        num_heads, key_dim, query_dim, columns = self.sizes
        return (num_heads * (key_dim + query_dim) * columns,)

    @property
    def places(self) -> list[np.ndarray]:
        """The places of each matrix."""
        return [part for group in groups_of(*self.sizes, self.scope) for part in group]

    def each(self, x: Any) -> np.ndarray:
        """The norm of each matrix."""
        flat = np.asarray(x, dtype=np.float64).ravel()
        return np.array([float(self.of.values(flat[place])) for place in self.places])

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """√k times that of a matrix, for k matrices."""
        places = self.places
        return float(np.sqrt(len(places))) * max(self.of.frobenius_factor(place.shape) for place in places)


@dataclass(frozen=True)
class LargestOfGroups(_OfGroups):
    """The largest norm of the matrices."""

    @property
    def name(self) -> str:
        """Such as "largest spectral of factors"."""
        return f"largest {self.of.name} of factors"

    @property
    def dual(self) -> "SumOfGroups":
        """The sum of the dual norms."""
        return SumOfGroups(self.of.dual, self.sizes, self.scope)

    def value(self, x: Any, axes: int = 1) -> float:
        return float(self.each(x).max())

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """All matrices are projected on balls of one radius. The dual norms of what is cut off sum to the step."""
        return np.asarray(x - project_on_ball(self.dual, x.ravel(), step).reshape(x.shape))


@dataclass(frozen=True)
class SumOfGroups(_OfGroups):
    """The sum of the norms of the matrices."""

    @property
    def name(self) -> str:
        """Such as "sum of nuclear of factors"."""
        return f"sum of {self.of.name} of factors"

    @property
    def dual(self) -> LargestOfGroups:
        """The largest of the dual norms."""
        return LargestOfGroups(self.of.dual, self.sizes, self.scope)

    def value(self, x: Any, axes: int = 1) -> float:
        return float(self.each(x).sum())

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """Apply the proximal map of each matrix."""
        flat = np.array(x, dtype=np.float64).ravel()
        for place in self.places:
            flat[place] = self.of.prox(flat[place], step)
        return flat.reshape(x.shape)


Keys = Float[np.ndarray, "*model H d_k m"]
Queries = Float[np.ndarray, "*model H d_q m"]


def factor_ratio(
    problem: Problem,
    parameters: Any,
    selected: Any = None,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' over a bound on the best margin of any factors of the same size.

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
    check_is_problem(problem)
    norm, scope, problem = parse_norm(norm), read_matrix_scope(scope), _at_unit_scale(problem)
    selected = selection_of(selected, parameters)
    _token_of_each_query(problem, selected)
    keys, queries = _factors(problem, parameters)
    induced = induced_norm(norm, keys.shape[-1], scope, problem.num_heads)
    factors = _at_unit_size(norm, scope, keys, queries)
    weights = factors.keys @ factors.queries.mT
    weights = weights if problem.num_heads is not None else weights[..., 0, :, :]
    length: Norm = Lp(2.0) if problem.num_heads is None else MaxOfHeads(Lp(2.0))
    smallest = np.asarray(margin(problem, weights, selected, length)) * length.values(weights)
    solution = solve_svm(problem, selected, induced)
    if not is_feasible(solution).all():
        raise ProblemError("selected: expected a separable selection, got one whose Att-SVM is infeasible")
    ratio: np.ndarray | float = plain(smallest * _lower_bound(solution))
    return ratio


def kkt_ratio(
    problem: Problem,
    parameters: Any,
    selected: Any = None,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' over what the linearised margins would allow: 1 exactly at a KKT point.

    With K and Q scaled to N = 1, it is twice the smallest margin, divided by the largest min_r a_r'(K₂Q' + KQ₂')c_r
    over N(K₂) ≤ 1 and N(Q₂) ≤ 1, where a_r' W c_r are the margins. A KKT point of the largest margin for
    max(N(K), N(Q)) ≤ 1 need not have the best factors, and need not be a local maximum.

    Parameters
    ----------
    problem, parameters, selected, scope
        As for :func:`factor_ratio`.
    norm : str, float or Norm
        N, with ``prox`` of its dual norm.

    Returns
    -------
    float or ndarray, shape (*batch_shape,)
        At most 1, without the axis of heads; 0 if the size of the factors is 0; not positive if the weights do not
        separate. It does not depend on the common scale of K and Q. It is a bound from below: the certified upper bound
        of the largest value counts.

    Raises
    ------
    ProblemError
        If the arguments do not fit, the problem is one of prompts, the selection keeps sets of tokens, or every token
        is selected.

    See Also
    --------
    attsvm.theory.factor_ratio, attsvm.margin_ratio

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> selected = attsvm.optimal_tokens(problem)
    >>> U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected, norm="nuclear").direction)
    >>> factors = {"K": U * np.sqrt(sigma), "Q": Vt.T * np.sqrt(sigma)}
    >>> round(attsvm.theory.kkt_ratio(problem, factors, selected, "frobenius"), 6)
    1.0
    """
    check_is_problem(problem)
    norm, scope, problem = parse_norm(norm), read_matrix_scope(scope), _at_unit_scale(problem)
    sets = _token_of_each_query(problem, selection_of(selected, parameters))
    keys, queries = _factors(problem, parameters)
    allowed = problem.canonical.allowed
    heads = sets if problem.num_heads is not None else sets[..., None, :, :, :]
    tokens, asked, may = (
        np.broadcast_to(array, sets.shape[:-3] + array.shape[-3:]).reshape(heads.shape[:-3] + array.shape[-3:])
        for array in (problem.canonical.keys, problem.canonical.queries, allowed)
    )
    of_pair = LargestOfGroups(norm, _shape(keys, queries), scope)
    factors = _at_unit_size(norm, scope, keys, queries)
    ratios = []
    for index in np.ndindex(keys.shape[:-3]):
        K, Q, flat = factors.keys[index], factors.queries[index], factors.flat[index]
        rows = [
            _rows(h, K, Q, *_pairs(tokens[index][h], asked[index][h], may[index][h], heads[index][h]))
            for h in range(len(K))
        ]
        slopes = np.concatenate(rows)
        smallest = float((slopes @ flat).min())  # twice the smallest margin
        if smallest <= 0:
            ratios.append(smallest)
            continue
        best = solve_svm(Problem(np.concatenate([np.zeros((1, flat.size)), -slopes])[None]), [0], norm=of_pair)
        ratios.append(smallest * float(_lower_bound(best)))
    found: np.ndarray | float = plain(np.array(ratios).reshape(keys.shape[:-3]))
    return found


def _at_unit_scale(problem: Problem) -> Problem:
    """The problems with a largest key and query between 1/2 and 1, which changes no ratio."""
    if problem.queries is None:
        raise ProblemError("problem: expected queries, because a prompt has no factors K and Q, got a prompt problem")
    num_axes = len(problem.model_shape)
    # all heads have the same keys and queries
    one = problem if problem.num_heads is None else problem[(slice(None),) * num_axes + (0,)]

    def at_unit_scale(x: Any) -> np.ndarray:
        largest = np.abs(x).max(axis=tuple(range(num_axes, x.ndim)), keepdims=True)
        return np.asarray(np.ldexp(x, -np.frexp(largest)[1]))

    keys, queries = at_unit_scale(one.canonical.keys), at_unit_scale(one.queries)
    return Problem(keys, queries=queries, mask=one.mask, query_mask=one.query_mask, num_heads=problem.num_heads)


def _token_of_each_query(problem: Problem, selected: Any) -> Bool[np.ndarray, "*batch n Q T"]:
    """The selection as sets of one token."""
    sets = selection_sets(problem, selected)
    if sets.shape[:-3] != problem.batch_shape:
        raise ProblemError(
            f"selected: expected one selection for each problem, with batch axes {problem.batch_shape}, "
            f"got batch axes {sets.shape[:-3]}"
        )
    if (sets.sum(axis=-1) > 1).any():
        raise ProblemError("selected: expected one token per query, got sets of several tokens")
    return sets


def _factors(problem: Problem, given: Any) -> tuple[Keys, Queries]:
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


def _shape(keys: Keys, queries: Queries) -> tuple[int, int, int, int]:
    """Return (H, d_k, d_q, m)."""
    return keys.shape[-3], keys.shape[-2], queries.shape[-2], keys.shape[-1]


class _Scaled(NamedTuple):
    """Factors of size 1, and all their numbers in one vector for each model."""

    keys: Keys
    queries: Queries
    flat: Float[np.ndarray, "*model number"]


def _at_unit_size(norm: Norm, scope: MatrixScope, keys: Keys, queries: Queries) -> _Scaled:
    """The factors of each model, scaled to a size of 1; zeros where the size is 0.

    The size is the largest N(K) N(Q) of a pair of matrices, or N([K, Q])² where keys and queries are one matrix. Both
    matrices of a pair get the same norm, and the products of all heads are divided by the same number.
    """
    models = keys.shape[:-3]
    flat = np.concatenate([part.reshape(*models, -1) for part in (keys, queries)], axis=-1)
    groups = groups_of(*_shape(keys, queries), scope)
    for index in np.ndindex(models):
        numbers = flat[index]
        logarithms = np.array([_normalise(norm, group, numbers) for group in groups])
        most = logarithms.max()
        roots = np.exp(0.5 * (logarithms - most)) if most > -np.inf else np.zeros(len(groups))
        for root, group in zip(roots, groups, strict=True):
            for part in group:
                numbers[part] *= root
    own_keys, own_queries = np.split(flat, [int(np.prod(keys.shape[-3:]))], axis=-1)
    return _Scaled(own_keys.reshape(keys.shape), own_queries.reshape(queries.shape), flat)


def _normalise(norm: Norm, group: tuple[np.ndarray, ...], numbers: np.ndarray) -> float:
    """Divide each matrix of a group by its norm, in place. Returns the logarithm of the size, which may be no float."""
    logarithm = 0.0
    for part in group:
        largest = float(np.abs(numbers[part]).max())
        if largest == 0:
            return -np.inf
        numbers[part] /= largest
        own = float(norm.values(numbers[part]))
        numbers[part] /= own
        logarithm += (np.log(largest) + np.log(own)) * 2 / len(group)
    return logarithm


def _lower_bound(solution: Solution) -> np.ndarray:
    """The certified lower bound on the value; 0 where there is none."""
    value, gap = np.asarray(solution.value), np.asarray(solution.gap)
    return np.where(gap < 1, value, 0.0) * np.where(gap < 1, 1 - gap, 0.0)


def _pairs(
    keys: np.ndarray, queries: np.ndarray, allowed: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The factors a_r and c_r of the margins of all kept tokens over all others."""
    i, q, first, other = np.nonzero(kept[..., :, None] & (allowed & ~kept)[..., None, :])
    if len(i) == 0:
        raise ProblemError("selected: expected a token that is not selected, got none, so there is no margin")
    return keys[i, first] - keys[i, other], queries[i, q]


def _rows(h: int, K: np.ndarray, Q: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The derivatives of the margins of a head with respect to all factors, as rows."""
    slopes_K, slopes_Q = np.zeros((len(left), *K.shape)), np.zeros((len(left), *Q.shape))
    slopes_K[:, h] = left[:, :, None] * (right @ Q[h])[:, None, :]
    slopes_Q[:, h] = right[:, :, None] * (left @ K[h])[:, None, :]
    return np.concatenate([slopes_K.reshape(len(left), -1), slopes_Q.reshape(len(left), -1)], axis=1)
