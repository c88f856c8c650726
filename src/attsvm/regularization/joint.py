"""The branches of one problem jointly in attention and head, each by alternating minimisation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.regularization.balls import WeightBall, ball_of
from attsvm.regularization.branches import (
    FIRST_LOGIT,
    Branch,
    Branches,
    Point,
    direction_from_zero,
    first_radius,
    grid_through,
    is_close,
    place_of_logits,
)
from attsvm.regularization.excess import Excess
from attsvm.regularization.head_function import LinearFunction
from attsvm.regularization.log_losses import HeadLoss, Scalar
from attsvm.regularization.result import CONVERGED

MOST_ALTERNATIONS = 60
START_LOGITS = (4.0, 30.0)
"""Branches also start at random weights, with logits of about these sizes."""
STARTS = 4
_LOWER = 1e-6


@dataclass(frozen=True)
class JointPoint(Point):
    """A minimum in attention and head."""

    head: np.ndarray  # shape (d,)
    head_residual: float


@dataclass
class Joint(Branches[JointPoint]):
    """The minima at the pairs of radii, of attention and head, of ``grid``."""

    problem: Problem
    excess: Excess
    ball: WeightBall
    of_head: WeightBall
    grid: list[tuple[float, ...]]

    @classmethod
    def through(cls, problem: Problem, ball: WeightBall, loss: Scalar, pairs: np.ndarray) -> "Joint":
        """Along the pairs of radii, shape (L, 2), and others between and before them.

        Raises ProblemError if the loss depends on neither attention nor head.
        """
        excess = Excess.of(problem, LinearFunction(np.zeros(problem.dim)), loss)
        if not (excess.moving.any() and excess.tokens.any()):
            raise ProblemError(
                "problem: the loss does not depend on attention and head: equal keys, or tokens of zeros"
            )
        # before the first pair the radii keep its proportion
        scale = min(1.0, first_radius(excess, ball) / pairs[0, 0], FIRST_LOGIT / pairs[0, 1])
        of_head = ball_of(ball.norm.of_vectors, (problem.dim, 1))
        return cls(problem, excess, ball, of_head, grid_through(pairs, scale * pairs[0]))

    def branches(self) -> Iterator[Branch]:
        """One from W = 0 and eight from random weights."""
        ball, grid = self.ball, self.grid
        begin = np.zeros(np.prod(ball.shape)) if ball.cone is None else ball.cone.axis
        yield Branch((begin, self._head_for(begin)), range(len(grid)))
        generator, first = np.random.default_rng(0), first_radius(self.excess, ball)
        for logit in START_LOGITS:
            at = place_of_logits([radius for radius, _ in grid], first, logit)
            for _ in range(STARTS):
                start = generator.standard_normal(begin.shape)
                start = start + (0 if ball.cone is None else ball.cone.axis * len(begin))
                start *= grid[at][0] / ball.size(start)
                yield Branch((start, self._head_for(start)), range(at, len(grid)))
                yield Branch((self.best[at].weights, self.best[at].head), range(at - 1, -1, -1))

    def minima(self, start: tuple[np.ndarray, np.ndarray], places: range) -> Iterator[JointPoint]:
        weights, head = start
        for place in places:
            point = self._by_turns(weights, head, *self.grid[place])
            weights, head = point.weights, point.head
            yield point

    def is_same(self, one: JointPoint, other: JointPoint) -> bool:
        return is_close(one.weights, other.weights) and is_close(one.head, other.head)

    def is_lower(self, one: JointPoint, other: JointPoint) -> bool:
        return _log_loss(one) < _log_loss(other) - _LOWER

    def loss(self, point: JointPoint) -> float:
        return float(np.exp(_log_loss(point)))

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
            under = excess.under(LinearFunction(head))
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
