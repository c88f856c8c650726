"""Minima over balls of norms: of one function for paths, and of a stack of problems.

Entrywise ℓ1, ℓ2 and ℓ∞, the spectral and the nuclear norm have a barrier, other ℓp norms the trust-region method of
``trust_region``. For any other norm with ``steepest`` the ball is approximated from inside by the convex hull of points
±D at which a linear function is largest; the next point is added where the minimum over the hull is not stationary.
"""

from dataclasses import dataclass

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Scaled, Spectral
from attsvm.regularization.balls import BallMinimum, LpBall, WeightBall, no_ball
from attsvm.regularization.balls import ball_of as ball_of  # with the balls of this module registered
from attsvm.regularization.barriers import Barrier, Matrices, Total, Values, barrier_of
from attsvm.regularization.gaps import Flat, Gaps
from attsvm.regularization.interior_point import MAX_STEPS, Minima, minimise_stack, relative_gap
from attsvm.regularization.trust_region import CircularCone, SmoothFunction
from attsvm.svm import PrimalIteration

START = 0.97
"""Starts are moved into the ball of this part of the radius."""
ON_SPHERE = 1e-9
"""A start is in the ball up to this part of the radius: the rounding of a norm by singular values."""
ANOTHER = 0.05
"""Two points are different if they are farther apart than this part of the radius."""
PATH_GAP = 1e-9
"""The relative gap of the points of a path, an order below :data:`attsvm.regularization.result.CONVERGED`."""
HULL_GAP = 1e-6
"""The relative gap over hulls: new points approximate a curved ball slowly."""
MOST_POINTS = 100
"""Points of a hull, whose number is that of the unknowns."""
INSIDE_STEPS = 40
"""Steps of the interior-point method in the round ball, before those on the sphere."""
UNUSED = 1e-9
"""A point with a smaller coefficient is dropped."""
HULL = Barrier(Total(), False, Lp(1.0))
"""The barrier of Σ |α_j| < 1."""


def tolerance(norm: Norm) -> float:
    """The relative Frank-Wolfe gap at which a minimum counts as found."""
    if isinstance(norm, Scaled):
        # the gap is relative, so that a factor of the norm does not change it
        return tolerance(norm.of)
    if isinstance(norm, Lp) and 1 < norm.p < np.inf:
        return 1e-11
    return HULL_GAP if barrier_of(norm) is None else 1e-7


def start_inside(norm: Norm, weights: Matrices, radii: Values) -> Matrices:
    """Weights, moved into the ball along the line to zero."""
    size = norm.values(weights)
    return weights * np.minimum(1.0, START * radii / np.where(size > 0, size, 1.0))[:, None, None]


def minimise_in_balls(excess: Gaps, norm: Norm, radii: Values, start: Matrices) -> Minima:
    """Local minima of a stack of functions over N(W) ≤ radius.

    ``start``: moved into the ball first.
    """
    if isinstance(norm, Scaled):
        # c N(W) ≤ R is N(W) ≤ R/c
        return minimise_in_balls(excess, norm.of, radii / norm.factor, start)
    begin, barrier = start_inside(norm, start, radii), barrier_of(norm)
    if barrier is not None:
        # W = R U with N(U) ≤ 1: the barrier is that of the unit ball
        scale = radii[:, None, None]
        round_ball = norm == Lp(2.0) and excess.is_alone
        most = INSIDE_STEPS if round_ball else MAX_STEPS
        found = minimise_stack(excess.scaled(radii), begin / scale, barrier, tolerance(norm), most)
        found = found._replace(weights=found.weights * scale)
        left = np.flatnonzero(~(found.gap <= tolerance(norm))) if round_ball else np.empty(0, dtype=int)
        if len(left):
            # in a curved valley beside the sphere, straight steps inside the ball are short
            other = _minimise_one_by_one(excess[left], Lp(2.0), radii[left], found.weights[left])
            better = other.gap < found.gap[left]
            found.weights[left[better]], found.gap[left[better]] = other.weights[better], other.gap[better]
        return _not_left(found, excess, start, radii, norm)
    if isinstance(norm, Lp):
        return _minimise_one_by_one(excess, norm, radii, begin)
    if type(norm).steepest is Norm.steepest:
        norm.steepest(None)  # raises the error that names the missing piece
    # each problem has a hull with points of its own, so that they are solved one by one
    parts = [
        _minimise_in_hull(excess[k].scaled(radii[k]), begin[k] / radii[k], norm) for k in np.arange(len(start))[:, None]
    ]
    weights, gap, steps = (np.concatenate([getattr(part, name) for part in parts]) for name in Minima._fields)
    return Minima(weights * radii[:, None, None], gap, steps)


