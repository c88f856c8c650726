"""The lowest of several branches of local minima at each place of a grid: the mechanism of all paths.

A place is a radius of the attention weights (``fixed_head``), or a pair of radii of attention and head (``joint``).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from attsvm._utils.progress import Callback, Progress
from attsvm.regularization.balls import WeightBall
from attsvm.regularization.excess import Excess

P = TypeVar("P")
"""A local minimum."""

_SAME = 1e-6


@dataclass(frozen=True)
class Point:
    """A minimum of the loss on a path."""

    weights: np.ndarray  # shape (d_k d_q,)
    excess: Excess  # over the loss of the head's optimal tokens
    residual: float


def is_close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two minima are the same up to 1e-6 of their length."""
    return bool(np.linalg.norm(one - other) <= _SAME * np.linalg.norm(one))


GROWTH = 4.0
"""A radius is at most this many times the last one, since the saturation changes by the same factor."""
FIRST_LOGIT = 0.1
"""Size of the logits at the first radius, where the loss is nearly linear and has one minimum."""


def first_radius(excess: Excess, ball: WeightBall) -> float:
    """The radius up to which all differences of logits are small."""
    dual = ball.norm.dual
    # N* of (k_α − k_t) z', a product of rank one
    longest = np.max(dual.values(excess.keys, 1) * dual.values(excess.queries, 1)[:, None] * excess.allowed)
    return FIRST_LOGIT / float(longest)


def place_of_logits(radii: Sequence[float], first: float, logit: float) -> int:
    """The place of the radius at which logits are about as large as ``logit``."""
    return int(np.argmin(np.abs(np.log(np.array(radii) / first * FIRST_LOGIT / logit))))


def grid_through(targets: np.ndarray, first: np.ndarray) -> list[tuple[float, ...]]:
    """The targets, shape (L, k), and places between and before them.

    None of the k radii is more than four times that of the last place. ``first``: the first place, shape (k,).
    """
    grid = [tuple(first.tolist())]
    for target in targets:
        last = np.array(grid[-1])
        steps = max(1, int(np.ceil(np.log((target / last).max()) / np.log(GROWTH) - 1e-9)))
        grid += [tuple((last * (target / last) ** (part / steps)).tolist()) for part in range(1, steps)]
        grid.append(tuple(target.tolist()))
    return sorted(set(grid))


def direction_from_zero(ball: WeightBall, excess: Excess) -> np.ndarray:
    """The direction in which the path leaves W = 0."""
    if ball.cone is not None:
        return ball.cone.axis
    gradient = excess.expand(np.zeros(np.prod(ball.shape))).gradient
    if not gradient.any():
        gradient = np.random.default_rng(0).standard_normal(gradient.shape)
    return ball.steepest(gradient)


@dataclass
class Watch:
    """Calls the callback after each minimisation, and remembers whether it stopped the work."""

    callback: Callback | None
    steps: int  # radii of all problems
    before: int = 0  # radii of the problems that are finished
    stopped: bool = False
    started: float = field(default_factory=time.perf_counter)

    def stops(self, solved: int, loss: Callable[[], float]) -> bool:
        """Report that a problem has minima at ``solved`` of its radii, and the last loss; whether to stop."""
        if self.callback is None:
            return False
        progress = Progress(self.before + solved, self.steps, time.perf_counter() - self.started, loss=loss())
        self.stopped = bool(self.callback(progress))
        return self.stopped


@dataclass(frozen=True)
class Branch:
    """Where a branch starts, and the places that it visits in this order."""

    start: Any  # what :meth:`Branches.minima` takes
    places: range
    passes: bool = False  # whether it goes on where it meets a branch that is known


@dataclass
class Branches(ABC, Generic[P]):
    """The branches of one problem, and the lowest minimum known at each place of a grid."""

    best: dict[int, P] = field(default_factory=dict, init=False)

    @abstractmethod
    def branches(self) -> Iterator[Branch]:
        """The branches to follow. Where the next one starts may depend on ``best``."""

    @abstractmethod
    def minima(self, start: Any, places: range) -> Iterator[P]:
        """Local minima at the places; each search starts at the last one."""

    @abstractmethod
    def is_same(self, one: P, other: P) -> bool:
        """Whether two branches have met in a minimum."""

    @abstractmethod
    def is_lower(self, one: P, other: P) -> bool:
        """Whether the loss of one minimum is below that of another."""

    @abstractmethod
    def loss(self, point: P) -> float:
        """The loss at a minimum."""

    def search(self) -> Iterator[int]:
        """Follow all branches; yields each place after a minimisation there."""
        for branch in self.branches():
            for place, point in zip(branch.places, self.minima(branch.start, branch.places), strict=True):
                known = self.best.get(place)
                met = known is not None and self.is_same(known, point)
                if known is None or (not met and self.is_lower(point, known)):
                    self.best[place] = point
                yield place
                # two branches that meet continue as one, unless this one had left the other before
                if met and not branch.passes:
                    break

    def follow(self, wanted: Sequence[int], watch: Watch) -> list[P]:
        """The minima at these places; at those reached so far if the callback stops the search."""
        for place in self.search():
            if place in wanted:
                solved = sum(other in self.best for other in wanted)
                if watch.stops(solved, partial(self.loss, self.best[place])):
                    break
        return [self.best[place] for place in wanted if place in self.best]
