"""The k-support norm and its dual, the length of the k largest entries."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy

from attsvm.checks import check_integer
from attsvm.norms.ball import project_on_ball
from attsvm.norms.base import Norm
from attsvm.norms.owl import ranks
from attsvm.norms.registry import NORMS

EPS = float(np.finfo(float).eps)

MOST_STEPS = 60
"""For the level of an equation; bisection alone would take as many."""


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

    See Also
    --------
    attsvm.norms.LargestEntries, attsvm.norms.Owl

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

    See Also
    --------
    attsvm.norms.KSupport

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
    ordered = _Ordered(sizes, k)
    length = ordered.length(1.0)
    if length <= 1:
        return sizes
    high = np.log(length)
    while ordered.length(np.exp(high)) > 1:
        high += 1.0
    log_divisor = high
    if high > 0:
        log_divisor = scipy.optimize.brentq(lambda x: ordered.length(np.exp(x)) - 1, 0.0, high, xtol=1e-300)
    divisor = float(np.exp(log_divisor))
    result = np.maximum(sizes / divisor, np.minimum(sizes, ordered.level(divisor)))
    return np.asarray(result / max(ordered.length(divisor), 1.0))


class _Ordered:
    """Sizes in order, with their sums: levels and lengths then need no pass over them."""

    def __init__(self, sizes: np.ndarray, k: int) -> None:
        self.ascending, self.k = np.sort(sizes), k
        descending = self.ascending[::-1]
        self.sums, self.squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (descending, descending**2))
        self.kth, self.after = float(descending[k - 1]), float(descending[k]) if k < len(sizes) else 0.0

    def length(self, divisor: float) -> float:
        """The length of the k largest of max(s/divisor, min(s, level))."""
        level = self.level(divisor)
        first = min(self._number(divisor * level, "left"), self.k)
        return float(np.sqrt(self.squares[first] / divisor**2 + (self.k - first) * level**2))

    def level(self, divisor: float) -> float:
        """The level τ at which Σ min(max((s/τ − 1)/(divisor − 1), 0), 1) = k; 0 if at most k sizes are positive."""
        if divisor <= 1 or self.after == 0:
            return self.kth if divisor <= 1 else 0.0
        low, high = self.kth / divisor, self.kth
        level, before = high, 0.0
        for _ in range(MOST_STEPS):
            # the sum is linear in 1/τ as long as the same sizes are between τ and divisor·τ
            first, last = self._number(divisor * level, "left"), self._number(level, "right")
            needed = (self.k - first) * (divisor - 1) + last - first
            between = float(self.sums[last] - self.sums[first])
            low, high = (level, high) if between >= needed * level else (low, level)
            guess = between / needed if needed > 0 else 0.0
            guess = guess if low <= guess <= high and guess != before else 0.5 * (low + high)
            if abs(guess - level) <= EPS * level:
                break
            before, level = level, guess
        return level

    def _number(self, size: float, side: Literal["left", "right"]) -> int:
        """How many sizes are at least ("left") or more than ("right") this."""
        return len(self.ascending) - int(self.ascending.searchsorted(size, side))


NORMS.register("ksupport", KSupport)
