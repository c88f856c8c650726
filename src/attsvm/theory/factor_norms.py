"""The norm of factors K and Q that steepest descent on them uses: the largest norm of what is one matrix."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.norms.base import project_on_ball, refuse_joint_parts
from attsvm.optimizers.matrix_steps import MatrixScope

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
