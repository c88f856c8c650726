"""One problem under a fixed head: the lowest of several branches of local minima at each radius.

The radii are the given ones, and others between and before them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from attsvm._utils.progress import Callback, Progress
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.balls import Found, WeightBall
from attsvm.regularization.excess import Excess, Separation
from attsvm.regularization.kept_sets import tail_of
from attsvm.regularization.linear import LinearExcess

_SAME = 1e-6


@dataclass(frozen=True)
class Point:
    """A minimum of the loss on a path."""

    weights: np.ndarray  # shape (d_k d_q,)
    excess: Excess  # over the loss of the head's optimal tokens
    residual: float


@dataclass(frozen=True)
class JointPoint(Point):
    """A minimum in attention and head."""

    excess: LinearExcess
    head: np.ndarray  # shape (d,)
    head_residual: float


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


def radius_grid(radii: np.ndarray, first: float) -> list[float]:
    """The radii, and others between and before them, so that none is more than four times the last."""
    grid = [min(first, float(radii[0]))]
    for radius in radii.tolist():
        steps = max(1, int(np.ceil(np.log(radius / grid[-1]) / np.log(GROWTH) - 1e-9)))
        between = grid[-1] * (radius / grid[-1]) ** (np.arange(1, steps) / steps)
        grid += [*between.tolist(), radius]
    return sorted(set(grid))


def joint_grid(radii: np.ndarray, head_radii: np.ndarray, first: float) -> list[tuple[float, float]]:
    """Pairs of radii between and before the given ones; before the first pair they keep its proportion."""
    scale = min(1.0, first / radii[0], FIRST_LOGIT / head_radii[0])
    both = np.stack([radii, head_radii], axis=1)
    grid = [tuple((scale * both[0]).tolist())]
    for target in both:
        last = np.array(grid[-1])
        steps = max(1, int(np.ceil(np.log((target / last).max()) / np.log(GROWTH) - 1e-9)))
        grid += [tuple((last * (target / last) ** (part / steps)).tolist()) for part in range(1, steps)]
        grid.append(tuple(target.tolist()))
    return sorted(set(grid))


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


START_LOGITS = (1.0, 3.0, 10.0)
"""Random branches start at weights whose largest logits are about these."""


def follow(problem: Problem, excess: Excess, radii: np.ndarray, ball: WeightBall, watch: Watch) -> list[Point]:
    """The minima at the radii; at those reached so far if the callback stops the search.

    Raises ProblemError if the loss does not depend on the attention.
    """
    check_depends(excess)
    lowest = _Lowest(excess)
    wanted = set(radii.tolist())
    for radius in _search(problem, ball, excess, radius_grid(radii, first_radius(excess, ball)), lowest):
        if radius in wanted and watch.stops(len(wanted & lowest.best.keys()), partial(lowest.loss, radius)):
            break
    found = {radius: lowest.best[radius] for radius in radii.tolist() if radius in lowest.best}
    return [Point(minimum.weights, excess, minimum.residual) for minimum in found.values()]


def check_depends(excess: Excess) -> None:
    """Raise a ProblemError if the loss does not depend on the attention."""
    if not excess.depends_on_attention:
        raise ProblemError("problem: the loss does not depend on the attention: tokens of equal scores or equal keys")


def lowest_minima(problem: Problem, excess: Excess, radii: np.ndarray, ball: WeightBall) -> dict[float, Found]:
    """The lowest minimum known at each of the radii, and at those between that the search adds."""
    lowest = _Lowest(excess)
    for _ in _search(problem, ball, excess, radius_grid(radii, first_radius(excess, ball)), lowest):
        pass
    return lowest.best


def direction_from_zero(ball: WeightBall, excess: Excess) -> np.ndarray:
    """The direction in which the path leaves W = 0."""
    if ball.cone is not None:
        return ball.cone.axis
    gradient = excess.expand(np.zeros(np.prod(ball.shape))).gradient
    if not gradient.any():
        gradient = np.random.default_rng(0).standard_normal(gradient.shape)
    return ball.steepest(gradient)


@dataclass
class _Lowest:
    """The lowest minimum known at each radius."""

    excess: Excess
    best: dict[float, Found] = field(default_factory=dict)

    def offer(self, radius: float, found: Found) -> bool:
        """Keep a minimum if it is the lowest so far. Returns whether another branch has reached it before."""
        old = self.best.get(radius)
        if old is not None:
            if is_close(old.weights, found.weights):
                return True
            if self._not_lower(found, old):
                return False
        self.best[radius] = found
        return False

    def loss(self, radius: float) -> float:
        return self.excess.loss_at(self.best[radius].weights)

    def _not_lower(self, one: Found, other: Found) -> bool:
        base = one.objective
        if isinstance(base, Excess) and base.same_as(other.objective):
            return base.value(one.weights) >= base.value(other.weights)
        return self.excess.order(one.weights) >= self.excess.order(other.weights)


def _search(problem: Problem, ball: WeightBall, excess: Excess, grid: list[float], lowest: _Lowest) -> Iterator[float]:
    """Follow the branches, and yield each radius after a minimisation."""
    for radius, found in _branch(ball, excess, direction_from_zero(ball, excess), grid):
        lowest.offer(radius, found)
        yield radius
    arrived = ball.cone is not None or excess.selects_optimal(lowest.best[grid[-1]].weights)
    for start in _other_starts(problem, ball, excess, grid, lowest):
        for upwards, sweep in ((True, grid[start.at :]), (False, grid[: start.at][::-1])):
            for radius, found in _branch(ball, excess, start.weights, sweep):
                met = lowest.offer(radius, found)
                yield radius
                # two branches that meet continue as one, unless this one had left the other before
                if met and (arrived or not upwards or start.is_random):
                    break


def minimum_from(ball: WeightBall, excess: Excess, begin: np.ndarray, radius: float) -> Found:
    """A local minimum; one whose gradient is rounding has the residual 1."""
    tail = tail_of(excess, begin)
    far = None if tail is None else ball.minimise_tail(tail, begin, radius)
    if far is not None:
        return far
    found = ball.minimise(excess, begin, radius)
    if not excess.is_rounding(found.weights):
        return found
    tail = tail_of(excess, found.weights)
    far = None if tail is None else ball.minimise_tail(tail, found.weights, radius)
    return found._replace(residual=1.0) if far is None else far


def _branch(
    ball: WeightBall, excess: Excess, start: np.ndarray, grid: Sequence[float]
) -> Iterator[tuple[float, Found]]:
    """Local minima along the grid; each search starts at the extrapolation of the last two."""
    previous: tuple[float, np.ndarray] | None = None
    last: tuple[float, np.ndarray] | None = None
    for radius in grid:
        begin = start * (radius / ball.size(start))
        if last is not None and last[1].any():
            begin = last[1] * (radius / last[0])
            if previous is not None and radius > last[0]:
                # W_R is R times its direction plus a part that stays finite
                ahead = last[1] + (radius - last[0]) / (last[0] - previous[0]) * (last[1] - previous[1])
                ahead = ahead * (radius / ball.size(ahead))
                around = excess.rebased(begin)
                begin = ahead if around.value(ahead) < around.value(begin) else begin
        found = minimum_from(ball, excess, begin, radius)
        previous, last = last, (radius, found.weights)
        yield radius, found


class _Start(NamedTuple):
    """Weights where a branch starts, and the place of its first radius in the grid."""

    weights: np.ndarray
    at: int
    is_random: bool = False


def _other_starts(
    problem: Problem, ball: WeightBall, excess: Excess, grid: list[float], lowest: _Lowest
) -> Iterator[_Start]:
    """Weights where other branches start.

    In a cone they start at its axis, otherwise at weights that separate the optimal tokens, and, if the ball
    or the head gives rise to further minima, at random ones.
    """
    if ball.cone is not None:
        yield from (_Start(ball.cone.axis, at) for at in range(1, len(grid), 2))
        return
    active = problem.canonical.active
    optimal = np.full(active.shape, -1)
    optimal[active] = excess.optimal
    separators = ball.separators(problem, optimal if problem.has_query_axis else optimal[..., 0])
    yield from (_Start(weights, len(grid) - 1) for weights in separators)
    generator, first = np.random.default_rng(0), first_radius(excess, ball)
    for logit in START_LOGITS:
        at = int(np.argmin(np.abs(np.log(np.array(grid) / first * FIRST_LOGIT / logit))))
        for _ in range(max(ball.random_starts, excess.random_starts)):
            yield _Start(generator.standard_normal(np.prod(ball.shape)), at, is_random=True)
    yield from _at_optimal(ball, excess, grid, lowest)


def _at_optimal(ball: WeightBall, excess: Excess, grid: list[float], lowest: _Lowest) -> Iterator[_Start]:
    """Weights that separate the optimal tokens, at the first radius with a minimum there.

    The branch may leave the optimal tokens again at larger radii. Another one then starts at the last radius.
    """
    separation = Separation(excess)
    if not len(separation.rows):
        return
    weights = ball.steepest(separation.expand(np.zeros(np.prod(ball.shape))).gradient)
    last, started = len(grid) - 1, False
    for at, radius in enumerate(grid):
        if not weights.any():  # the minimum is at zero: nothing separates
            return
        weights = ball.minimise(separation, weights * (radius / ball.size(weights)), radius).weights
        if (separation.rows @ weights).max() >= 0 or (started and at < last):
            continue
        found = ball.minimise(excess, weights, radius)
        if excess.selects_optimal(found.weights):
            yield _Start(found.weights, at)
            started = True
            if excess.selects_optimal(lowest.best[grid[-1]].weights):
                return