def _not_left(found: Minima, excess: Gaps, start: Matrices, radii: Values, norm: Norm) -> Minima:
    """The starts where they are stationary, as the end of a run is, and the search from inside led to another point."""
    inside = norm.values(start) <= radii * (1 + ON_SPHERE)
    gap = relative_gap(norm, start / radii[:, None, None], excess.rebased(start).gradient(start))
    left = inside & (gap <= tolerance(norm)) & (norm.values(found.weights - start) > ANOTHER * radii)
    weights = np.where(left[:, None, None], start, found.weights)
    return Minima(weights, np.where(left, gap, found.gap), found.steps)


def _minimise_one_by_one(excess: Gaps, norm: Lp, radii: Values, start: Matrices) -> Minima:
    ball, excess = LpBall(start.shape[1:], norm), excess.two_sided()
    weights, gap = np.empty_like(start), np.empty(len(start))
    for k, radius in enumerate(radii):
        one, begin = Flat(excess[[k]]), start[k].reshape(-1)
        if not begin.any():
            # W = 0 has no direction along the sphere: the search begins along steepest descent
            begin = radius * START * ball.steepest(one.expand(begin).gradient)
        found = ball.minimise(one, begin, radius)
        weights[k], gap[k] = found.weights.reshape(ball.shape), found.residual
    return Minima(weights, gap, np.zeros(len(start), dtype=int))


def _minimise_in_hull(excess: Gaps, start: Matrices, norm: Norm) -> Minima:
    """A local minimum over the unit ball; ``excess`` holds one problem."""
    found = _Hull(excess, start, norm).run(start, HULL_GAP, 10 * MOST_POINTS)
    return Minima(found.weights, found.gap, found.steps)


class _Hull(PrimalIteration):
    """The minimum over a convex hull of points ±D of the unit sphere, and α with W = Σ α_j D_j."""

    def __init__(self, excess: Gaps, weights: Matrices, norm: Norm) -> None:
        self.excess, self.weights, self.norm = excess, weights, norm
        size = norm.values(weights)
        self.alpha = size[size > 0]
        self.points = weights[size > 0] / self.alpha[:, None, None]

    def measure(self) -> tuple[np.ndarray, np.ndarray, bool]:
        gradient = self.excess.rebased(self.weights).gradient(self.weights)
        # the next point is that at which the linear function of the gradient is least
        self.farthest = -np.asarray(self.norm.steepest(gradient[0]), dtype=np.float64)[None]
        # ⟨−G, D⟩ = N*(G) for this point D, so that the gap is 1 + ⟨G, W⟩/N*(G)
        dual = -float((gradient * self.farthest).sum())
        gap = max(1 + float((gradient * self.weights).sum()) / dual, 0.0) if dual > 0 else 0.0
        return self.weights, np.array([gap]), len(self.points) < MOST_POINTS

    def advance(self) -> None:
        points = np.concatenate([self.points, self.farthest])
        # strictly inside of Σ |α_j| < 1, where the barrier is finite; the new point starts with α = 0
        begin = np.append(self.alpha * START / max(np.abs(self.alpha).sum(), START), 0.0)
        found = minimise_stack(self.excess.spanned(points), begin[None, :, None], HULL, HULL_GAP / 10)
        # only points with a coefficient stay in the hull
        alpha = found.weights[0, :, 0]
        used = np.abs(alpha) > UNUSED
        self.points, self.alpha = points[used], alpha[used]
        self.weights = np.einsum("j,jke->ke", self.alpha, self.points)[None]


@dataclass(frozen=True)
class BarrierBall(WeightBall):
    """The ball of a norm with a barrier."""

    def minimise(self, objective: SmoothFunction, start: np.ndarray, radius: float) -> BallMinimum:
        """A local minimum, by the interior-point method."""
        barrier = barrier_of(self.norm)
        assert isinstance(barrier, Barrier)
        assert isinstance(objective, Flat)
        begin = start_inside(self.norm, start.reshape(1, *self.shape) / radius, np.ones(1))
        found = minimise_stack(objective.stack.scaled(np.array([radius])), begin, barrier, PATH_GAP)
        return self._found(objective, found.weights.reshape(-1) * radius, radius, 0.0)


def _barrier_ball(norm: Norm, shape: tuple[int, int], cone: CircularCone | None = None) -> BarrierBall:
    if cone is not None:
        raise ProblemError(f"cone: expected None with the norm {norm.name}, got one")
    return BarrierBall(shape, norm)


ball_of.register(Spectral, _barrier_ball)


@ball_of.register
def _(norm: Lp, shape: tuple[int, int], cone: CircularCone | None = None) -> WeightBall:
    if norm.p == 1:
        raise no_ball(norm)
    return _barrier_ball(norm, shape, cone) if np.isinf(norm.p) else LpBall(shape, norm, cone)
