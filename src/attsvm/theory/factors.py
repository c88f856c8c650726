"""How near factors K and Q are to the best ones of their size: the factor ratio and the KKT ratio."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import MaxOfHeads, Norm, induced_norm, parse_norm
from attsvm.optimizers.matrices import read_matrix_scope
from attsvm.problem import Problem
from attsvm.results import plain
from attsvm.selection import selection_sets
from attsvm.svm import solve_svm
from attsvm.theory.factor_norms import Groups, LargestOfGroups, groups_of

Factors = Float[np.ndarray, "*model H d m"]


def factor_ratio(
    problem: Problem,
    parameters: Mapping[str, Any],
    selected: Any,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' over a bound on the best margin of any factors of the same size.

    The bound is the best margin in the norm M that N induces on the products, M(KQ') ≤ N(K) N(Q); see
    :func:`attsvm.norms.induced_norm`. Where the Att-SVM of M has no exact solution, its lower bound counts.

    Parameters
    ----------
    problem : Problem
    parameters : mapping
        "K" of shape (*batch, d_k, m) and "Q" of shape (*batch, d_q, m), such as ``run.parameters``. With ``num_heads``
        the axis of heads is the last of the batch axes.
    selected : array
        As for :func:`attsvm.solve_svm`.
    norm : str, float or Norm
        N, the norm of the factors.
    scope : {"heads", "fused", "kq"}
        What is one matrix, as in :func:`attsvm.optimizers.spectral_descent`: each K_h and Q_h; [K_1 … K_H] and
        [Q_1 … Q_H]; or all of them together.

    Returns
    -------
    float or ndarray, shape (*batch_shape,)
        At most 1, without the axis of heads; 1 if the factors have the best margin and M(KQ') = N(K) N(Q).

    Raises
    ------
    ProblemError
        If the arguments do not fit, or if no norm of products is known for N with this scope.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> selected = attsvm.optimal_tokens(problem)
    >>> U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected, norm="nuclear").direction)
    >>> factors = {"K": U * np.sqrt(sigma), "Q": Vt.T * np.sqrt(sigma)}
    >>> round(attsvm.factor_ratio(problem, factors, selected, "frobenius"), 6)
    1.0
    """
    norm, scope = parse_norm(norm), read_matrix_scope(scope)
    keys, queries = _factors(problem, parameters)
    induced = induced_norm(norm, keys.shape[-1], scope)
    if problem.num_heads is not None and not induced.head_axes:
        induced = MaxOfHeads(induced)
    solution = solve_svm(problem, selected, norm=induced)
    weights = keys @ queries.mT
    lengths = np.linalg.norm(weights, axis=(-2, -1))
    of_heads = lengths if problem.num_heads is not None else lengths[..., 0]
    whole = weights if problem.num_heads is not None else weights[..., 0, :, :]
    smallest = np.asarray(margin(problem, whole, selected)) * of_heads
    smallest = smallest if problem.num_heads is None else smallest.min(axis=-1)
    groups = groups_of(*_shape(keys, queries), scope)
    sizes = np.array([_sizes(norm, groups, _flat(K, Q)).max() for K, Q in _each(keys, queries)])
    bound = np.asarray(solution.value) * (1 - np.asarray(solution.gap))
    ratio: np.ndarray | float = plain(smallest * bound / sizes.reshape(keys.shape[:-3]))
    return ratio


