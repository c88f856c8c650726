"""The loop of every iterative method: when it ends, what it reports, and the best iterate of each problem.

A method provides three functions (:class:`Iteration`): ``evaluate`` its iterates, ``advance`` them by one step, and
``select`` the problems that still run. All arrays have a leading axis of N problems, which is 1 for a method that
solves one problem at a time; such a method never has to select.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int

Report = Callable[[int, float], bool]
"""Called with the step and the relative gap; a true return value stops a solver."""


class Stop(NamedTuple):
    """When the iteration of a problem ends.

    Patience is for the rounding errors that remain at the end: an infeasible iterate far from the optimum may look
    better than later ones, so only evaluations after a gap below ``small`` use it up.
    """

    target: float  # the relative gap that is small enough
    max_steps: int = 60
    patience: int = 4  # evaluations in which the gap has to be halved
    small: float = 1e-5
    far_patience: float = np.inf  # the same while the gap is finite and not below ``small``
    stride: int = 1  # steps between two evaluations


class Iterates(NamedTuple):
    """The current iterates of the problems that still run."""

    weights: Float[np.ndarray, "N *W"]
    multipliers: Float[np.ndarray, "N *m"]
    gap: Float[np.ndarray, " N"]  # an estimate; the certificate decides
    alive: Bool[np.ndarray, " N"]  # False where the iteration cannot go on


class Point(NamedTuple):
    """Weights and multipliers of N problems, with estimates of their gaps, and the number of steps to them."""

    weights: Float[np.ndarray, "N *W"]
    multipliers: Float[np.ndarray, "N *m"]
    gap: Float[np.ndarray, " N"]
    steps: Int[np.ndarray, " N"]

    @classmethod
    def unsolved(cls, weights: np.ndarray, multipliers: np.ndarray) -> "Point":
        """Copy a point whose gap is unknown, ∞."""
        count = len(weights)
        return cls(weights.copy(), multipliers.copy(), np.full(count, np.inf), np.zeros(count, dtype=int))

    def improve(self, index: Int[np.ndarray, " some"], found: "Point | Iterates") -> Bool[np.ndarray, " some"]:
        """Overwrite the problems at ``index`` where ``found`` has a smaller gap, and return where; not their steps."""
        better = np.asarray(found.gap < self.gap[index])
        number = np.count_nonzero(better)
        if number == len(self.gap):  # no copy of a copy
            self.weights[:], self.multipliers[:], self.gap[:] = found.weights, found.multipliers, found.gap
        elif number:
            improved = index[better]
            self.weights[improved], self.multipliers[improved] = found.weights[better], found.multipliers[better]
            self.gap[improved] = found.gap[better]
        return better


class Iteration(ABC):
    """N problems that are iterated together. ``LinAlgError`` in any of the three functions ends the iteration."""

    @abstractmethod
    def evaluate(self) -> Iterates:
        """Return the current iterates, with their gaps."""

    @abstractmethod
    def advance(self) -> int | None:
        """Make one step; return how many it counts for, if not 1."""

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        """Drop the other problems."""
        raise NotImplementedError("a method for one problem is never asked to drop some")


def iterate(method: Iteration, start: Point, stop: Stop, report: Report | None = None) -> Point:
    """Return the best iterate of each problem.

    ``start``: returned where no iterate has a smaller gap; overwritten. ``report``: called as ``report(step, largest
    gap)`` at every evaluation; a true return value ends the iteration.
    """
    best, running = start, np.arange(len(start.gap))
    stalled, halved, step = np.zeros(len(running), int), np.full(len(running), np.inf), 0
    watched = stop.small if stop.far_patience == np.inf else np.inf  # the gaps from which on patience counts
    # after a failed factorisation (there is a NaN) the caller may solve the unfinished problems by another method
    with contextlib.suppress(np.linalg.LinAlgError):
        while True:
            now, before = method.evaluate(), best.gap[running]
            best.improve(running, now)
            going, late = (now.gap > stop.target) & now.alive, before < watched
            if np.count_nonzero(late):
                progress = now.gap <= 0.5 * halved
                halved = np.where(progress, now.gap, halved)
                stalled = np.where(progress, 0, stalled + late)
                going &= stalled < np.where(before < stop.small, stop.patience, stop.far_patience)
            stopped = report is not None and report(step, float(best.gap.max()))
            number = np.count_nonzero(going)
            if stopped or step >= stop.max_steps or number == 0:
                break
            if number < len(going):
                best.steps[running[~going]] = step
                method.select(going)
                running, stalled, halved = running[going], stalled[going], halved[going]
            for _ in range(min(stop.stride, stop.max_steps - step)):
                step += method.advance() or 1
    best.steps[running] = step
    return best


class Watch:
    """A report over several iterations: it continues to count the steps, and remembers that it was stopped."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.stopped = False
        self._before = self._last = 0

    def __call__(self, step: int, gap: float) -> bool:
        """Report a step, counted from 0 in each iteration; return whether to stop."""
        if step == 0:
            self._before = self._last
        self._last = self._before + step
        if self.report is not None and not self.stopped:
            self.stopped = self.report(self._last, gap)
        return self.stopped
