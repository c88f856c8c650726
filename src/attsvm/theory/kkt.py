"""Whether factors K and Q are a KKT point of the largest margin among factors of their size."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.checks import check_choice, selection_of
from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.norms.base import project_on_ball, refuse_joint_parts
from attsvm.problem import Problem, check_is_problem, of_rows
from attsvm.results import plain
from attsvm.svm import solve_svm
from attsvm.theory.ratios import (
    at_unit_scale,
    at_unit_size,
    groups_of,
    lower_bound,
    read_factors,
    shape_of,
    token_of_each_query,
)


def kkt_ratio(
    problem: Problem,
    parameters: Any,
    selected: Any = None,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' over what the linearised margins would allow: 1 exactly at a KKT point.

    :ref:`Provisional <provisional>`: it may change in any minor version.

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
    norm, problem = parse_norm(norm), at_unit_scale(problem)
    check_choice("scope", scope, "heads", "fused", "kq")
    sets = token_of_each_query(problem, selection_of(selected, parameters))
    keys, queries = read_factors(problem, parameters)
    allowed = problem.canonical.allowed
    heads = sets if problem.num_heads is not None else sets[..., None, :, :, :]
    tokens, asked, may = (
        np.broadcast_to(array, sets.shape[:-3] + array.shape[-3:]).reshape(heads.shape[:-3] + array.shape[-3:])
        for array in (problem.canonical.keys, problem.canonical.queries, allowed)
    )
    of_pair = LargestOfGroups(norm, shape_of(keys, queries), scope)
    factors = at_unit_size(norm, scope, keys, queries)
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
        program = of_rows(Problem(np.concatenate([np.zeros((1, flat.size)), -slopes])[None]))
        best = solve_svm(program, [0], norm=of_pair)
        ratios.append(smallest * float(lower_bound(best)))
    found: np.ndarray | float = plain(np.array(ratios).reshape(keys.shape[:-3]))
    return found


@dataclass(frozen=True)
class _OfGroups(Norm):
    """A norm of vectors that hold K and Q, made of the norms of their matrices."""

    of: Norm
    sizes: tuple[int, int, int, int]  # (H, d_k, d_q, m)
    scope: str  # {"heads", "fused", "kq"}

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
