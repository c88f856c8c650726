"""The k-support norm and its dual, the length of the k largest entries."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from attsvm._utils.checks import check_integer
from attsvm.norms.ball import project_on_ball
from attsvm.norms.base import Norm
from attsvm.norms.owl import ranks
from attsvm.norms.registry import NORMS

EPS = float(np.finfo(float).eps)

MOST_STEPS = 60
"""For a level; bisection alone would take as many. Most projections need less than ten."""

NEWTON_STEPS = 6
"""For the level at which a convex function is 1. An error that is left only costs another step of those above."""


@dataclass(frozen=True)
class _OfLargestEntries(Norm):
    """A norm of the absolute entries in descending order, of which the k largest have a part of their own."""

    k: int

    def __post_init__(self) -> None:
        check_integer("k", self.k, 1)

    def value(self, x: Any, axes: int = 2) -> Any:
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
        """Return a name such as "ksupport3"."""
        return f"ksupport{self.k}"

    @property
    def dual(self) -> "LargestEntries":
        """The length of the k largest entries."""
        return LargestEntries(self.k)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        array = np.asarray(x, dtype=np.float64)
        flat = np.abs(array).reshape(*array.shape[: array.ndim - axes], -1)
        largest = flat.max(axis=-1, initial=0.0)
        scale = np.where(largest > 0, largest, 1.0)
        scaled = flat / scale[..., None]
        return np.asarray(scale * np.linalg.norm(_heads(scaled, self.k), axis=-1))

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        """The nearest point whose k largest entries have a length of at most 1."""
        return self._projected(x, np.ndim(x))

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        return np.asarray(x - step * self._projected(x / step, axes))

    def _projected(self, x: np.ndarray, axes: int) -> np.ndarray:
        """The nearest points of the dual ball, of arrays over the last ``axes`` axes."""
        sizes = np.abs(np.asarray(x, dtype=np.float64)).reshape(-1, math.prod(x.shape[x.ndim - axes :]))
        return np.asarray(np.sign(x) * _shortened(sizes, min(self.k, sizes.shape[1])).reshape(x.shape))

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
        """Read a name such as "ksupport3"."""
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
        """Return the k-support norm."""
        return KSupport(self.k)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
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
    first, part = _first_equal(head, rest)
    return xp.where(xp.arange(k) < first[..., None], head, part[..., None])


def _first_equal(head: Any, rest: Any) -> tuple[Any, Any]:
    """The place of the first of the equal numbers, and their size, from the k largest entries and the sum of others."""
    xp, k = head.__array_namespace__(), head.shape[-1]
    # place j = k − r − 1, from 0: the sum from there on, in r + 1 = k − j equal parts
    equal = (rest + xp.cumsum(head[..., ::-1], axis=-1)[..., ::-1]) / xp.arange(k, 0, -1)
    before = xp.concatenate([xp.full_like(head[..., :1], xp.inf), head[..., :-1]], axis=-1)
    first = xp.argmin(xp.maximum(equal - before, head - equal), axis=-1)[..., None]
    return first[..., 0], xp.take_along_axis(equal, first, axis=-1)[..., 0]


@np.errstate(divide="ignore", invalid="ignore")  # the level is 0 with at most k positive sizes
def _shortened(sizes: Float[np.ndarray, "N D"], k: int) -> Float[np.ndarray, "N D"]:
    """For each of several arrays, the nearest sizes whose k largest have a length of at most 1.

    They are max(s/μ, min(s, τ)): the a largest are divided by μ, those up to the place b become equal to a level τ, and
    the others remain. So the length is √(Q/μ² + (k − a) τ²) with the sum Q of the first a squares. At a given level,
    the k largest numbers of max(s − τ, 0) are those of :func:`_heads`, whose equal part is (μ − 1) τ; this determines
    a, b and μ. The length increases with the level, and at fixed a and b it is 1 at a level that Newton's method finds.
    Few pairs of a and b are tried.
    """
    descending = np.sort(sizes, axis=-1)[:, ::-1]
    head = np.ascontiguousarray(descending[:, :k])
    squares = _sums(head**2)
    long = squares[:, -1] > 1
    if not long.all():
        result = sizes.copy()
        if long.any():
            result[long] = _shortened(sizes[long], k)
        return result
    sums, row = _sums(descending), np.arange(len(sizes))
    few = descending[:, k] == 0 if k < descending.shape[1] else np.ones(len(sizes), bool)
    low, high = np.zeros(len(sizes)), np.where(few, 0.0, head[:, -1])
    level, divisor, size = high, np.sqrt(squares[:, -1]), np.ones(len(sizes))
    going = ~few
    for _ in range(MOST_STEPS):
        if not going.any():
            break
        above = np.maximum(np.count_nonzero(sizes > level[:, None], axis=-1), k)
        after = sums[row, above] - sums[:, k] - (above - k) * level
        first, part = _first_equal(head - level[:, None], after[:, None])
        shared = k - first
        total, square = sums[row, above] - sums[row, first], squares[row, first]
        divisor = np.where(going, 1 + part / level, divisor)
        size = np.where(going, np.sqrt(square / divisor**2 + shared * level**2), size)
        low, high = np.where(size < 1, level, low), np.where(size < 1, high, level)
        guess = _level_of_length_1(total, square, shared, above - k)
        guess = np.where((guess > low) & (guess < high), guess, 0.5 * (low + high))
        going &= (np.abs(size - 1) > EPS) & (high - low > EPS * high)
        level = np.where(going, guess, level)
    factor, least = (1 / np.maximum(size, 1.0))[:, None], level[:, None]
    return np.asarray(np.maximum(sizes * (factor / divisor[:, None]), np.minimum(sizes, least) * factor))


def _sums(numbers: np.ndarray) -> np.ndarray:
    """The sums of the first 0, 1, 2, … numbers of each array."""
    sums = np.zeros((len(numbers), numbers.shape[1] + 1))
    np.cumsum(numbers, axis=-1, out=sums[:, 1:])
    return sums


def _level_of_length_1(total: np.ndarray, square: np.ndarray, shared: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The τ > 0 with Q c²τ²/(S − mτ)² + cτ² = 1, whose left side is convex: Newton's method from a larger τ.

    S is the sum of the c + m sizes that become equal, so that μ = (S − mτ)/(cτ).
    """
    # each of the two terms is at most 1
    level = total / np.maximum(total * np.sqrt(shared), more + shared * np.sqrt(square))
    for _ in range(NEWTON_STEPS):
        left = total - more * level
        divided = square * (shared * level / left) ** 2
        slope = 2 * divided * (1 / level + more / left) + 2 * shared * level
        level = level - (divided + shared * level**2 - 1) / slope
    return np.asarray(level)


NORMS.register("ksupport", KSupport)
