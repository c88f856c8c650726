"""The loop of the methods that iterate many problems together: best iterates, and the problems that still run."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.methods.candidate import Report

PROGRESS = 0.5
"""A gap has to fall below this part of the best one to count as progress."""


class Point(NamedTuple):
    """Weights and multipliers of N problems, with estimates of their gaps; the certificate decides."""

    weights: Float[np.ndarray, "N *W"]
    multipliers: Float[np.ndarray, "N *m"]
    gap: Float[np.ndarray, " N"]
    steps: Int[np.ndarray, " N"]

    @classmethod
    def unsolved(cls, weights: np.ndarray, multipliers: np.ndarray) -> "Point":
        """A copy of a point whose gap is unknown, ∞."""
        count = len(weights)
        return cls(weights.copy(), multipliers.copy(), np.full(count, np.inf), np.zeros(count, dtype=int))

    def improve(self, index: Int[np.ndarray, " some"], found: "Point | Look") -> Bool[np.ndarray, " some"]:
        """Overwrite the problems at ``index`` where ``found`` has a smaller gap, which is returned; not their steps."""
        better = found.gap < self.gap[index]
        improved = index[better]
        self.weights[improved], self.multipliers[improved] = found.weights[better], found.multipliers[better]
        self.gap[improved] = found.gap[better]
        return np.asarray(better)


class Look(NamedTuple):
    """The iterates of the problems that still run."""

    weights: np.ndarray  # weights, multipliers, gap: as in :class:`Point`
    multipliers: np.ndarray
    gap: Float[np.ndarray, " N"]
    alive: Bool[np.ndarray, " N"]  # False where the iteration cannot go on
    # where the multipliers diverge, and are returned because they may prove infeasibility
    diverged: Bool[np.ndarray, " N"] | None = None


class Iteration(ABC):
    """N problems that are iterated together; what an iterative method provides."""

    patience: ClassVar[int]
    """Number of evaluations without progress after which a problem with a small gap is no longer iterated."""

    small: ClassVar[float]
    """Only evaluations below this gap count. Above it, an infeasible iterate may look better than later ones."""

    first_step: ClassVar[int] = 0
    """The number of the first evaluation."""

    @abstractmethod
    def look(self) -> Look:
        """The current iterates. ``LinAlgError`` ends the iteration."""

    @abstractmethod
    def keep(self, going: Bool[np.ndarray, " N"]) -> None:
        """Drop the other problems."""

    @abstractmethod
    def advance(self) -> None:
        """Make one step. ``LinAlgError`` ends the iteration."""


def iterate(iteration: Iteration, best: Point, target: float, max_steps: int, report: Report | None = None) -> Point:
    """The best iterate of each problem.

    ``best``: overwritten. ``target``: relative gap at which the iteration of a problem ends. It also ends when the gap
    has stopped falling. ``report``: called as ``report(step, largest gap)``; a true return value ends the iteration.
    """
    running, stalled = np.arange(len(best.gap)), np.zeros(len(best.gap), int)
    for step in range(iteration.first_step, max_steps + 1):
        try:
            now = iteration.look()
        except np.linalg.LinAlgError:
            break
        before = best.gap[running]
        best.improve(running, now)
        stalled = np.where(now.gap < PROGRESS * before, 0, stalled + (before < iteration.small))
        best.steps[running] = step
        if now.diverged is not None:
            best.multipliers[running[now.diverged]] = now.multipliers[now.diverged]
        going = (now.gap > target) & (stalled < iteration.patience) & now.alive
        stopped = report is not None and report(step, float(best.gap.max()))
        if stopped or step == max_steps or not going.any():
            break
        if not going.all():
            iteration.keep(going)
            running, stalled = running[going], stalled[going]
        try:
            iteration.advance()
        except np.linalg.LinAlgError:  # there is a NaN; the caller may start the unfinished problems again
            break
    return best


class Watch:
    """A report over several iterations: it continues to count the steps, and remembers that it was stopped."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.stopped = False
        self._before = self._last = 0

    def __call__(self, step: int, gap: float) -> bool:
        """Report a step, counted from 0 in each iteration; whether to stop."""
        if step == 0:
            self._before = self._last
        self._last = self._before + step
        if self.report is not None and not self.stopped:
            self.stopped = self.report(self._last, gap)
        return self.stopped
