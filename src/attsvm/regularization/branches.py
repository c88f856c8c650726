"""The lowest of several branches of local minima at each place of a grid: the mechanism of all paths.

A place is a radius of the attention weights under a fixed prediction head (:class:`FixedHead`), or a pair of radii of
attention and prediction head (``JointBranches`` in ``path``).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from attsvm._utils.progress import Callback, Progress
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.balls import BallMinimum, WeightBall
from attsvm.regularization.flat_excess import FlatExcess
from attsvm.regularization.gaps import Flat, LogSum
from attsvm.regularization.kept_sets import tail_of

P = TypeVar("P")
"""A local minimum."""

_SAME = 1e-6
"""Minima that are nearer than this part of their length are the same: more than their residuals leave open."""


@dataclass(frozen=True)
class PathPoint:
    """A minimum of the loss on a path."""

    weights: np.ndarray  # shape (d_k d_q,)
    excess: FlatExcess  # over the loss of the head's optimal tokens
    residual: float


def is_close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two minima are the same up to 1e-6 of their length."""
    return bool(np.linalg.norm(one - other) <= _SAME * np.linalg.norm(one))


GROWTH = 4.0
"""A radius is at most this many times the last one, since the saturation changes by the same factor."""
FIRST_LOGIT = 0.1
"""Size of the logits at the first radius, where the loss is nearly linear and has one minimum."""


def first_radius(excess: FlatExcess, ball: WeightBall) -> float:
    """The radius up to which all differences of logits are small."""
    # |⟨(k_α − k_t) z', W⟩| ≤ N*((k_α − k_t) z') N(W)
    return FIRST_LOGIT / float(excess.stack.largest_gaps(ball.norm)[0])


def place_of_logits(radii: Sequence[float], first: float, logit: float) -> int:
    """The place of the radius at which logits are about as large as ``logit``."""
    # logits are about FIRST_LOGIT at the first radius, and grow in proportion to it
    return int(np.argmin(np.abs(np.log(np.array(radii) / first * FIRST_LOGIT / logit))))


def grid_through(targets: np.ndarray, first: np.ndarray) -> list[tuple[float, ...]]:
    """The targets, shape (L, k), and places between and before them.

    None of the k radii is more than four times that of the last place. ``first``: the first place, shape (k,).
    """
    grid = [tuple(first.tolist())]
    for target in targets:
        last = np.array(grid[-1])
        # the fewest steps of equal ratio, each at most GROWTH; 1e-9 is for the rounding of the logarithms
        steps = max(1, int(np.ceil(np.log((target / last).max()) / np.log(GROWTH) - 1e-9)))
        grid += [tuple((last * (target / last) ** (part / steps)).tolist()) for part in range(1, steps)]
        grid.append(tuple(target.tolist()))
    return sorted(set(grid))


def direction_from_zero(ball: WeightBall, excess: FlatExcess) -> np.ndarray:
    """The direction in which the path leaves W = 0."""
    if ball.cone is not None:
        return ball.cone.axis
    gradient = excess.expand(np.zeros(np.prod(ball.shape))).gradient
    if not gradient.any():
        # W = 0 is stationary, so that no direction is the first one: a fixed random one
        gradient = np.random.default_rng(0).standard_normal(gradient.shape)
    return ball.steepest(gradient)


@dataclass
class PathWatch:
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

    def follow(self, wanted: Sequence[int], watch: PathWatch) -> list[P]:
        """The minima at these places; at those reached so far if the callback stops the search."""
        for place in self.search():
            if place in wanted:
                solved = sum(other in self.best for other in wanted)
                if watch.stops(solved, partial(self.loss, self.best[place])):
                    break
        return [self.best[place] for place in wanted if place in self.best]


START_LOGITS = (1.0, 3.0, 10.0)
"""Random branches start at weights whose largest logits are about these."""


def minimum_from(ball: WeightBall, excess: FlatExcess, begin: np.ndarray, radius: float) -> BallMinimum:
    """A local minimum; one whose gradient is rounding has the residual 1."""
    # far along the path the part of the dropped tokens is convex, and keeps the digits that the excess loses
    tail = tail_of(excess, begin)
    far = None if tail is None else ball.minimise_tail(tail, begin, radius)
    if far is not None:
        return far
    found = ball.minimise(excess, begin, radius)
    if not excess.is_rounding(found.weights):
        return found
    tail = tail_of(excess, found.weights)
    far = None if tail is None else ball.minimise_tail(tail, found.weights, radius)
    # the residual of a gradient that is rounding says nothing: 1 marks the point as not solved
    return found._replace(residual=1.0) if far is None else far


