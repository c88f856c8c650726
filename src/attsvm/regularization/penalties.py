"""``penalty_path``: the minimisers of the loss plus a penalty that decreases to zero."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback, reports
from attsvm.heads import Head
from attsvm.losses import OutputLoss, parse_loss
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem
from attsvm.regularization.arguments import (
    ball_for,
    check_problem,
    check_size,
    norm_of_ball,
    parse_log_penalties,
    penalty_scale,
)
from attsvm.regularization.collect import along_path, stacked, status_of
from attsvm.regularization.fixed_head import FixedHead
from attsvm.regularization.penalised import Penalty, follow_penalties
from attsvm.regularization.progress import Watch
from attsvm.regularization.result import PenaltyPath, is_solved
from attsvm.regularization.scalar import scalar_of
from attsvm.training.attention import parse_attention


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
        With labels ±1 and, unless ``head`` is given, a head (d,).
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
    regularization (K, Q) converges to the nuclear Att-SVM.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> path = attsvm.regularization.penalty_path(problem, [-10.0, -1e3, -1e5], attention="factored")
    >>> bool(path.direction_errors[-1] < 1e-6)
    True
    """
    check_problem(problem)
    log_penalties = parse_log_penalties(log_penalties)
    layer = parse_attention(attention, problem, rank)
    norm = norm_of_ball(layer, parse_norm(norm))
    ball = ball_for(layer, norm, (problem.key_dim, problem.query_dim))
    parsed = parse_loss(loss, None)
    scalar = scalar_of(parsed)
    of_head = FixedHead.of(problem, layer, head, parsed)
    check_size(problem, ball)
    penalty = Penalty(ball.power, penalty_scale(layer))

    batch = problem.batch_shape
    watch = Watch(callback, len(log_penalties) * int(np.prod(batch)))
    paths: list[PenaltyPath] = []
    for index in np.ndindex(*batch):
        one = problem[index] if batch else problem
        points = follow_penalties(one, of_head.excess(one, index, scalar), log_penalties, ball, penalty, watch)
        found = PenaltyPath(
            status=status_of(is_solved(np.array([point.residual for point in points])), watch.stopped),
            **along_path(one, points, norm, rank=layer.largest_rank(problem)),
            size=np.array([ball.size(point.weights) for point in points]),
            log_penalties=log_penalties[: len(points)],
            norm=norm,
            attention=layer.name,
            rank=layer.largest_rank(problem),
            power=penalty.power,
            scale=penalty.scale,
        )
        paths.append(found)
        watch.before += len(log_penalties)
        if watch.stopped:
            break
    return stacked(paths, batch) if batch else paths[0]
