"""The ordered weighted ℓ1 norm and its dual."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError
from attsvm.norms.base import Norm, SeveralAtOnce, project_on_ball


@dataclass(frozen=True)
class _OrderedNorm(SeveralAtOnce):
    """A norm of the absolute entries in descending order, given by one weight for each place."""

    weights: tuple[float, ...]

    def __init__(self, weights: Sequence[float]) -> None:
        numbers = tuple(check_number("weights", w, "numbers >= 0", lambda w: w >= 0) for w in weights)
        if not numbers or numbers[0] == 0 or any(np.diff(numbers) > 0):
            raise ProblemError(f"weights: expected descending numbers >= 0, the first > 0, got {numbers}")
        object.__setattr__(self, "weights", numbers)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return the number of weights; fewer entries, and any number of axes, will do."""
        return (len(self.weights),)

    @cached_property
    def _weights(self) -> np.ndarray:
        return np.array(self.weights)

    def _descending(self, x: Any, axes: int) -> np.ndarray:
        """Return the absolute entries in descending order, along the last axis."""
        array = np.asarray(x, dtype=np.float64)
        lead = array.shape[: array.ndim - axes]
        if np.prod(array.shape[len(lead) :]) > len(self.weights):
            raise ProblemError(f"norm: {self.name}: expected at most as many entries, got shape {array.shape}")
        return -np.sort(-np.abs(array).reshape(*lead, -1), axis=-1)

    def _weights_of(self, x: Any) -> Any:
        """Return the weights of the places that an array has, in its kind of floats."""
        return x.__array_namespace__().asarray(self._weights[: x.size], dtype=x.dtype)


@dataclass(frozen=True, init=False)
class Owl(_OrderedNorm):
    """The ordered weighted ℓ1 norm Σ w_i |x|_(i), where |x|_(1) ≥ |x|_(2) ≥ … are the entries in descending order.

    It makes entries equal in size, and sparse. Weights a + b (D − i) give OSCAR. On singular values, use
    ``OnSingularValues(Owl(weights))``.

    Parameters
    ----------
    weights : sequence of float
        Descending, at least 0, the first above 0; at least one for each entry of the arrays that are measured.

    See Also
    --------
    attsvm.norms.Lp, attsvm.norms.OnSingularValues

    References
    ----------
    Bogdan, van den Berg, Sabatti, Su and Candès (2015), *SLOPE — Adaptive Variable Selection via Convex Optimization*;
    Zeng and Figueiredo (2014), *The Ordered Weighted ℓ1 Norm*.

    Examples
    --------
    >>> from attsvm.norms import Owl
    >>> Owl([3.0, 2.0, 1.0, 0.0]).value([[1.0, -4.0], [0.0, 2.0]])
    17.0
    """

    @property
    def name(self) -> str:
        """Return a name such as "owl of 4 weights"."""
        return f"owl of {len(self.weights)} weights"

    @property
    def dual(self) -> Norm:
        """Return max_k Σ_{i ≤ k} |x|_(i) / Σ_{i ≤ k} w_i."""
        return DualOwl(self.weights)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        descending = self._descending(x, axes)
        return np.asarray(descending @ self._weights[: descending.shape[-1]])

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """Compute it by isotonic regression of the entries in descending order, less their weights."""
        flat = np.abs(x).reshape(-1)
        self._descending(x, x.ndim)
        order = np.argsort(-flat, kind="stable")
        sizes = np.empty_like(flat)
        lowered = flat[order] - step * self._weights_of(flat)
        sizes[order] = scipy.optimize.isotonic_regression(lowered, increasing=False).x
        return np.asarray(np.sign(x) * np.maximum(sizes, 0.0).reshape(x.shape))

    def steepest(self, g: Any) -> Any:
        """Return entries of one size at the k largest entries of g, for the k that attains the dual norm."""
        xp = g.__array_namespace__()
        size, totals = xp.abs(g), xp.cumsum(self._weights_of(g))
        best = xp.argmax(xp.cumsum(-xp.sort(-xp.reshape(size, (-1,)))) / totals)
        return xp.where(ranks(size) <= best, xp.sign(g) / totals[best], 0.0)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return the length of the weights."""
        return float(np.linalg.norm(self._weights))


@dataclass(frozen=True, init=False)
class DualOwl(_OrderedNorm):
    """The dual of :class:`Owl`: the largest of Σ_{i ≤ k} |x|_(i) / Σ_{i ≤ k} w_i over k.

    Parameters
    ----------
    weights : sequence of float
        Those of the OWL norm.

    See Also
    --------
    attsvm.norms.Owl

    Examples
    --------
    >>> from attsvm.norms.owl import DualOwl
    >>> DualOwl([3.0, 2.0, 1.0, 0.0]).value([[1.0, -4.0], [0.0, 2.0]])
    1.3333333333333333
    """

    @property
    def name(self) -> str:
        """Return a name such as "dual owl of 4 weights"."""
        return f"dual owl of {len(self.weights)} weights"

    @property
    def dual(self) -> Owl:
        return Owl(self.weights)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        descending = self._descending(x, axes)
        totals = np.cumsum(self._weights[: descending.shape[-1]])
        return np.asarray((np.cumsum(descending, axis=-1) / totals).max(axis=-1, initial=0.0))

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        """Return the nearest point of the ball of the OWL norm."""
        return project_on_ball(self.dual, x)

    def steepest(self, g: Any) -> Any:
        """Return the weights, in the order of the entries of g."""
        xp = g.__array_namespace__()
        return xp.sign(g) * self._weights_of(g)[ranks(xp.abs(g))]

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return the largest of √k / Σ_{i ≤ k} w_i over k."""
        return float((np.sqrt(np.arange(1, len(self.weights) + 1)) / np.cumsum(self._weights)).max())


def ranks(sizes: Any) -> Any:
    """Return the place of each entry in descending order, from 0; ties in the order of the entries."""
    xp = sizes.__array_namespace__()
    order = xp.argsort(-xp.reshape(sizes, (-1,)), stable=True)
    return xp.reshape(xp.argsort(order), sizes.shape)
