"""Iterations of weights alone, for methods of other packages."""

from abc import abstractmethod

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.svm.loop import Iterates, Iteration, Point, Stop, iterate


class PrimalIteration(Iteration):
    """An iteration of weights without multipliers, and without patience."""

    @abstractmethod
    def measure(self) -> tuple[np.ndarray, Float[np.ndarray, " N"], bool]:
        """Return the current weights, their gaps, and whether the iteration can go on."""

    def evaluate(self) -> Iterates:
        weights, gap, alive = self.measure()
        # where rounding leaves a NaN, later weights may be better
        gap = np.where(np.isnan(gap), np.inf, gap)
        return Iterates(weights, np.zeros((len(gap), 0)), gap, np.full(len(gap), alive))

    def run(self, start: np.ndarray, target: float, max_steps: int) -> Point:
        """Iterate to a gap of ``target``; ``start`` is returned where no gap is finite."""
        return iterate(self, Point.unsolved(start, np.zeros((len(start), 0))), Stop(target, max_steps, small=0.0))