def kkt_ratio(
    problem: Problem,
    parameters: Mapping[str, Any],
    selected: Any,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' over what the linearised margins would allow: 1 exactly at a KKT point.

    With K and Q scaled to N = 1, it is twice the smallest margin, divided by the largest min_r a_r'(K₂Q' + KQ₂')c_r
    over N(K₂) ≤ 1 and N(Q₂) ≤ 1, where a_r' W c_r are the margins. A KKT point of the largest margin for
    max(N(K), N(Q)) ≤ 1 need not have the best factors.

    Parameters
    ----------
    problem, parameters, selected, scope
        As for :func:`factor_ratio`.
    norm : str, float or Norm
        N, with ``prox`` of its dual norm.

    Returns
    -------
    float or ndarray, shape (*batch_shape,)
        At most 1, without the axis of heads; not positive if the weights do not separate. It is a bound from below: the
        certified upper bound of the largest value counts.

    Raises
    ------
    ProblemError
        If the arguments do not fit, or every token is selected.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> selected = attsvm.optimal_tokens(problem)
    >>> U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected, norm="nuclear").direction)
    >>> factors = {"K": U * np.sqrt(sigma), "Q": Vt.T * np.sqrt(sigma)}
    >>> round(attsvm.kkt_ratio(problem, factors, selected, "frobenius"), 6)
    1.0
    """
    norm, scope = parse_norm(norm), read_matrix_scope(scope)
    keys, queries = _factors(problem, parameters)
    sets = selection_sets(problem, selected)
    allowed = problem.canonical.allowed
    heads = sets if problem.num_heads is not None else sets[..., None, :, :, :]
    tokens, asked, may = (
        np.broadcast_to(array, sets.shape[:-3] + array.shape[-3:]).reshape(heads.shape[:-3] + array.shape[-3:])
        for array in (problem.canonical.keys, problem.canonical.queries, allowed)
    )
    shape = _shape(keys, queries)
    groups = groups_of(*shape, scope)
    of_pair = LargestOfGroups(norm, shape, scope)
    ratios = []
    for index, (K, Q) in zip(np.ndindex(keys.shape[:-3]), _each(keys, queries), strict=True):
        flat = _flat(K, Q)
        sizes = _sizes(norm, groups, flat)
        if not sizes.max() > 0:
            ratios.append(0.0)
            continue
        for roots, group in zip(np.sqrt(sizes), groups, strict=True):
            for part in group:
                flat[part] *= roots / max(float(norm.values(flat[part])), np.finfo(float).tiny)
        flat /= np.sqrt(sizes.max())
        K, Q = flat[: K.size].reshape(K.shape), flat[K.size :].reshape(Q.shape)
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
        ratios.append(smallest * float(best.value) * (1 - float(best.gap)))
    found: np.ndarray | float = plain(np.array(ratios).reshape(keys.shape[:-3]))
    return found


def _factors(problem: Problem, parameters: Mapping[str, Any]) -> tuple[Factors, Factors]:
    """K and Q, with an axis of heads."""
    batch = problem.batch_shape
    arrays = []
    for name, size in (("K", problem.key_dim), ("Q", problem.query_dim)):
        if name not in parameters:
            raise ProblemError(f'parameters: expected "K" and "Q", got {", ".join(map(str, parameters)) or "nothing"}')
        array: np.ndarray = np.asarray(parameters[name], dtype=np.float64)
        if array.ndim < 2 or array.shape[-2] != size or array.shape[:-2] != batch:
            raise ProblemError(
                f"parameters: {name}: expected shape ({', '.join(map(str, (*batch, size)))}, m), got {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ProblemError(f"parameters: {name}: expected finite numbers, got NaN or inf")
        arrays.append(array if problem.num_heads is not None else array[..., None, :, :])
    if arrays[0].shape[-1] != arrays[1].shape[-1]:
        raise ProblemError(
            f"parameters: expected as many columns of Q as of K, {arrays[0].shape[-1]}, got {arrays[1].shape[-1]}"
        )
    return arrays[0], arrays[1]


def _shape(keys: Factors, queries: Factors) -> tuple[int, int, int, int]:
    """(H, d_k, d_q, m)."""
    return keys.shape[-3], keys.shape[-2], queries.shape[-2], keys.shape[-1]


def _each(keys: Factors, queries: Factors) -> "zip[tuple[np.ndarray, np.ndarray]]":
    """The factors of each model."""
    return zip(keys.reshape(-1, *keys.shape[-3:]), queries.reshape(-1, *queries.shape[-3:]), strict=True)


def _flat(K: np.ndarray, Q: np.ndarray) -> np.ndarray:
    return np.concatenate([K.ravel(), Q.ravel()])


def _sizes(norm: Norm, groups: Groups, flat: np.ndarray) -> np.ndarray:
    """N(K) N(Q) of each group of keys and queries; N([K, Q])² where they are one matrix."""
    return np.array(
        [np.prod([float(norm.values(flat[part])) for part in group]) ** (2 / len(group)) for group in groups]
    )


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
