"""``regularization_path``: the minimisers of the loss in balls of increasing radius.

Under a fixed prediction head the branches of ``branches`` are followed, jointly with the prediction head those of
:class:`JointBranches`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback, reports
from attsvm.errors import ProblemError
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.regularization.balls import WeightBall
from attsvm.regularization.barrier_balls import ball_of
from attsvm.regularization.branches import (
    FIRST_LOGIT,
    Branch,
    Branches,
    FixedHead,
    PathPoint,
    PathWatch,
    direction_from_zero,
    first_radius,
    grid_through,
    is_close,
    place_of_logits,
)
from attsvm.regularization.flat_excess import FlatExcess
from attsvm.regularization.gaps import Flat, LogSum
from attsvm.regularization.margin_losses import LinearFunction, Scalar
from attsvm.regularization.result import CONVERGED, RegularizationPath
from attsvm.regularization.setting import (
    PathSetting,
    follow_batch,
    parse_head_radii,
    parse_radii,
    path_fields,
    selected_tokens,
)
from attsvm.results import Status
from attsvm.svm import PrimalIteration, solve_head


@reports("path")
def regularization_path(
    problem: Problem,
    radii: Sequence[float] | np.ndarray,
    *,
    attention: str | None = None,
    rank: int | None = None,
    norm: str | float | Norm = "frobenius",
    loss: str | OutputLoss | Callable[..., Any] = "logistic",
    head: str | Head | None = None,
    cone: tuple[Any, float] | None = None,
    head_radii: Sequence[float] | np.ndarray | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> RegularizationPath:
    """Compute W_R = argmin L(W) over N(W) ≤ R for increasing R.

    Each radius is minimised by a trust-region Newton method on the sphere that starts at the solution of the last one.
    Losses are compared by the logarithm of their excess over the loss of the selected tokens, so accuracy does not
    depend on the radius: at 1e4 times the value of the Att-SVM the loss equals its infimum in 4,000 digits. The problem
    is not convex. At each radius the lowest of several branches is kept: one from W = 0, and one through weights that
    separate the optimal tokens. If optimal tokens are separable, that branch is the global path from some radius on; at
    moderate radii there is no proof that no lower minimum exists.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and, unless ``head_radii`` or ``head`` is given, a head (d,).
    radii : array, shape (L,)
        Increasing.
    attention : {"combined", "factored", "prompt"}, optional
        By default "combined" for a problem with queries and "prompt" without. "factored" bounds ‖K‖² + ‖Q‖² ≤ 2R,
        which is N(KQ') ≤ R in the nuclear norm.
    rank : int, optional
        Columns of K and Q; d_k by default. With fewer columns than the nuclear Att-SVM needs, ``limit`` is the Att-SVM
        of this rank, and another branch starts from that of the optimal tokens.
    norm : str, float or Norm
        "frobenius", "nuclear", "spectral", p > 1 of an entrywise ℓp norm, "linf" among them, or a norm whose type is
        registered with ``attsvm.regularization.ball_of``. For a prompt it is the norm on vectors
        (``norm.of_vectors``).
    loss : str, OutputLoss or callable
        A decreasing loss of the margin, as for :func:`attsvm.train`. With ``head_radii``: "logistic" or "exponential".
    head : str or Head, optional
        A fixed prediction head, as for :func:`attsvm.train`; by default the linear one of the problem. Under a
        nonlinear head the lowest of several more branches from random weights is returned, and ``limit`` is the Att-SVM
        of the set of kept tokens. Once several tokens are kept and the others have an attention below about 1e-12,
        the gradient is rounding, and the status is ``inaccurate``.
    cone : (direction, float), optional
        Restricts the path to weights whose correlation with the direction is at least that number, in (0, 1): the
        local path.
    head_radii : array, shape (L,), optional
        The radius r of the head v for each R, not decreasing: L(v, W) over ‖v‖ ≤ r, N(W) ≤ R, with ‖v‖ in the norm on
        vectors. The loss is minimised alternately in v and W; the result is the lowest minimum of one branch from W = 0
        and eight from random weights.
    callback : callable, optional
        Called with a :class:`attsvm.Progress` after each minimisation at one of the radii: ``step`` counts radii with a
        minimum, over all problems, and ``loss`` is the lowest one there. True stops the computation.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.

    Returns
    -------
    RegularizationPath
        With the direction errors to the Att-SVM of the tokens selected last.

    Raises
    ------
    ProblemError
        If the radii are not positive and increasing, the problem has no labels, more than two classes or no head, the
        head does not fit or is no number at some token, the loss does not depend on the attention, the problem has more
        logits or weights than Newton steps can hold, no ball is registered for the norm, or another argument does not
        fit.

    See Also
    --------
    attsvm.regularization.penalty_path
    attsvm.RegularizationPath : The result.

    Notes
    -----
    The attention is a softmax. There is no path under sparsemax: the loss reaches its infimum at R = V, the value of
    the Att-SVM of the optimal tokens (2V under 1.5-entmax), and has many minimisers for larger R.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism* (global, local and joint
    regularisation paths of p). Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*
    (Frobenius and nuclear). Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent* (ℓp).

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> path = attsvm.regularization_path(problem, [1.0, 100.0, 1e4], norm=1.5)
    >>> bool(path.direction_errors[-1] < 1e-6)
    True
    """
    setting = PathSetting.of(problem, attention, rank, norm, loss, cone)
    radii = parse_radii("radii", radii)
    lengths = parse_head_radii(head_radii, radii, setting.scalar, head)
    excess_of = None if lengths is not None else setting.excess_of(head)

    def follow_one(one: Problem, index: tuple[int, ...], watch: PathWatch) -> RegularizationPath:
        ball = setting.ball(index)
        if excess_of is None:
            pairs = np.stack([radii, lengths], axis=1)
            joint = JointBranches.from_pairs(one, ball, setting.scalar, pairs)
            # the grid has more places than the given radii: the others lead from one to the next
            jointly = joint.follow([joint.grid.index(tuple(pair)) for pair in pairs.tolist()], watch)
            return _joint_path(setting, one, jointly, radii, lengths, watch.stopped)
        excess = excess_of(one, index)
        fixed = FixedHead.from_radii(one, excess, ball, radii)
        found = fixed.follow([fixed.grid.index(radius) for radius in radii.tolist()], watch)
        points = [PathPoint(minimum.weights, excess, minimum.residual) for minimum in found]
        return RegularizationPath(**path_fields(setting, one, points, watch.stopped), radii=radii[: len(points)])

    return follow_batch(setting, len(radii), callback, follow_one)


MOST_ALTERNATIONS = 60
"""Enough where attention is saturated: head and weights then depend on each other weakly."""
START_LOGITS = (4.0, 30.0)
"""Branches also start at random weights, with logits of about these sizes."""
STARTS = 4
"""Random weights of each of these sizes."""
_LOWER = 1e-6
"""A minimum whose log loss is lower by less than this is the same one: alternations end at about this accuracy."""


@dataclass(frozen=True)
class JointPoint(PathPoint):
    """A minimum in attention and head."""

    head: np.ndarray  # shape (d,)
    head_residual: float


@dataclass
class JointBranches(Branches[JointPoint]):
    """The minima at the pairs of radii, of attention and head, of ``grid``."""

    problem: Problem
    excess: FlatExcess
    ball: WeightBall
    of_head: WeightBall
    grid: list[tuple[float, ...]]

    @classmethod
    def from_pairs(cls, problem: Problem, ball: WeightBall, loss: Scalar, pairs: np.ndarray) -> "JointBranches":
        """Along the pairs of radii, shape (L, 2), and others between and before them.

        Raises ProblemError if the loss depends on neither attention nor head.
        """
        # v = 0 until the first step in the head: only tokens, keys and labels are used before
        excess = FlatExcess.of(problem, LinearFunction(np.zeros(problem.dim)), loss)
        if not (excess.stack.moving.any() and excess.outputs.tokens.any()):
            raise ProblemError(
                "problem: the loss does not depend on attention and head: equal keys, or tokens of zeros"
            )
        # before the first pair the radii keep its proportion, down to where the loss is nearly linear
        scale = min(1.0, first_radius(excess, ball) / pairs[0, 0], FIRST_LOGIT / pairs[0, 1])
        of_head = ball_of(ball.norm.of_vectors, (problem.dim, 1))
        return cls(problem, excess, ball, of_head, grid_through(pairs, scale * pairs[0]))

    def branches(self) -> Iterator[Branch]:
        """One from W = 0 and eight from random weights."""
        ball, grid = self.ball, self.grid
        # in a cone W = 0 is the vertex, so that the branch starts along the axis
        begin = np.zeros(np.prod(ball.shape)) if ball.cone is None else ball.cone.axis
        yield Branch((begin, self._head_for(begin)), range(len(grid)))
        generator, first = np.random.default_rng(0), first_radius(self.excess, ball)
        for logit in START_LOGITS:
            at = place_of_logits([radius for radius, _ in grid], first, logit)
            for _ in range(STARTS):
                start = generator.standard_normal(begin.shape)
                # D = d_k d_q normal numbers have a length of about √D: D times the axis keeps the start near the axis
                start = start + (0 if ball.cone is None else ball.cone.axis * len(begin))
                start *= grid[at][0] / ball.size(start)
                yield Branch((start, self._head_for(start)), range(at, len(grid)))
                # to smaller radii from the lowest minimum at this place, whichever branch found it
                yield Branch((self.best[at].weights, self.best[at].head), range(at - 1, -1, -1))

    def minima(self, start: tuple[np.ndarray, np.ndarray], places: range) -> Iterator[JointPoint]:
        weights, head = start
        for place in places:
            point = self._alternate(weights, head, *self.grid[place])
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
        # at v = 0 all margins are 0, so that −∇ log L is a multiple of Σ y_i o_i
        slope = _head_loss(self.excess, weights).expand(np.zeros(problem.dim)).gradient
        return -slope if slope.any() else np.ones(problem.dim)

    def _alternate(self, weights: np.ndarray, head: np.ndarray, radius: float, head_radius: float) -> JointPoint:
        """Minimise alternately in the head and in the attention weights until both are stationary."""
        turns = _Alternation(self, weights, head, radius, head_radius)
        # for p = 2, 1 − cos θ = 1e-15 is an angle of 4e-8 between v and the negative gradient
        turns.run(turns.weights[None], 1e-15, MOST_ALTERNATIONS)
        return turns.best


class _Alternation(PrimalIteration):
    """Minima in the head and in the attention weights by turns. ``best``: the last pair, until rounding is left."""

    best: JointPoint

    def __init__(
        self, path: JointBranches, weights: np.ndarray, head: np.ndarray, radius: float, head_radius: float
    ) -> None:
        self.path, self.radius, self.head_radius, self.rounding = path, radius, head_radius, False
        self.head = head * (head_radius / path.of_head.size(head))
        self.weights = weights * (radius / path.ball.size(weights)) if weights.any() else weights
        self.advance()

    def measure(self) -> tuple[np.ndarray, np.ndarray, bool]:
        return self.best.weights[None], np.array([self.best.head_residual]), not self.rounding

    def advance(self) -> None:
        excess, ball, of_head = self.path.excess, self.path.ball, self.path.of_head
        # first over the head, which sees the attention through y_i o_i alone
        found = of_head.minimise(_head_loss(excess, self.weights), self.head, self.head_radius)
        self.head = found.weights
        under = excess.with_head(LinearFunction(self.head))
        start = self.weights if self.weights.any() else direction_from_zero(ball, under) * self.radius
        # then over the weights, under the new head
        of_weights = ball.minimise(under, start, self.radius)
        self.weights = of_weights.weights
        # the residual of the head under the new attention
        after = of_head.residual(_head_loss(excess, self.weights), self.head, self.head_radius)
        # below the tolerance a residual that no longer falls is rounding, and the pair before is kept
        self.rounding = hasattr(self, "best") and self.best.head_residual <= after <= CONVERGED
        if not self.rounding:
            self.best = JointPoint(self.weights, under, of_weights.residual, self.head, after)


def _log_loss(point: JointPoint) -> float:
    return _head_loss(point.excess, point.weights).value(point.head)


def _head_loss(excess: FlatExcess, weights: np.ndarray) -> Flat[LogSum]:
    """Log L as a function of the head v, for the attention of these weights: the gaps are the margins y_i v'o_i."""
    pooled = excess.pooled(weights)
    # log L = log Σ exp(−log n + log ℓ(⟨v, y_i o_i⟩))
    return LogSum.from_rows(pooled, -np.log(len(pooled)), excess.stack.loss)


def _joint_path(
    setting: PathSetting,
    problem: Problem,
    points: list[JointPoint],
    radii: np.ndarray,
    head_radii: np.ndarray,
    stopped: bool,
) -> RegularizationPath:
    """The joint path of one problem."""
    last = len(points) - 1
    of_head = solve_head(problem, selected_tokens(problem, points)[-1], setting.norm.of_vectors)
    # if the head's radius is the one that keeps growing, a label with slack only needs its token not to fall behind
    relax = head_radii[last] > radii[last] and of_head.status != Status.INFEASIBLE
    head_residual = np.array([point.head_residual for point in points])
    return RegularizationPath(
        **path_fields(setting, problem, points, stopped, head_residual, ~of_head.support if relax else None),
        radii=radii[: len(points)],
        head_radii=head_radii[: len(points)],
        head_weights=np.stack([point.head for point in points]),
        head_limit=of_head.direction,
        head_residual=head_residual,
    )
