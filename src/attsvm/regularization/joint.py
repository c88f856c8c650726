"""One problem, jointly in attention and head: the lowest of several branches, each by alternating minimisation."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.balls import WeightBall, ball_of
from attsvm.regularization.branches import (
    FIRST_LOGIT,
    JointPoint,
    Watch,
    direction_from_zero,
    first_radius,
    is_close,
    joint_grid,
)
from attsvm.regularization.excess import Scalar
from attsvm.regularization.linear import HeadLoss, LinearExcess
from attsvm.regularization.result import CONVERGED

MOST_ALTERNATIONS = 60
START_LOGITS = (4.0, 30.0)
"""Branches also start at random weights, with logits of about these sizes."""
STARTS = 4
_LOWER = 1e-6


def follow_jointly(
    problem: Problem, radii: np.ndarray, head_radii: np.ndarray, ball: WeightBall, loss: Scalar, watch: Watch
) -> list[JointPoint]:
    """The joint minima at the radii; at those reached so far if the callback stops the search.

    Raises ProblemError if the loss depends on neither attention nor head.
    """
    excess = LinearExcess.of(problem, np.zeros(problem.dim), loss)
    if not (excess.moving.any() and excess.values.any()):
        raise ProblemError("problem: the loss does not depend on attention and head: equal keys, or tokens of zeros")
    first = first_radius(excess, ball)
    search = _Search(
        problem,
        excess,
        ball,
        of_head=ball_of(ball.norm.of_vectors, (problem.dim, 1)),
        grid=joint_grid(radii, head_radii, first),
        first=first,
    )
    wanted = {radius: index for index, (radius, _) in enumerate(search.grid) if radius in set(radii.tolist())}
    for index in search.steps():
        solved = sum(i in search.best for i in wanted.values())
        if index in wanted.values() and watch.stops(solved, partial(search.loss, index)):
            break
    return [search.best[wanted[radius]] for radius in radii.tolist() if wanted[radius] in search.best]


@dataclass
class _Search:
    """The branches of a joint path, and the lowest minimum known at each pair of radii of the grid."""

    problem: Problem
    excess: LinearExcess
    ball: WeightBall
    of_head: WeightBall
    grid: list[tuple[float, float]]
    first: float
    best: dict[int, JointPoint] = field(default_factory=dict)

    def steps(self) -> Iterator[int]:
        """Follow one branch from W = 0 and eight from random weights; yields the place in the grid after each step."""
        ball, grid = self.ball, self.grid
        begin = np.zeros(np.prod(ball.shape)) if ball.cone is None else ball.cone.axis
        yield from self._branch(begin, self._head_for(begin), range(len(grid)))
        generator = np.random.default_rng(0)
        for logit in START_LOGITS:
            at = int(np.argmin([abs(np.log(radius / self.first * FIRST_LOGIT / logit)) for radius, _ in grid]))
            for _ in range(STARTS):
                start = generator.standard_normal(begin.shape)
                start = start + (0 if ball.cone is None else ball.cone.axis * len(begin))
                start *= grid[at][0] / ball.size(start)
                yield from self._branch(start, self._head_for(start), range(at, len(grid)))
                yield from self._branch(self.best[at].weights, self.best[at].head, range(at - 1, -1, -1))

    def loss(self, index: int) -> float:
        """The lowest loss known at a place in the grid."""
        return float(np.exp(_log_loss(self.best[index])))

    def _branch(self, weights: np.ndarray, head: np.ndarray, indices: Iterable[int]) -> Iterator[int]:
        for index in indices:
            point = self._by_turns(weights, head, *self.grid[index])
            weights, head = point.weights, point.head
            old = self.best.get(index)
            if old is None or _log_loss(point) < _log_loss(old) - _LOWER:
                self.best[index] = point
            elif is_close(old.weights, weights) and is_close(old.head, head):
                return
            yield index

    def _head_for(self, weights: np.ndarray) -> np.ndarray:
        problem = self.problem
        if problem.head is not None and problem.head.any():
            return problem.head
        slope = HeadLoss(self.excess.pooled(weights), self.excess.loss).expand(np.zeros(problem.dim)).gradient
        return -slope if slope.any() else np.ones(problem.dim)

    def _by_turns(self, weights: np.ndarray, head: np.ndarray, radius: float, head_radius: float) -> JointPoint:
        """Minimise alternately in the head and in the attention weights until both are stationary."""
        excess, ball, of_head = self.excess, self.ball, self.of_head
        head = head * (head_radius / of_head.size(head))
        if weights.any():
            weights = weights * (radius / ball.size(weights))
        best: JointPoint | None = None
        for _ in range(MOST_ALTERNATIONS):
            found = of_head.minimise(HeadLoss(excess.pooled(weights), excess.loss), head, head_radius)
            head = found.weights
            under = excess.under(head)
            start = weights if weights.any() else direction_from_zero(ball, under) * radius
            of_weights = ball.minimise(under, start, radius)
            weights = of_weights.weights
            # the residual of the head under the new attention
            after = of_head.residual(HeadLoss(excess.pooled(weights), excess.loss), head, head_radius)
            point = JointPoint(weights, under, of_weights.residual, head, after)
            if best is not None and after >= best.head_residual and after <= CONVERGED:
                return best
            best = point
            if after <= 1e-15:
                return point
        assert best is not None
        return best


def _log_loss(point: JointPoint) -> float:
    excess = point.excess
    return HeadLoss(excess.pooled(point.weights), excess.loss).value(point.head)