@dataclass
class FixedHead(Branches[BallMinimum]):
    """The minima in the balls of the radii of ``grid``."""

    problem: Problem
    excess: FlatExcess
    ball: WeightBall
    grid: list[float]

    @classmethod
    def from_radii(cls, problem: Problem, excess: FlatExcess, ball: WeightBall, radii: np.ndarray) -> "FixedHead":
        """Along the radii, and others between and before them.

        Raises ProblemError if the loss does not depend on the attention.
        """
        if not excess.depends_on_attention:
            raise ProblemError(
                "problem: the loss does not depend on the attention: tokens of equal scores or equal keys"
            )
        first = np.minimum(first_radius(excess, ball), radii[:1])
        return cls(problem, excess, ball, [radius for (radius,) in grid_through(radii[:, None], first)])

    def loss(self, point: BallMinimum) -> float:
        return self.excess.loss_at(point.weights)

    def is_same(self, one: BallMinimum, other: BallMinimum) -> bool:
        return is_close(one.weights, other.weights)

    def is_lower(self, one: BallMinimum, other: BallMinimum) -> bool:
        # over the same tokens α both values have all digits; otherwise the losses are compared
        base = one.objective
        if isinstance(base, FlatExcess) and base.same_as(other.objective):
            return base.value(one.weights) < base.value(other.weights)
        return self.excess.order(one.weights) < self.excess.order(other.weights)

    def minima(self, start: np.ndarray, places: range) -> Iterator[BallMinimum]:
        """Local minima at radii; each search starts at the extrapolation of the last two."""
        ball, excess = self.ball, self.excess
        previous: tuple[float, np.ndarray] | None = None
        last: tuple[float, np.ndarray] | None = None
        for place in places:
            radius = self.grid[place]
            begin = start * (radius / ball.size(start))
            if last is not None and last[1].any():
                begin = last[1] * (radius / last[0])
                if previous is not None and radius > last[0]:
                    # W_R is R times its direction plus a part that stays finite
                    ahead = last[1] + (radius - last[0]) / (last[0] - previous[0]) * (last[1] - previous[1])
                    ahead = ahead * (radius / ball.size(ahead))
                    around = excess.rebased(begin)
                    # only if its loss is lower than that of the last minimum at the new radius
                    begin = ahead if around.value(ahead) < around.value(begin) else begin
            found = minimum_from(ball, excess, begin, radius)
            previous, last = last, (radius, found.weights)
            yield found

    def branches(self) -> Iterator[Branch]:
        """One from W = 0, and others.

        In a cone they start at its axis, otherwise at weights that separate the optimal tokens, and, if the ball
        or the head gives rise to further minima, at random ones.
        """
        ball, excess, grid = self.ball, self.excess, self.grid
        yield Branch(direction_from_zero(ball, excess), range(len(grid)))
        if ball.cone is not None:
            # the first branch follows one minimum; searches from the axis at other radii may find lower ones
            for at in range(1, len(grid), 2):
                yield from self._both_ways(ball.cone.axis, at)
            return
        # if the branch from zero ends at other tokens, these do not end where they meet it
        passes = not self._ends_optimal()
        active = self.problem.canonical.active
        optimal = np.full(active.shape, -1)
        optimal[active] = excess.optimal
        for weights in ball.separators(self.problem, optimal if self.problem.has_query_axis else optimal[..., 0]):
            yield from self._both_ways(weights, len(grid) - 1, passes)
        generator, first = np.random.default_rng(0), first_radius(excess, ball)
        for logit in START_LOGITS:
            at = place_of_logits(grid, first, logit)
            for _ in range(max(ball.random_starts, excess.random_starts)):
                yield from self._both_ways(generator.standard_normal(np.prod(ball.shape)), at)
        for weights, at in self._separating_starts():
            yield from self._both_ways(weights, at, passes)

    def _both_ways(self, weights: np.ndarray, at: int, passes: bool = False) -> Iterator[Branch]:
        yield Branch(weights, range(at, len(self.grid)), passes)
        yield Branch(weights, range(at - 1, -1, -1))

    def _ends_optimal(self) -> bool:
        return self.excess.selects_optimal(self.best[len(self.grid) - 1].weights)

    def _separating_starts(self) -> Iterator[tuple[np.ndarray, int]]:
        """Weights that separate the optimal tokens, and the first place with a minimum there.

        The branch may leave the optimal tokens again at larger radii. Another one then starts at the last radius.
        """
        # log Σ exp(s_t − s_α) over the dropped tokens is small where the optimal tokens α are selected
        ball, stack = self.ball, self.excess.stack
        dropped = np.where(stack.moving, 0.0, -np.inf)
        separation = Flat(LogSum(stack.keys, stack.queries, stack.reference, dropped))
        if not len(separation.rows):
            return
        weights = ball.steepest(separation.expand(np.zeros(np.prod(ball.shape))).gradient)
        last, started = len(self.grid) - 1, False
        for at, radius in enumerate(self.grid):
            if not weights.any():  # the minimum is at zero: nothing separates
                return
            weights = ball.minimise(separation, weights * (radius / ball.size(weights)), radius).weights
            # s_t ≥ s_α for some token t: the optimal tokens are not selected in this ball
            if (separation.rows @ weights).max() >= 0 or (started and at < last):
                continue
            found = ball.minimise(self.excess, weights, radius)
            if self.excess.selects_optimal(found.weights):
                yield found.weights, at
                started = True
                if self._ends_optimal():
                    return
