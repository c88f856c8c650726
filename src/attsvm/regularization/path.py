"""``regularization_path``: the minimisers of the loss in balls of increasing radius."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback, reports
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.regularization.arguments import Setting, parse_head_radii, parse_radii
from attsvm.regularization.branches import Point, Watch
from attsvm.regularization.fixed_head import FixedHead
from attsvm.regularization.joint import Joint, JointPoint
from attsvm.regularization.result import RegularizationPath, along_path, over_batch, selected_tokens
from attsvm.results import Status
from attsvm.svm import solve_head


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
    setting = Setting.of(problem, attention, rank, norm, loss, cone)
    radii = parse_radii("radii", radii)
    lengths = parse_head_radii(head_radii, radii, setting.scalar, head)
    excess_of = None if lengths is not None else setting.excess_of(head)

    def of_one(one: Problem, index: tuple[int, ...], watch: Watch) -> RegularizationPath:
        ball = setting.ball(index)
        if excess_of is None:
            pairs = np.stack([radii, lengths], axis=1)
            joint = Joint.through(one, ball, setting.scalar, pairs)
            jointly = joint.follow([joint.grid.index(tuple(pair)) for pair in pairs.tolist()], watch)
            return _with_head(setting, one, jointly, radii, lengths, watch.stopped)
        excess = excess_of(one, index)
        fixed = FixedHead.through(one, excess, ball, radii)
        found = fixed.follow([fixed.grid.index(radius) for radius in radii.tolist()], watch)
        points = [Point(minimum.weights, excess, minimum.residual) for minimum in found]
        return RegularizationPath(**along_path(setting, one, points, watch.stopped), radii=radii[: len(points)])

    return over_batch(setting, len(radii), callback, of_one)


def _with_head(
    setting: Setting,
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
        **along_path(setting, problem, points, stopped, head_residual, ~of_head.support if relax else None),
        radii=radii[: len(points)],
        head_radii=head_radii[: len(points)],
        head_weights=np.stack([point.head for point in points]),
        head_limit=of_head.direction,
        head_residual=head_residual,
    )
