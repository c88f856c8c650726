"""``penalty_path``: the minimisers of the loss plus a penalty that decreases to zero.

The minimiser of L(W) + λ s N(W)^r lies on the ball path, at the radius where −dL(W_R)/dR = λ s r R^(r−1). Both sides
are compared in logarithms, so λ may be as small as exp(−1e4) and less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from attsvm._utils.progress import Callback, reports
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.regularization.balls import BallMinimum, WeightBall
from attsvm.regularization.branches import (
    FixedHead,
    PathPoint,
    PathWatch,
    direction_from_zero,
    first_radius,
    minimum_from,
)
from attsvm.regularization.flat_excess import FlatExcess
from attsvm.regularization.result import PenaltyPath
from attsvm.regularization.setting import PathSetting, follow_batch, parse_log_penalties, path_fields

GROWTH = 2.0
"""Ratio of neighbouring radii among which the lowest one is chosen."""
_FIRST_SPAN = 64.0
"""The first grid ends at this many times its first radius, where logits are about 6."""
_LARGEST_SPAN = 1e14
"""Beyond it logits have no digits after the point."""
_TIE = 1e-12
"""Values that differ by less, as parts of their size, are equal up to rounding."""
_STEEP = 1e5
"""Bound of the logarithm of a ratio of slopes, so that infinite ones do not stop the search for a root."""


@dataclass(frozen=True)
class Penalty:
    """λ · scale · N(W)^power."""

    power: float
    scale: float

    def log_value(self, radius: float) -> float:
        """Log of scale · R^power."""
        return float(np.log(self.scale) + self.power * np.log(radius))

    def log_slope(self, radius: float) -> float:
        """Log of its derivative in R."""
        return float(np.log(self.scale * self.power) + (self.power - 1) * np.log(radius))


def follow_penalties(
    problem: Problem,
    excess: FlatExcess,
    log_penalties: np.ndarray,
    ball: WeightBall,
    penalty: Penalty,
    watch: PathWatch,
) -> list[PathPoint]:
    """The minima for decreasing penalties; for those reached so far if the callback stops the search.

    Raises ProblemError if the loss does not depend on the attention.
    """
    search = _PenaltySearch(excess, ball, penalty, *_minima(problem, excess, ball, penalty, float(log_penalties[-1])))
    points: list[PathPoint] = []
    for log_penalty in log_penalties.tolist():
        points.append(search.point(log_penalty))
        if watch.stops(len(points), lambda: excess.loss_at(points[-1].weights)):
            break
    return points


def _minima(
    problem: Problem, excess: FlatExcess, ball: WeightBall, penalty: Penalty, least: float
) -> tuple[list[float], list[BallMinimum]]:
    """Minima in balls up to a radius at which the loss falls more slowly than the least penalty grows."""
    first, span = first_radius(excess, ball), _FIRST_SPAN
    while True:
        radii = np.geomspace(first, first * span, int(np.ceil(np.log(span) / np.log(GROWTH))) + 1)
        branches = FixedHead.from_radii(problem, excess, ball, radii)
        for _ in branches.search():
            pass
        grid, best = branches.grid, branches.best
        # the grid is long enough if at its end the least penalty grows faster than the loss falls
        slope = log_slope(ball, best[len(grid) - 1])
        target = least + penalty.log_slope(grid[-1])
        if slope < target or span >= _LARGEST_SPAN:
            return grid, [best[place] for place in range(len(grid))]
        # far along the path the log of the slope is linear in the radius
        ahead = 1.5 * target / slope if slope < -5 else 16.0
        span *= min(max(ahead, 4.0), 64.0)


def log_slope(ball: WeightBall, found: BallMinimum) -> float:
    """Log of −dL(W_R)/dR at a minimum; −∞ inside the ball."""
    weights, tail = found.weights, found.tail
    # −dL/d log R = exp(value) · falls, as the objective is the log of the loss above its infimum
    if tail is None:
        value, gradient, _ = found.objective.expand(weights)
        # on the sphere −∇F = ν ∂N with a multiplier ν, so that −dF/dR = ν = ⟨−∇F, W⟩/R along the path
        falls = -float(gradient @ weights)
        # below the infimum it is minus the log of the distance
        value = -value if isinstance(found.objective, FlatExcess) and not found.objective.stack.above else value
    else:
        # the fixed part stays; the other one has the length √(R² − ‖fixed‖²)
        x = tail.across.T @ weights
        value, gradient, _ = tail.dropped.expand(x)
        falls = -float(gradient @ x * (weights @ weights) / (x @ x))
    return float(value + np.log(falls / ball.size(weights))) if falls > 0 else -np.inf


@dataclass(frozen=True)
class _PenaltySearch:
    """The minima in balls of increasing radii, between which those of the penalised loss are looked for."""

    excess: FlatExcess
    ball: WeightBall
    penalty: Penalty
    radii: Sequence[float]
    minima: Sequence[BallMinimum]

    def point(self, log_penalty: float) -> PathPoint:
        """The lowest minimum of loss plus penalty."""
        falling = [self._falls(self.minima[k], radius, log_penalty) for k, radius in enumerate(self.radii)]
        values = [self._value(k, log_penalty) for k in range(len(self.radii))]
        lowest = min(values)
        # where the loss is constant to rounding, the slopes decide
        ties = [k for k, value in enumerate(values) if _is_tie(value, lowest)]
        k = max((k for k in ties if falling[k] > 0), default=ties[0])
        # loss plus penalty still fall at radius k, so that the minimum is above, or they rise, so that it is below
        low, high = (k, k + 1) if falling[k] > 0 else (k - 1, k)
        if high == len(self.radii):
            # no larger radius encloses the minimum: the residual 1 marks the point as not solved
            return PathPoint(self.minima[k].weights, self.excess, 1.0)
        if low < 0:
            return self._smallest_minimum(log_penalty)
        return self._balance(self.radii[low], self.radii[high], self.minima[low], self.minima[high], log_penalty)

    def _value(self, k: int, log_penalty: float) -> tuple[int, float]:
        """Loss plus penalty, relative to the loss of the optimal tokens, in a form that sorts like it."""
        side, value = self.excess.order(self.minima[k].weights)
        # log(exp(value) + λ s R^r) above the loss of the optimal tokens, and the difference below it
        added = log_penalty + self.penalty.log_value(self.radii[k])
        if side > 0:
            return 1, float(np.logaddexp(value, added))
        below = -value
        if below > added:
            return -1, -float(below + np.log1p(-np.exp(added - below)))
        return 1, float(added + np.log1p(-np.exp(below - added))) if added > below else -np.inf

    def _falls(self, found: BallMinimum, radius: float, log_penalty: float) -> float:
        """Log of the ratio of both slopes: positive where loss plus penalty fall with the radius."""
        ratio = log_slope(self.ball, found) - log_penalty - self.penalty.log_slope(radius)
        return float(np.clip(ratio, -_STEEP, _STEEP))

    def _smallest_minimum(self, log_penalty: float) -> PathPoint:
        """The minimum in the smallest ball, where the loss is nearly linear; zero if the penalty outweighs it."""
        zero = np.zeros_like(self.minima[0].weights)
        radius, found = self.radii[0], self.minima[0]
        while radius > 0:
            # the slope of a power above 1 vanishes at zero, so that some radius is small enough
            smaller = radius / 16
            start = direction_from_zero(self.ball, self.excess) * smaller
            before = minimum_from(self.ball, self.excess, start, smaller)
            if self._falls(before, smaller, log_penalty) > 0:
                return self._balance(smaller, radius, before, found, log_penalty)
            # the slope of a norm itself does not vanish at zero, so that W = 0 may be the minimum
            if self.penalty.power == 1 and smaller < 1e-9 * self.radii[0]:
                break
            radius, found = smaller, before
        return PathPoint(zero, self.excess, 0.0)

    def _balance(
        self, low: float, high: float, lower: BallMinimum, upper: BallMinimum, log_penalty: float
    ) -> PathPoint:
        """The minimum between two radii: where both slopes are equal."""
        known = {low: lower, high: upper}

        def falls(radius: float) -> float:
            if radius not in known:
                near = min(known, key=lambda other: abs(other - radius))
                start = known[near].weights
                known[radius] = minimum_from(self.ball, self.excess, start * (radius / self.ball.size(start)), radius)
            return self._falls(known[radius], radius, log_penalty)

        radius = low
        if falls(low) > 0 > falls(high):
            radius = float(brentq(falls, low, high, xtol=1e-15 * high, rtol=1e-15))
            # of all radii that were tried, the one at which both slopes are nearest to each other
            radius = min(known, key=lambda other: abs(falls(other)))
        # 1 − the smaller slope over the larger one
        mismatch = min(float(np.abs(np.expm1(-abs(falls(radius))))), 1.0)
        return PathPoint(known[radius].weights, self.excess, max(known[radius].residual, mismatch))


def _is_tie(value: tuple[int, float], lowest: tuple[int, float]) -> bool:
    return value[0] == lowest[0] and abs(value[1] - lowest[1]) <= _TIE * (1 + abs(lowest[1]))


@reports("path")
def penalty_path(
    problem: Problem,
    log_penalties: Sequence[float] | np.ndarray,
    *,
    attention: str | None = None,
    rank: int | None = None,
    norm: str | float | Norm = "frobenius",
    loss: str | OutputLoss | Callable[..., Any] = "logistic",
    head: str | Head | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> PenaltyPath:
    """Compute the minimisers of loss plus penalty for a penalty λ that decreases to zero.

    ================================ ======================= =============================================
    attention and norm               penalty                 limit
    ================================ ======================= =============================================
    W or p, Frobenius                λ‖W‖_F²                 Frobenius Att-SVM
    W or p, ℓp                       λ‖W‖_p^p                ℓp Att-SVM
    W, nuclear                       λ‖W‖_*                  nuclear Att-SVM
    factors                          λ(‖K‖² + ‖Q‖²)          nuclear Att-SVM of KQ'
    ================================ ======================= =============================================

    The norm of the minimiser grows like log(1/λ). The direction is therefore seen at λ = exp(−1e4), which is no number
    of float64: penalties are given as their logarithms. Each minimiser is also that of the loss in the ball of its own
    radius R, where −dL(W_R)/dR is the slope of the penalty. The path is computed in this way: from the lowest of the
    branches of :func:`attsvm.regularization_path`, and a root of the difference of both slopes.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and, unless ``head`` is given, a head (d,).
    log_penalties : array, shape (L,)
        Log λ, decreasing.
    attention, rank, norm, loss, head
        As for :func:`attsvm.regularization_path`.
    callback : callable, optional
        Called with a :class:`attsvm.Progress` after each penalty. True stops the computation.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.

    Returns
    -------
    PenaltyPath
        With the direction errors to the Att-SVM of the tokens selected at the smallest penalty.

    Raises
    ------
    ProblemError
        If the logarithms are not finite and decreasing, or another argument does not fit.

    See Also
    --------
    attsvm.regularization_path
    attsvm.regularization.PenaltyPath : The result.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: with vanishing
    regularisation (K, Q) converges to the nuclear Att-SVM.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> path = attsvm.regularization.penalty_path(problem, [-10.0, -1e3, -1e5], attention="factored")
    >>> bool(path.direction_errors[-1] < 1e-6)
    True
    """
    setting = PathSetting.of(problem, attention, rank, norm, loss)
    log_penalties = parse_log_penalties(log_penalties)
    excess_of = setting.excess_of(head)

    def follow_one(one: Problem, index: tuple[int, ...], watch: PathWatch) -> PenaltyPath:
        ball = setting.ball(index)
        penalty = Penalty(ball.power, setting.penalty_scale)
        points = follow_penalties(one, excess_of(one, index), log_penalties, ball, penalty, watch)
        return PenaltyPath(
            **path_fields(setting, one, points, watch.stopped),
            size=np.array([ball.size(point.weights) for point in points]),
            log_penalties=log_penalties[: len(points)],
            power=penalty.power,
            scale=penalty.scale,
        )

    return follow_batch(setting, len(log_penalties), callback, follow_one)
