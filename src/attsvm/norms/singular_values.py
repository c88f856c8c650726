"""The nuclear and the spectral norm: the sum and the largest of the singular values."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.linear_algebra import singular_values
from attsvm.norms.base import USUAL_EXPONENT, Norm, SeveralAtOnce
from attsvm.norms.lp import Lp, shrunk_to_sum_one
from attsvm.norms.registry import NORMS


class _OfSingularValues(SeveralAtOnce):
    """A norm of the singular values; on vectors it is the ℓ2 norm."""

    left_invariant = True
    right_invariant = True

    @abstractmethod
    def _reduce(self, singular: np.ndarray) -> np.ndarray:
        """Return the norm of each row of singular values."""

    @property
    def of_vectors(self) -> Norm:
        """Return ℓ2: a matrix with one column has one singular value, its length."""
        return Lp(2.0)

    def _map(self, x: Any, change: Callable[[Any, Any], Any]) -> Any:
        """Return the matrix with its singular values changed; a vector is projected in the ℓ2 norm."""
        if x.ndim == 1:
            return self.of_vectors.project_dual_ball(x)
        xp = x.__array_namespace__()
        U, sigma, Vt = xp.linalg.svd(x, full_matrices=False)
        return (U * change(xp, sigma)) @ Vt

    def size_in_trials(self, tree: Any, trials: Any) -> Any:
        x = trials.only(self, tree)
        if x.ndim <= 2:
            return trials.size_of(self.of_vectors, tree)
        return self._reduce_trials(trials.decomposed(self, x).values, trials)

    @abstractmethod
    def _reduce_trials(self, singular: Any, trials: Any) -> Any:
        """Reduce singular values of shape (k, B) to the norm in each trial."""

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        if axes == 1:
            return self.of_vectors.values(x, axes)
        matrices = np.asarray(x, dtype=np.float64)
        # LAPACK scales matrices of small numbers itself
        if np.maximum.reduce(np.abs(matrices), axis=None, initial=0.0) < 2.0**USUAL_EXPONENT:
            return self._reduce(singular_values(matrices))
        return values_at_unit_scale(matrices, lambda matrices: self._reduce(singular_values(matrices)))


def values_at_unit_scale(x: Any, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return a norm of each matrix, without overflow or underflow, from its values where the largest entry is 1 or 0.

    It is infinite or NaN where an entry is; LAPACK would raise an error there.
    """
    array = np.asarray(x, dtype=np.float64)
    largest = np.maximum.reduce(np.abs(array), axis=(-2, -1), keepdims=True, initial=0.0)
    if ((largest > 0) & (largest < np.inf)).all():
        return np.asarray(values(array / largest) * largest[..., 0, 0])
    finite = np.isfinite(largest)
    scale = np.where((largest > 0) & finite, largest, 1.0)
    result = values(np.where(finite, array / scale, 0.0))
    return np.where(finite, result.reshape(scale.shape) * scale, largest).reshape(result.shape)


@dataclass(frozen=True)
class Nuclear(_OfSingularValues):
    """The nuclear norm ‖W‖_*, the sum of the singular values.

    See Also
    --------
    attsvm.norms.Spectral, attsvm.norms.schatten

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the norm of the Att-SVM of
    the factors (K, Q).

    Examples
    --------
    >>> from attsvm.norms import Nuclear
    >>> Nuclear().value([[3.0, 0.0], [0.0, 4.0]])
    7.0
    """

    name = "nuclear"

    @property
    def dual(self) -> "Spectral":
        return Spectral()

    def _reduce(self, singular: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduce(singular, axis=-1))

    def _reduce_trials(self, singular: Any, trials: Any) -> Any:
        return trials.over_entries(trials.jnp.add, singular)

    def steepest_in_trials(self, gradient: Any, trials: Any) -> Any:
        """Compute u v' of the largest singular value in each trial, in JAX."""
        xp = trials.jnp
        left, values, right = trials.decomposed(self, gradient)
        index = xp.arange(len(values), dtype=xp.int32)[:, None]
        largest = trials.over_entries(xp.maximum, values)
        counts = index == trials.over_entries(xp.minimum, xp.where(values == largest, index, len(values)))
        return trials.contract("rk,ck->rc", xp.where(counts, left, 0.0), right)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return √r for matrices with r singular values."""
        return math.sqrt(min(shape))

    def project_dual_ball(self, x: Any) -> Any:
        """Set singular values above 1 to 1."""
        return self._map(x, lambda xp, sigma: xp.minimum(sigma, 1.0))

    def steepest(self, g: Any) -> Any:
        """Return U v' of the largest singular value."""
        if g.ndim == 1:
            return self.of_vectors.steepest(g)
        xp = g.__array_namespace__()
        U, sigma, Vt = xp.linalg.svd(g, full_matrices=False)
        return xp.where(sigma[0] > 0, U[:, :1] * Vt[:1], 0.0)


@dataclass(frozen=True)
class Spectral(_OfSingularValues):
    """The spectral norm ‖W‖_op, the largest singular value.

    See Also
    --------
    attsvm.norms.Nuclear, attsvm.norms.schatten
    attsvm.optimizers.spectral_descent : Its limit.

    Examples
    --------
    >>> from attsvm.norms import Spectral
    >>> Spectral().value([[3.0, 0.0], [0.0, 4.0]])
    4.0
    """

    name = "spectral"

    @property
    def dual(self) -> "Nuclear":
        return Nuclear()

    def _reduce(self, singular: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum.reduce(singular, axis=-1, initial=0.0))

    def _reduce_trials(self, singular: Any, trials: Any) -> Any:
        return trials.over_entries(trials.jnp.maximum, singular)

    def steepest_in_trials(self, gradient: Any, trials: Any) -> Any:
        """Compute U V' in each trial, in JAX."""
        return trials.exact_polar_factor(trials.matrix(self, gradient))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return 1: the largest singular value is at most the Frobenius norm."""
        return 1.0

    def project_dual_ball(self, x: Any) -> Any:
        """Reduce the singular values by a threshold until their sum is at most 1."""
        return self._map(x, lambda xp, sigma: shrunk_to_sum_one(sigma))

    def steepest(self, g: Any) -> Any:
        """Return U V' of the singular vectors, without those whose singular values are rounding errors."""
        if g.ndim == 1:
            return self.of_vectors.steepest(g)
        xp = g.__array_namespace__()
        U, sigma, Vt = xp.linalg.svd(g, full_matrices=False)
        kept = sigma > max(g.shape) * float(xp.finfo(g.dtype).eps) * sigma[0]
        return xp.where(kept, U, 0.0) @ Vt


NORMS.register("nuclear", Nuclear)
NORMS.register("spectral", Spectral)
