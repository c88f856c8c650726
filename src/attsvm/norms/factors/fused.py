"""Norms that the spectral norm of fused keys and queries induces on their products, and their dual norms."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms.attention_heads import Heads, JointNorm
from attsvm.norms.base import Norm
from attsvm.norms.factors.fused_bounds import least_dual_bound, least_factors


@dataclass(frozen=True)
class FusedKeysQueries(Norm):
    """The least ‖[K, Q]‖² over W = KQ', in the spectral norm of the d × 2m matrix [K, Q].

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It is the smallest t for which some A and B have [[A, W], [W', B]] ⪰ 0 and A + B ⪯ t I. Keys and queries have one
    dimension d. It lies between the spectral norm and twice the spectral norm. The value is that of explicit factors,
    so it is a bound from above; its relative error is usually below 1e-6.

    See Also
    --------
    attsvm.norms.factors.FusedHeads

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import FusedKeysQueries
    >>> round(FusedKeysQueries().value(np.diag([2.0, 1.0])), 6)
    4.0
    >>> round(FusedKeysQueries().value(np.array([[0.0, 1.0], [0.0, 0.0]])), 6)
    1.0
    """

    name = "fused_kq"

    @property
    def dual(self) -> Norm:
        """Return half the least tr P with [[P, G], [G', P]] ⪰ 0."""
        return DualFusedKeysQueries()

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return (3, 3)

    def value(self, x: Any, axes: int = 2) -> float:
        """Return a bound from above: that of explicit factors."""
        return least_factors(square(x, self)[None], tied=True)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return 2.0


@dataclass(frozen=True)
class DualFusedKeysQueries(Norm):
    """The largest ⟨G, KQ'⟩ over ‖[K, Q]‖ ≤ 1: half the least tr P with [[P, G], [G', P]] ⪰ 0.

    See Also
    --------
    attsvm.norms.factors.FusedKeysQueries

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import FusedKeysQueries
    >>> round(FusedKeysQueries().dual.value(np.eye(4)), 6)
    2.0
    """

    name = "dual of fused_kq"

    @property
    def dual(self) -> FusedKeysQueries:
        return FusedKeysQueries()

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return (3, 3)

    def value(self, x: Any, axes: int = 2) -> float:
        """Return a bound from above: that of an explicit P."""
        return least_dual_bound(square(x, self)[None], tied=True)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return 0.5 * shape[0]


def square(weights: Any, norm: Norm) -> np.ndarray:
    """Read a square matrix as a float array; raise ProblemError if it is no square."""
    x: np.ndarray = np.asarray(weights, dtype=np.float64)
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ProblemError(
            f"norm: {norm.name}: expected keys and queries of the same dimension, because they are columns of one "
            f"matrix, got weights of shape {x.shape}"
        )
    return x


@dataclass(frozen=True)
class FusedHeads(JointNorm):
    """The least ‖[K_1 … K_H]‖ ‖[Q_1 … Q_H]‖ over W_h = K_h Q_h', in the spectral norm of the fused matrices.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It is the smallest t for which some A_h and B_h have [[A_h, W_h], [W_h', B_h]] ⪰ 0, Σ A_h ⪯ t I and Σ B_h ⪯ t I. It
    is also the largest Σ ‖P^½ W_h R^½‖_* over positive semidefinite P and R of trace 1. For one head it is the spectral
    norm. The value is that of explicit factors, so it is a bound from above; its relative error is usually below 1e-6.

    See Also
    --------
    attsvm.norms.factors.FusedKeysQueries, attsvm.norms.SumOfHeads
    attsvm.optimizers.spectral_descent : With scope "fused" its limit.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import FusedHeads
    >>> W = np.stack([np.diag([2.0, 0.0]), np.diag([1.0, 1.0])])
    >>> round(FusedHeads().value(W), 6)
    3.0
    """

    name = "fused_heads"

    @property
    def dual(self) -> JointNorm:
        """Return half the least tr P + tr R with [[P, G_h], [G_h', R]] ⪰ 0 for all h."""
        return DualFusedHeads(num_heads=self.num_heads)

    def value_of_heads(self, x: Heads) -> float:
        """Return a bound from above: that of explicit factors."""
        return least_factors(x, tied=False)

    def frobenius_factor(self, shape: tuple[int, ...]) -> float:
        """Return √H: the sum of the spectral norms bounds it."""
        return float(np.sqrt(self.count(shape)))


@dataclass(frozen=True)
class DualFusedHeads(JointNorm):
    """The largest Σ ⟨G_h, K_h Q_h'⟩ over ‖[K_1 … K_H]‖ ≤ 1 and ‖[Q_1 … Q_H]‖ ≤ 1.

    It is half the least tr P + tr R with [[P, G_h], [G_h', R]] ⪰ 0 for all h.

    See Also
    --------
    attsvm.norms.factors.FusedHeads

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import FusedHeads
    >>> round(FusedHeads().dual.value(np.stack([np.eye(3), np.eye(3)])), 6)
    3.0
    """

    name = "dual of fused_heads"

    @property
    def dual(self) -> FusedHeads:
        return FusedHeads(num_heads=self.num_heads)

    def value_of_heads(self, x: Heads) -> float:
        """Return a bound from above: that of explicit P and R."""
        return least_dual_bound(x, tied=False)

    def frobenius_factor(self, shape: tuple[int, ...]) -> float:
        return float(np.sqrt(np.prod(self.each_shape(shape))))
