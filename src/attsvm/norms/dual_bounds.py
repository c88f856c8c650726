"""Bounds on the dual norm of a combination of norms, from both sides."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from attsvm.norms.base import Norm
from attsvm.norms.parts import MOST_ROUNDS, Parts, least_parts

Arrays = np.ndarray | Sequence[np.ndarray]
"""One array for each norm."""

MOST_STEPS = 20
"""Steps of Newton's method for a dual norm."""

QUICK_ROUNDS = 3
"""Rounds in which parts are found in closed form, where there is one."""

CLOSE = 1e-13
"""The relative distance of two bounds on a dual norm that is not worth another step."""

CLOSE_ENOUGH = 1e-11
"""The relative distance that is not worth another method."""


class Combination(Norm):
    """A norm that is made of the values of several norms."""

    norms: tuple[Norm, ...]
    weights: tuple[float, ...]  # a positive number for each of them

    @abstractmethod
    def split(self, x: np.ndarray, step: float, most_rounds: int = MOST_ROUNDS) -> Parts:
        """The parts whose sum is the nearest to x among those with ``dual_size`` at most ``step``."""

    @abstractmethod
    def of_copies(self, copies: np.ndarray, step: float) -> np.ndarray:
        """The proximal map of the combination, in which each norm has an array of its own, along the first axis."""

    @abstractmethod
    def dual_size(self, sizes: list[float]) -> float:
        """A bound on the dual norm of Σ u_i, from the dual norms N_i*(u_i)."""

    @abstractmethod
    def steepest_of_dual(self, g: np.ndarray) -> np.ndarray:
        """The point of the dual ball with the largest product with g."""


def bound_by_parts(norm: Combination, x: np.ndarray, parts: Arrays) -> float:
    """A bound on the dual norm of x from above: what the parts leave of x is added to each part in turn."""
    left = x - sum(parts)
    duals = [each.dual for each in norm.norms]
    sizes = [float(dual.values(u, u.ndim)) for dual, u in zip(duals, parts, strict=True)]
    whole = [float(dual.values(u + left, u.ndim)) for dual, u in zip(duals, parts, strict=True)]
    return min(norm.dual_size([*sizes[:i], whole[i], *sizes[i + 1 :]]) for i in range(len(sizes)))


class Bounds:
    """Bounds on the dual norm of an array of length 1: of its products from below, and of its parts from above."""

    def __init__(self, norm: Combination, x: np.ndarray) -> None:
        self.norm, self.x = norm, x
        self.size = self._value(x)
        self.lower, self.upper = 1 / self.size, math.inf

    def close(self, gap: float = CLOSE) -> bool:
        """Whether the bounds agree up to a relative distance, by default that of rounding."""
        return self.upper <= self.lower * (1 + gap)

    def improve_by_proximal_points(self) -> None:
        """Newton's method for the step at which the proximal point vanishes, as long as its parts converge quickly.

        With the proximal point r of x at a step t below N*(x), ⟨x, r⟩/N(r) is above t.
        """
        for _ in range(MOST_STEPS):
            before = self.lower
            parts = self.norm.split(self.x, before, QUICK_ROUNDS)
            self._see_parts(parts.arrays)
            self._see_weights(self.x - sum(parts.arrays))
            if not parts.converged or self.close() or self.lower <= before * (1 + CLOSE):
                break

    def improve_by_splitting(self) -> None:
        """Improve both bounds by Douglas-Rachford splitting."""

        def look(points: np.ndarray, copies: np.ndarray) -> bool:
            factor = float(np.vdot(points.sum(axis=0), self.x))
            if factor > 0:
                self._see_parts(points / factor)
            for weights in copies:
                self._see_weights(weights)
            return self.close()

        least_parts(self.norm.of_copies, len(self.norm.norms), self.x, self.size, look)

    def _see_weights(self, weights: np.ndarray) -> None:
        size = self._value(weights)
        if size > 0:
            self.lower = max(self.lower, float(np.vdot(self.x, weights)) / size)

    def _see_parts(self, parts: Arrays) -> None:
        self.upper = min(self.upper, bound_by_parts(self.norm, self.x, parts))

    def _value(self, x: np.ndarray) -> float:
        return float(self.norm.values(x, x.ndim))
