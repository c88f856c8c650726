"""``regularization_path``: the minimisers of the loss in balls of increasing radius."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.losses import OutputLoss, parse_loss
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem
from attsvm.regularization.arguments import (
    ball_for,
    check_problem,
    check_size,
    norm_of_ball,
    parse_cones,
    parse_head_radii,
    parse_radii,
)
from attsvm.regularization.branches import follow
from attsvm.regularization.cones import CircularCone
from attsvm.regularization.joint import follow_jointly
from attsvm.regularization.point import Point
from attsvm.regularization.progress import Watch
from attsvm.regularization.result import RegularizationPath, is_solved
from attsvm.regularization.scalar import scalar_of
from attsvm.results import Callback, Status
from attsvm.svm import solve_head, solve_svm
from attsvm.training.attention import parse_attention

_ALONG_RADII = {
    "weights": np.nan,
    "loss": np.nan,
    "log_excess": np.nan,
    "selected": -1,
    "residual": np.nan,
    "head_weights": np.nan,
    "head_residual": np.nan,
}
_PER_PROBLEM = ("status", "limit", "limit_status", "head_limit")


def regularization_path(
    problem: Problem,
    radii: Sequence[float] | np.ndarray,
    *,
    attention: str | None = None,
    rank: int | None = None,
    norm: str | float | Norm = "frobenius",
    loss: str | OutputLoss | Callable[..., Any] = "logistic",
    cone: tuple[Any, float] | None = None,
    head_radii: Sequence[float] | np.ndarray | None = None,
    callback: Callback | None = None,
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
        With labels ±1 and, unless ``head_radii`` is given, a head (d,).
    radii : array, shape (L,)
        Increasing.
    attention : {"combined", "factored", "prompt"}, optional
        By default "combined" for a problem with queries and "prompt" without. "factored" bounds ‖K‖² + ‖Q‖² ≤ 2R,
        which is N(KQ') ≤ R in the nuclear norm.
    rank : int, optional
        Columns of K and Q; d_k by default. With fewer columns than the nuclear Att-SVM needs, ``limit`` is the Att-SVM
        of this rank, and another branch starts from that of the optimal tokens.
    norm : str, float or Norm
        "frobenius", "nuclear", p of an entrywise ℓp norm with 1 < p < ∞, or a norm whose type is registered with
        ``attsvm.regularization.ball_of``. For a prompt it is the norm on vectors (``norm.of_vectors``).
    loss : str, OutputLoss or callable
        A decreasing loss of the margin, as for :func:`attsvm.train`. With ``head_radii``: "logistic" or "exponential".
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

    Returns
    -------
    RegularizationPath
        With the direction errors to the Att-SVM of the tokens selected last.

    Raises
    ------
    ProblemError
        If the radii are not positive and increasing, the problem has no labels ±1 or no head, the loss does not depend
        on the attention, the problem has more logits or weights than Newton steps can hold, no ball is registered for
        the norm, or another argument does not fit.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism* (global, local and joint
    regularization paths of p). Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*
    (Frobenius and nuclear). Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent* (ℓp).

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> path = attsvm.regularization_path(problem, [1.0, 100.0, 1e4], norm=1.5)
    >>> bool(path.direction_errors[-1] < 1e-6)
    True
    """
    radii = parse_radii("radii", radii)
    layer = parse_attention(attention, problem, rank)
    shape = (problem.key_dim, problem.query_dim)
    norm = norm_of_ball(layer, parse_norm(norm))
    ball = ball_for(layer, norm, shape)
    scalar = scalar_of(parse_loss(loss, None))
    check_problem(problem, head_radii is not None)
    lengths = parse_head_radii(head_radii, radii, scalar)
    cones = parse_cones(problem, cone)
    if cones is not None:
        ball = ball_for(layer, norm, shape, CircularCone(*next(iter(cones.values()))))
    check_size(problem, ball)

    batch = problem.batch_shape
    watch = Watch(callback, len(radii) * int(np.prod(batch)))
    setting = _Setting(radii, lengths, norm, layer.name, layer.largest_rank(problem))
    paths: list[RegularizationPath] = []
    for index in np.ndindex(*batch):
        one = problem[index] if batch else problem
        ball = ball_for(layer, norm, shape, None if cones is None else CircularCone(*cones[index]))
        points = (
            follow(one, radii, ball, scalar, watch)
            if lengths is None
            else follow_jointly(one, radii, lengths, ball, scalar, watch)
        )
        paths.append(setting.path(one, points, watch.stopped))
        watch.before += len(radii)
        if watch.stopped:
            break
    return setting.stacked(paths, batch) if batch else paths[0]


