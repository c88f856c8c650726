"""``regularization_path``: the minimisers of the loss in balls of increasing radius."""

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
    parse_cones,
    parse_head_radii,
    parse_radii,
)
from attsvm.regularization.branches import JointPoint, Watch, follow
from attsvm.regularization.excess import scalar_of
from attsvm.regularization.joint import follow_jointly
from attsvm.regularization.nonlinear import FixedHead
from attsvm.regularization.result import RegularizationPath, along_path, is_solved, selected_tokens, stacked, status_of
from attsvm.regularization.trust_region import CircularCone
from attsvm.results import Status
from attsvm.svm import solve_head
from attsvm.training.attention import parse_attention


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
        With labels ±1 and, unless ``head_radii`` or ``head`` is given, a head (d,).
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
        If the radii are not positive and increasing, the problem has no labels ±1 or no head, the head does not fit or
        is no number at some token, the loss does not depend on the attention, the problem has more logits or weights
        than Newton steps can hold, no ball is registered for the norm, or another argument does not fit.

    See Also
    --------
    attsvm.regularization.penalty_path
    attsvm.RegularizationPath : The result.

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
    check_problem(problem)
    radii = parse_radii("radii", radii)
    layer = parse_attention(attention, problem, rank)
    shape = (problem.key_dim, problem.query_dim)
    norm = norm_of_ball(layer, parse_norm(norm))
    ball = ball_for(layer, norm, shape)
    parsed = parse_loss(loss, None)
    scalar = scalar_of(parsed)
    lengths = parse_head_radii(head_radii, radii, scalar, head)
    of_head = None if lengths is not None else FixedHead.of(problem, layer, head, parsed)
    cones = parse_cones(problem, cone)
    if cones is not None:
        ball = ball_for(layer, norm, shape, CircularCone(*next(iter(cones.values()))))
    check_size(problem, ball)
    largest_rank = layer.largest_rank(problem)

    batch = problem.batch_shape
    watch = Watch(callback, len(radii) * int(np.prod(batch)))
    paths: list[RegularizationPath] = []
    for index in np.ndindex(*batch):
        one = problem[index] if batch else problem
        ball = ball_for(layer, norm, shape, None if cones is None else CircularCone(*cones[index]))
        if lengths is None:
            assert of_head is not None
            points = follow(one, of_head.excess(one, index, scalar), radii, ball, watch)
            found = RegularizationPath(
                status=status_of(is_solved(np.array([p.residual for p in points])), watch.stopped),
                **along_path(one, points, norm, rank=largest_rank),
                radii=radii[: len(points)],
                norm=norm,
                attention=layer.name,
                rank=largest_rank,
            )
        else:
            jointly = follow_jointly(one, radii, lengths, ball, scalar, watch)
            found = _with_head(one, jointly, radii, lengths, norm, layer.name, largest_rank, watch.stopped)
        paths.append(found)
        watch.before += len(radii)
        if watch.stopped:
            break
    return stacked(paths, batch) if batch else paths[0]


def _with_head(
    problem: Problem,
    points: list[JointPoint],
    radii: np.ndarray,
    head_radii: np.ndarray,
    norm: Norm,
    attention: str,
    rank: int | None,
    stopped: bool,
) -> RegularizationPath:
    """The joint path of one problem."""
    last = len(points) - 1
    of_head = solve_head(problem, selected_tokens(problem, points)[-1], norm.of_vectors)
    # if the head's radius is the one that keeps growing, a label with slack only needs its token not to fall behind
    relax = head_radii[last] > radii[last] and of_head.status != Status.INFEASIBLE
    residual = np.array([point.residual for point in points])
    head_residual = np.array([point.head_residual for point in points])
    return RegularizationPath(
        status=status_of(is_solved(residual, head_residual), stopped),
        **along_path(problem, points, norm, ~of_head.support if relax else None, rank),
        radii=radii[: len(points)],
        norm=norm,
        attention=attention,
        rank=rank,
        head_radii=head_radii[: len(points)],
        head_weights=np.stack([point.head for point in points]),
        head_limit=of_head.direction,
        head_residual=head_residual,
    )
