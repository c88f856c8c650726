"""The k-support norm and its dual, the length of the k largest entries."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from attsvm.checks import check_integer
from attsvm.norms.ball import project_on_ball
from attsvm.norms.base import Norm
from attsvm.norms.owl import ranks
from attsvm.norms.registry import NORMS


@dataclass(frozen=True)
class _OfLargestEntries(Norm):
    """A norm of the absolute entries in descending order, of which the k largest have a part of their own."""

    k: int

    def __post_init__(self) -> None:
        check_integer("k", self.k, 1)

    def value(self, x: Any, axes: int = 2) -> Any:
        """The norm over the last ``axes`` axes; leading axes are batch axes."""
        values = self.values(x, min(axes, np.ndim(x)))
        return values if values.ndim else float(values)


@dataclass(frozen=True)
class KSupport(_OfLargestEntries):
    """The k-support norm: its unit ball is the convex hull of the vectors of length 1 with at most k entries.

    k = 1 is ℓ1, and k = D is ℓ2. On singular values, use ``OnSingularValues(KSupport(k))``.

    Parameters
    ----------
    k : int
        At least 1.

    References
    ----------
    Argyriou, Foygel and Srebro (2012), *Sparse Prediction with the k-Support Norm*.

    Examples
    --------
    >>> from attsvm.norms import KSupport
    >>> KSupport(2).value([3.0, 4.0, 0.0], axes=1)
    5.0
    >>> KSupport(1).value([3.0, 4.0, 1.0], axes=1)
    8.0
    """

    spelling: ClassVar[str] = '"ksupport<k>"'

    @property
    def name(self) -> str:
        """ksupport3."""
        return f"ksupport{self.k}"

    @property
    def dual(self) -> "LargestEntries":
        """The length of the k largest entries."""
        return LargestEntries(self.k)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        """The norm over the last ``axes`` axes, without overflow or underflow."""
        array = np.asarray(x, dtype=np.float64)
        flat = np.abs(array).reshape(*array.shape[: array.ndim - axes], -1)
        largest = flat.max(axis=-1, initial=0.0)
        scale = np.where(largest > 0, largest, 1.0)
        scaled = flat / scale[..., None]
        return np.asarray(scale * np.linalg.norm(_heads(scaled, self.k), axis=-1))

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        """The nearest point whose k largest entries have a length of at most 1."""
        sizes = np.abs(x).reshape(-1)
        return np.asarray(np.sign(x) * _shortened(sizes, min(self.k, sizes.size)).reshape(x.shape))

    def steepest(self, g: Any) -> Any:
        """The k largest entries of g, at length 1."""
        xp = g.__array_namespace__()
        size = xp.abs(g)
        scale = xp.where(xp.max(size) > 0, xp.max(size), 1.0)
        kept = xp.where(ranks(size) < self.k, g / scale, 0.0)
        length = xp.sqrt(xp.sum(kept * kept))
        return kept / xp.where(length > 0, length, 1.0)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """That of an array of ones."""
        return float(self.values(np.ones(shape)) / np.sqrt(np.prod(shape)))

    @classmethod
    def parse(cls, text: str) -> "KSupport | None":
        """Read "ksupport3"."""
        k = text.removeprefix("ksupport")
        return cls(int(k)) if k != text and k.isdecimal() else None


@dataclass(frozen=True)
class LargestEntries(_OfLargestEntries):
    """The length of the k largest entries, the dual of :class:`KSupport`.

    Parameters
    ----------
    k : int
        At least 1.

    Examples
    --------
    >>> from attsvm.norms import LargestEntries
    >>> LargestEntries(2).value([3.0, 4.0, 1.0], axes=1)
    5.0
    """

    @property
    def name(self) -> str:
        """Such as "length of the 3 largest entries"."""
        return f"length of the {self.k} largest entries"

    @property
    def dual(self) -> KSupport:
        """The k-support norm."""
        return KSupport(self.k)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        """The norm over the last ``axes`` axes."""
        array = np.asarray(x, dtype=np.float64)
        flat = np.abs(array).reshape(*array.shape[: array.ndim - axes], -1)
        return np.asarray(np.linalg.norm(-np.sort(-flat, axis=-1)[..., : self.k], axis=-1))

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        """The nearest point of the ball of the k-support norm."""
        return project_on_ball(self.dual, x)

    def steepest(self, g: Any) -> Any:
        """The entries of g that are not 0, raised to the smallest number of which the k-support norm is the length."""
        xp = g.__array_namespace__()
        scaled = g / xp.where(xp.max(xp.abs(g)) > 0, xp.max(xp.abs(g)), 1.0)
        heads = _heads(xp.reshape(xp.abs(scaled), (-1,)), self.k)
        least = heads[-1] if self.k < g.size else 0.0
        length = xp.sqrt(xp.sum(heads * heads))
        return xp.sign(g) * xp.maximum(xp.abs(scaled), least) / xp.where(length > 0, length, 1.0)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """1."""
        return 1.0


def _heads(sizes: Any, k: int) -> Any:
    """The k numbers whose length is the k-support norm: the largest entries, and all others in equal parts.

    The r + 1 equal numbers are the sum of the entries from place k − r divided by r + 1, for the r at which this is
    between the entries before and after.
    """
    xp = sizes.__array_namespace__()
    descending = -xp.sort(-sizes, axis=-1)
    if k >= sizes.shape[-1]:
        return descending
    head = descending[..., :k]
    rest = xp.sum(descending[..., k:], axis=-1, keepdims=True)
    # place j = k − r − 1, from 0: the sum from there on, in r + 1 = k − j equal parts
    equal = (rest + xp.cumsum(head[..., ::-1], axis=-1)[..., ::-1]) / xp.arange(k, 0, -1)
    before = xp.concatenate([xp.full_like(head[..., :1], xp.inf), head[..., :-1]], axis=-1)
    first = xp.argmin(xp.maximum(equal - before, head - equal), axis=-1)[..., None]
    return xp.where(xp.arange(k) < first, head, xp.take_along_axis(equal, first, axis=-1))


def _shortened(sizes: np.ndarray, k: int) -> np.ndarray:
    """The nearest sizes whose k largest have a length of at most 1.

    They are s/(1 + μ θ), where the θ between 0 and 1 sum to k: 1 for the largest, and such that the entries in
    between become equal, to a level. μ is that at which the length is 1.
    """
    descending = -np.sort(-sizes)
    length = float(np.linalg.norm(descending[:k]))
    if length <= 1:
        return sizes

    def shrunk(divisor: float) -> np.ndarray:
        return np.asarray(np.maximum(sizes / divisor, np.minimum(sizes, _level(descending, k, divisor))))

    def excess(log_divisor: float) -> float:
        return float(np.linalg.norm(-np.sort(-shrunk(np.exp(log_divisor)))[:k]) - 1)

    high = np.log(length)
    while excess(high) > 0:
        high += 1.0
    divisor = np.exp(brentq(excess, 0.0, high, xtol=1e-300)) if high > 0 else length
    result = shrunk(divisor)
    return np.asarray(result / max(float(np.linalg.norm(-np.sort(-result)[:k])), 1.0))


def _level(descending: np.ndarray, k: int, divisor: float) -> float:
    """The level τ at which Σ min(max((s/τ − 1)/(divisor − 1), 0), 1) = k; 0 if no level is low enough."""
    if divisor <= 1 or np.count_nonzero(descending) <= k:
        return float(descending[k - 1]) if divisor <= 1 else 0.0
    positive = descending[descending > 0]
    # in 1/τ, the sum is linear between the breakpoints 1/s and divisor/s
    inverse = np.concatenate([1 / positive, divisor / positive])
    slopes = np.concatenate([positive, -positive]) / (divisor - 1)
    order = np.argsort(inverse)
    inverse, slope = inverse[order], np.cumsum(slopes[order])
    totals = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(inverse))])
    place = min(int(np.searchsorted(totals, k, side="right")), len(totals) - 1) - 1
    rise = totals[place + 1] - totals[place]
    share = (k - totals[place]) / rise if rise > 0 else 0.0
    return 1 / float(inverse[place] + share * (inverse[place + 1] - inverse[place]))


NORMS.register("ksupport", KSupport)