@dataclass(frozen=True)
class _Setting:
    """What all problems of a batch share."""

    radii: np.ndarray
    head_radii: np.ndarray | None
    norm: Norm
    attention: str
    rank: int | None

    def path(self, problem: Problem, points: list[Point], stopped: bool) -> RegularizationPath:
        """The points of one problem, and the direction they should converge to."""
        active = problem.canonical.active
        selected = np.full((len(points), *active.shape), -1)
        for row, point in zip(selected, points, strict=True):
            row[active] = np.argmax(point.excess.logits(point.weights), axis=1)
        if not problem.has_query_axis:
            selected = selected[..., 0]
        log_excess = np.array([point.excess.value(point.weights) for point in points])
        residual = np.array([point.residual for point in points])
        head_residual = None if self.head_radii is None else np.array([point.head_residual for point in points])
        relaxed, head_limit = self._head_limit(problem, selected[-1], len(points) - 1)
        solution = solve_svm(problem, selected[-1], self.norm, relaxed=relaxed, rank=self.rank)
        weights = np.stack([point.weights for point in points])
        matrix = (problem.key_dim, problem.query_dim) if problem.has_queries else (-1,)
        solved = bool(is_solved(residual, head_residual).all())
        return RegularizationPath(
            status=Status.INTERRUPTED if stopped else Status.OPTIMAL if solved else Status.INACCURATE,
            weights=weights.reshape(len(points), *matrix),
            loss=np.array([p.excess.infimum for p in points]) + np.exp(log_excess),
            log_excess=log_excess,
            selected=selected,
            residual=residual,
            limit=solution.direction,
            limit_status=Status(str(solution.status)),
            radii=self.radii[: len(points)],
            norm=self.norm,
            attention=self.attention,
            rank=self.rank,
            head_radii=None if self.head_radii is None else self.head_radii[: len(points)],
            head_weights=None if self.head_radii is None else np.stack([point.head for point in points]),
            head_limit=head_limit,
            head_residual=head_residual,
        )

    def _head_limit(
        self, problem: Problem, selected: np.ndarray, last: int
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The queries that are relaxed in the limit, and the direction of the head; None for a fixed head."""
        if self.head_radii is None:
            return None, None
        of_head = solve_head(problem, selected, self.norm.of_vectors)
        # if the head's radius is the one that keeps growing, a label with slack only needs its token not to fall behind
        relax = self.head_radii[last] > self.radii[last] and of_head.status != Status.INFEASIBLE
        return ~of_head.support if relax else None, of_head.direction

    def stacked(self, paths: list[RegularizationPath], batch: tuple[int, ...]) -> RegularizationPath:
        """The paths of the problems of a batch as one; radii and problems that were not reached are filled up."""
        length = max(len(path.radii) for path in paths)
        number = int(np.prod(batch))

        def along(name: str, fill: float) -> np.ndarray | None:
            first = getattr(paths[0], name)
            if first is None:
                return None
            whole = np.full((length, number, *first.shape[1:]), fill, dtype=first.dtype)
            for i, path in enumerate(paths):
                whole[: len(path.radii), i] = getattr(path, name)
            return whole.reshape(length, *batch, *first.shape[1:])

        def each(name: str) -> np.ndarray | None:
            first = getattr(paths[0], name)
            if first is None:
                return None
            missing = [Status.INTERRUPTED if np.ndim(first) == 0 else np.full_like(first, np.nan)]
            found = [getattr(path, name) for path in paths] + missing * (number - len(paths))
            return np.stack([np.asarray(x) for x in found]).reshape(*batch, *np.shape(first))

        return RegularizationPath(
            **{name: along(name, fill) for name, fill in _ALONG_RADII.items()},  # type: ignore[arg-type]
            **{name: each(name) for name in _PER_PROBLEM},  # type: ignore[arg-type]
            radii=self.radii[:length],
            norm=self.norm,
            attention=self.attention,
            rank=self.rank,
            head_radii=None if self.head_radii is None else self.head_radii[:length],
        )
