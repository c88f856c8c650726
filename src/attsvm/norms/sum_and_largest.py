"""Norms that are linear in the sum and in the largest of the absolute entries, such as ‖W‖₁ + 3 ‖W‖_∞."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from attsvm.norms.ball import project_on_ball, share_between
from attsvm.norms.base import Norm
from attsvm.norms.lp import Lp
from attsvm.norms.scaled import scaled, times

Pair = tuple[float, float]
"""Numbers α and β."""


@dataclass(frozen=True)
class _OfPairs(Norm):
    """A norm that is given by pairs (α, β), in ascending order of β."""

    pairs: tuple[Pair, ...]

    def value(self, x: Any, axes: int = 2) -> Any:
        values = self.values(x, min(axes, np.ndim(x)))
        return values if values.ndim else float(values)


@dataclass(frozen=True)
class SumAndLargest(_OfPairs):
    """The largest α ‖W‖₁ + β ‖W‖_∞ of several pairs. :func:`sum_of` and :func:`max_of` make such norms.

    Parameters
    ----------
    pairs : tuple of (float, float)
        The numbers α and β ≥ 0: the corners of a concave curve, in ascending order of β.

    See Also
    --------
    attsvm.norms.DualSumAndLargest, attsvm.norms.sum_of, attsvm.norms.max_of

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, max_of, sum_of
    >>> sum_of([Lp(1), Lp(np.inf)], [1.0, 3.0])
    SumAndLargest(pairs=((1.0, 3.0),))
    >>> max_of([Lp(1), Lp(np.inf)], [1.0, 3.0]).value([[1.0, -2.0], [0.5, 0.0]])
    6.0
    """

    @property
    def name(self) -> str:
        """Such as "l1+3*linf" or "max(l1;5*linf)"."""
        terms = [
            "+".join(times(c, part) for c, part in zip(pair, ("l1", "linf"), strict=True) if c > 0)
            for pair in self.pairs
        ]
        return terms[0] if len(terms) == 1 else f"max({';'.join(terms)})"

    @property
    def dual(self) -> "DualSumAndLargest":
        return DualSumAndLargest(self.pairs)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        total, largest = Lp(1).values(x, axes), Lp(np.inf).values(x, axes)
        return np.asarray(np.max([alpha * total + beta * largest for alpha, beta in self.pairs], axis=0))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """That of ℓ1, and then that of ℓ∞, for the point of the curve at which the two are in balance."""
        found = _shrunk(x, step, self.pairs[0])
        for pair in pairwise(self.pairs):
            ends = np.array(pair)

            def at(share: float, ends: np.ndarray = ends) -> np.ndarray:
                return _shrunk(x, step, share * ends[0] + (1 - share) * ends[1])

            def excess(share: float, ends: np.ndarray = ends) -> float:
                w = np.abs(at(share, ends))
                return float((ends[0] - ends[1]) @ (w.sum(), w.max()))

            share = share_between(excess)
            found = at(share)
            if share > 0:
                break
        return found

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """The largest α √D + β, for D entries."""
        return max(alpha * Lp(1).frobenius_factor(shape) + beta for alpha, beta in self.pairs)


@dataclass(frozen=True)
class DualSumAndLargest(_OfPairs):
    """The dual of :class:`SumAndLargest`: the least max_k S_k / (k α + β) over the points (α, β) of its curve.

    S_k is the sum of the k largest absolute entries.

    See Also
    --------
    attsvm.norms.SumAndLargest

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, sum_of
    >>> sum_of([Lp(1), Lp(np.inf)], [1.0, 3.0]).dual.value([[1.0, -4.0], [0.0, 2.0]])
    1.2
    """

    @property
    def name(self) -> str:
        """Such as "dual of l1+3*linf"."""
        return f"dual of {self.dual.name}"

    @property
    def dual(self) -> SumAndLargest:
        """The largest α ‖W‖₁ + β ‖W‖_∞."""
        return SumAndLargest(self.pairs)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        array = np.asarray(x, dtype=np.float64)
        lead = array.shape[: array.ndim - axes]
        flat = np.abs(array).reshape(int(np.prod(lead)), -1)
        values = flat.max(axis=-1, initial=0.0)
        for k in np.flatnonzero((values > 0) & np.isfinite(values)):
            sizes = -np.sort(-flat[k] / values[k])
            values[k] *= _least_ratio(np.cumsum(sizes), self.pairs)
        return np.asarray(values.reshape(lead))

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        """The nearest point of the ball of the largest α ‖W‖₁ + β ‖W‖_∞."""
        return project_on_ball(self.dual, x)

    def steepest(self, g: Any) -> Any:
        """α for each entry, and β for the largest one, with the signs of g."""
        xp = g.__array_namespace__()
        pairs = xp.asarray(self.pairs, dtype=g.dtype)
        sizes = xp.abs(g)
        alpha, beta = pairs[xp.argmax(pairs @ xp.stack([xp.sum(sizes), xp.max(sizes)]))]
        return alpha * xp.sign(g) + beta * Lp(1).steepest(g)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """The least over the pairs of the largest √k / (k α + β)."""
        k = np.arange(1, np.prod(shape) + 1)
        return min(float((np.sqrt(k) / (k * alpha + beta)).max()) for alpha, beta in self.pairs)


def largest_of_pairs(pairs: Sequence[Pair]) -> Norm:
    """The largest α ‖W‖₁ + β ‖W‖_∞ of some pairs: a multiple of ℓ1 or ℓ∞, if one pair with a 0 is the largest."""
    corners: list[Pair] = []
    for alpha, beta in sorted(set(pairs), key=lambda pair: (pair[1], pair[0])):
        while corners and (corners[-1][0] <= alpha or _is_below(corners, (alpha, beta))):
            corners.pop()
        corners.append((alpha, beta))
    alpha, beta = corners[0]
    if len(corners) == 1 and 0 in corners[0]:
        return scaled(Lp(1), alpha) if beta == 0 else scaled(Lp(np.inf), beta)
    return SumAndLargest(tuple(corners))


def _is_below(corners: Sequence[Pair], after: Pair) -> bool:
    """Whether the last corner is not above the line from the one before it to the one after it."""
    if len(corners) < 2:
        return False
    before, middle = corners[-2:]
    rise, run = after[1] - before[1], after[0] - before[0]
    return (before[0] - middle[0]) * rise + (middle[1] - before[1]) * run >= 0


def _shrunk(x: np.ndarray, step: float, pair: Any) -> np.ndarray:
    """The proximal point of α ‖w‖₁ + β ‖w‖_∞."""
    for norm, number in zip((Lp(1), Lp(np.inf)), pair, strict=True):
        x = norm.prox(x, step * number) if number > 0 else x
    return x


def _least_ratio(sums: np.ndarray, pairs: Sequence[Pair]) -> float:
    """The least max_k S_k / (k α + β) over the points of the curve through the pairs."""
    k = np.arange(1, len(sums) + 1)
    lines = np.array([(k * alpha + beta) / sums for alpha, beta in pairs])
    ends = [float(line.min()) for line in lines]
    return 1 / max(*ends, *(_highest(first, second) for first, second in pairwise(lines)), 0.0)


def _highest(first: np.ndarray, second: np.ndarray) -> float:
    """The largest value of min_k (1 − s) a_k + s b_k over 0 ≤ s ≤ 1, by the lines that are the least around it."""
    rising, falling = int(first.argmin()), int(second.argmin())
    best = max(float(first[rising]), float(second[falling]))
    rise = second - first
    while rise[rising] > 0 > rise[falling]:
        s = (first[falling] - first[rising]) / (rise[rising] - rise[falling])
        at = first + s * rise
        k = int(at.argmin())
        best = max(best, float(at[k]))
        if k in (rising, falling) or rise[k] == 0:
            break
        rising, falling = (k, falling) if rise[k] > 0 else (rising, k)
    return best
