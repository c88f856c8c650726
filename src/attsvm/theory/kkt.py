"""Whether factors K and Q are a KKT point of the largest margin among factors of their size."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm, project_on_ball, refuse_joint_parts
from attsvm.problem import Problem, of_rows
from attsvm.results import plain
from attsvm.svm import solve_svm
from attsvm.theory.ratios import FactorsOfRatio, groups_of, lower_bound, shape_of


def kkt_ratio(
    problem: Problem,
    parameters: Any,
    selected: Any = None,
    norm: str | float | Norm = "spectral",
    *,
    scope: str = "heads",
) -> np.ndarray | float:
    """The margin of W = KQ' divided by the best that the linearised margins allow: 1 exactly at a KKT point.

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
    own = FactorsOfRatio.of(problem, parameters, selected, norm, scope)
    largest_size = NormOfFactors(own.norm, shape_of(own.keys, own.queries), own.scope, largest=True)
    own = own.normalised()
    problem, heads = own.problem, own.sets if own.problem.num_heads is not None else own.sets[..., None, :, :, :]
    # with an axis of heads, which all have the same keys and queries
    tokens, asked, may = (
        np.broadcast_to(array, own.sets.shape[:-3] + array.shape[-3:]).reshape(heads.shape[:-3] + array.shape[-3:])
        for array in (problem.canonical.keys, problem.canonical.queries, problem.canonical.allowed)
    )
    ratios, flat = [], own.numbers
    for index in np.ndindex(own.keys.shape[:-3]):
        K, Q = own.keys[index], own.queries[index]
        rows = [
            _rows(h, K, Q, *_pairs(tokens[index][h], asked[index][h], may[index][h], heads[index][h]))
            for h in range(len(K))
        ]
        # the margin a'KQ'c is bilinear, so that its derivative along (K, Q) itself is twice the margin
        slopes = np.concatenate(rows)
        smallest = float((slopes @ flat[index]).min())  # twice the smallest margin
        # weights that do not separate: the number has the right sign, and is no ratio
        if smallest <= 0:
            ratios.append(smallest)
            continue
        # the largest min_r ⟨slope_r, θ⟩ over N(θ) ≤ 1 is 1/V of an Att-SVM: key 0 is selected, −slope_r the others
        program = of_rows(Problem(np.concatenate([np.zeros((1, slopes.shape[1])), -slopes])[None]))
        best = solve_svm(program, [0], norm=largest_size)
        ratios.append(smallest * float(lower_bound(best)))
    found: np.ndarray | float = plain(np.array(ratios).reshape(own.keys.shape[:-3]))
    return found


@dataclass(frozen=True)
class NormOfFactors(Norm):
    """The largest norm of the matrices in a vector that holds K and Q, or the sum of their norms."""

    of: Norm
    sizes: tuple[int, int, int, int]  # (H, d_k, d_q, m)
    scope: str
    largest: bool

    def __post_init__(self) -> None:
        refuse_joint_parts(self)

    @property
    def name(self) -> str:
        """Such as "largest spectral of factors"."""
        return f"{'largest' if self.largest else 'sum of'} {self.of.name} of factors"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        num_heads, key_dim, query_dim, columns = self.sizes
        return (num_heads * (key_dim + query_dim) * columns,)

    @property
    def places(self) -> list[np.ndarray]:
        """The places of each matrix."""
        return [part for group in groups_of(*self.sizes, self.scope) for part in group]

    @property
    def dual(self) -> "NormOfFactors":
        """The sum of the dual norms, or the largest of them."""
        # max_j N(θ_j) and Σ_j N*(θ_j) are dual to each other
        return replace(self, of=self.of.dual, largest=not self.largest)

    def value(self, x: Any, axes: int = 1) -> float:
        flat = np.asarray(x, dtype=np.float64).ravel()
        each = [float(self.of.values(flat[place])) for place in self.places]
        return max(each) if self.largest else float(np.sum(each))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """Project all matrices on balls of one radius, or apply the proximal map of each.

        The dual norms of what the projection cuts off sum to the step.
        """
        flat = np.array(x, dtype=np.float64).ravel()
        if self.largest:
            # Moreau: prox of step · N is the identity minus the projection on the ball of N* of this radius
            flat -= project_on_ball(self.dual, flat, step)
        else:
            for place in self.places:
                flat[place] = self.of.prox(flat[place], step)
        return flat.reshape(x.shape)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """√k times that of a matrix, for k matrices."""
        places = self.places
        return float(np.sqrt(len(places))) * max(self.of.frobenius_factor(place.shape) for place in places)


def _pairs(
    keys: np.ndarray, queries: np.ndarray, allowed: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The factors a_r and c_r of the margins of all kept tokens over all others."""
    # a_r'Wc_r = (k_α − k_t)'W z
    i, q, first, other = np.nonzero(kept[..., :, None] & (allowed & ~kept)[..., None, :])
    if len(i) == 0:
        raise ProblemError("selected: expected a token that is not selected, got none, so there is no margin")
    return keys[i, first] - keys[i, other], queries[i, q]


def _rows(h: int, K: np.ndarray, Q: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The derivatives of the margins of a head with respect to all factors, as rows."""
    slopes_K, slopes_Q = np.zeros((len(left), *K.shape)), np.zeros((len(left), *Q.shape))
    # a'(dK Q' + K dQ')c = ⟨a (Q'c)', dK⟩ + ⟨c (K'a)', dQ⟩
    slopes_K[:, h] = left[:, :, None] * (right @ Q[h])[:, None, :]
    slopes_Q[:, h] = right[:, :, None] * (left @ K[h])[:, None, :]
    return np.concatenate([slopes_K.reshape(len(left), -1), slopes_Q.reshape(len(left), -1)], axis=1)
