"""The branches of one problem under a fixed prediction head, along radii of the attention weights."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.balls import Found, WeightBall
from attsvm.regularization.branches import (
    Branch,
    Branches,
    direction_from_zero,
    first_radius,
    grid_through,
    is_close,
    place_of_logits,
)
from attsvm.regularization.excess import Excess
from attsvm.regularization.kept_sets import tail_of
from attsvm.regularization.log_losses import LogSumExp

START_LOGITS = (1.0, 3.0, 10.0)
"""Random branches start at weights whose largest logits are about these."""


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


@dataclass
class FixedHead(Branches[Found]):
    """The minima in the balls of the radii of ``grid``."""

    problem: Problem
    excess: Excess
    ball: WeightBall
    grid: list[float]

    @classmethod
    def through(cls, problem: Problem, excess: Excess, ball: WeightBall, radii: np.ndarray) -> "FixedHead":
        """Along the radii, and others between and before them.

        Raises ProblemError if the loss does not depend on the attention.
        """
        if not excess.depends_on_attention:
            raise ProblemError(
                "problem: the loss does not depend on the attention: tokens of equal scores or equal keys"
            )
        first = np.minimum(first_radius(excess, ball), radii[:1])
        return cls(problem, excess, ball, [radius for (radius,) in grid_through(radii[:, None], first)])

    def loss(self, point: Found) -> float:
        return self.excess.loss_at(point.weights)

    def is_same(self, one: Found, other: Found) -> bool:
        return is_close(one.weights, other.weights)

    def is_lower(self, one: Found, other: Found) -> bool:
        base = one.objective
        if isinstance(base, Excess) and base.same_as(other.objective):
            return base.value(one.weights) < base.value(other.weights)
        return self.excess.order(one.weights) < self.excess.order(other.weights)

    def minima(self, start: np.ndarray, places: range) -> Iterator[Found]:
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
            for at in range(1, len(grid), 2):
                yield from self._both_ways(ball.cone.axis, at)
            return
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
        for weights, at in self._at_optimal():
            yield from self._both_ways(weights, at, passes)

    def _both_ways(self, weights: np.ndarray, at: int, passes: bool = False) -> Iterator[Branch]:
        yield Branch(weights, range(at, len(self.grid)), passes)
        yield Branch(weights, range(at - 1, -1, -1))

    def _ends_optimal(self) -> bool:
        return self.excess.selects_optimal(self.best[len(self.grid) - 1].weights)

    def _at_optimal(self) -> Iterator[tuple[np.ndarray, int]]:
        """Weights that separate the optimal tokens, and the first place with a minimum there.

        The branch may leave the optimal tokens again at larger radii. Another one then starts at the last radius.
        """
        # log Σ exp(s_t − s_α) over the dropped tokens is small where the optimal tokens α are selected
        ball, separation = self.ball, LogSumExp(self.excess.rows)
        if not len(separation.rows):
            return
        weights = ball.steepest(separation.expand(np.zeros(np.prod(ball.shape))).gradient)
        last, started = len(self.grid) - 1, False
        for at, radius in enumerate(self.grid):
            if not weights.any():  # the minimum is at zero: nothing separates
                return
            weights = ball.minimise(separation, weights * (radius / ball.size(weights)), radius).weights
            if (separation.rows @ weights).max() >= 0 or (started and at < last):
                continue
            found = ball.minimise(self.excess, weights, radius)
            if self.excess.selects_optimal(found.weights):
                yield found.weights, at
                started = True
                if self._ends_optimal():
                    return
