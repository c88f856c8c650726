"""One problem under a fixed head: the lowest of several branches of local minima at each radius."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.excess import Excess, Separation
from attsvm.regularization.grid import FIRST_LOGIT, first_radius, radius_grid
from attsvm.regularization.point import Point, is_close
from attsvm.regularization.progress import Watch
from attsvm.regularization.scalar import Scalar
from attsvm.regularization.weight_ball import Found, WeightBall

START_LOGITS = (1.0, 3.0, 10.0)
"""Random branches start at weights whose largest logits are about these."""


def follow(problem: Problem, radii: np.ndarray, ball: WeightBall, loss: Scalar, watch: Watch) -> list[Point]:
    """The minima at the radii; at those reached so far if the callback stops the search.

    Raises
    ------
    ProblemError
        If the loss does not depend on the attention.
    """
    assert problem.head is not None
    excess = Excess.of(problem, problem.head, loss)
    if not excess.depends_on_attention:
        raise ProblemError("problem: the loss does not depend on the attention: tokens of equal scores or equal keys")
    lowest = _Lowest(excess)
    wanted = set(radii.tolist())
    for radius in _search(problem, ball, excess, radius_grid(radii, first_radius(excess, ball)), lowest):
        if radius in wanted and watch.stops(len(wanted & lowest.best.keys()), partial(lowest.loss, radius)):
            break
    found = {radius: lowest.best[radius] for radius in radii.tolist() if radius in lowest.best}
    return [Point(minimum.weights, excess, minimum.residual, problem.head) for minimum in found.values()]


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
        return self.excess.infimum + float(np.exp(self.excess.value(self.best[radius].weights)))

    def _not_lower(self, one: Found, other: Found) -> bool:
        base = one.objective
        if isinstance(base, Excess) and base.same_as(other.objective):
            return base.value(one.weights) >= base.value(other.weights)
        return self.excess.value(one.weights) >= self.excess.value(other.weights)


def _search(problem: Problem, ball: WeightBall, excess: Excess, grid: list[float], lowest: _Lowest) -> Iterator[float]:
    """Follow the branches, and yield each radius after a minimisation."""
    for radius, found in _branch(ball, excess, direction_from_zero(ball, excess), grid):
        lowest.offer(radius, found)
        yield radius
    arrived = ball.cone is not None or excess.selects_optimal(lowest.best[grid[-1]].weights)
    for start, at in _other_starts(problem, ball, excess, grid):
        for upwards, sweep in ((True, grid[at:]), (False, grid[:at][::-1])):
            for radius, found in _branch(ball, excess, start, sweep):
                met = lowest.offer(radius, found)
                yield radius
                # two branches that meet continue as one, unless this one had left the other before
                if met and (arrived or not upwards):
                    break


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
        found = ball.minimise(excess, begin, radius)
        previous, last = last, (radius, found.weights)
        yield radius, found


def _other_starts(
    problem: Problem, ball: WeightBall, excess: Excess, grid: list[float]
) -> Iterator[tuple[np.ndarray, int]]:
    """Weights where other branches start, and their place in the grid.

    In a cone they start at its axis, otherwise at weights that separate the optimal tokens.
    """
    if ball.cone is not None:
        yield from ((ball.cone.axis, at) for at in range(1, len(grid), 2))
        return
    yield from ((weights, len(grid) - 1) for weights in ball.separators(problem))
    generator, first = np.random.default_rng(0), first_radius(excess, ball)
    for logit in START_LOGITS:
        at = int(np.argmin(np.abs(np.log(np.array(grid) / first * FIRST_LOGIT / logit))))
        yield from ((generator.standard_normal(np.prod(ball.shape)), at) for _ in range(ball.random_starts))
    separation = Separation(excess)
    if not len(separation.rows):
        return
    weights = ball.steepest(separation.expand(np.zeros(np.prod(ball.shape))).gradient)
    for at, radius in enumerate(grid):
        if not weights.any():  # the minimum is at zero: nothing separates
            return
        weights = ball.minimise(separation, weights * (radius / ball.size(weights)), radius).weights
        if (separation.rows @ weights).max() >= 0:
            continue
        found = ball.minimise(excess, weights, radius)
        if excess.selects_optimal(found.weights):
            yield found.weights, at
            return
