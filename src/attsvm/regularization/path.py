"""``regularization_path``: the minimisers of the loss in balls of growing radius."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.losses.losses import Loss
from attsvm.norms import Lp, Norm, parse_norm
from attsvm.problem import Problem
from attsvm.regularization.arguments import check_problem, check_size, norm_of_ball, parse_cones, parse_radii
from attsvm.regularization.ball import CircularCone
from attsvm.regularization.excess import Excess, HeadLoss, Scalar, Separation, parse_scalar
from attsvm.regularization.result import Path
from attsvm.regularization.weight_ball import Found, WeightBall
from attsvm.svm import solve_head, solve_svm
from attsvm.training.attention.attention import parse_attention

CONVERGED = 1e-8
# a radius at most this many times the last one: the saturation changes by as much
GROWTH = 4.0
# logits of at most this size, where the loss is all but linear and has one minimum
FIRST_LOGIT = 0.1
MOST_ALTERNATIONS = 60
# a joint path is also begun at random weights, where its logits are about so large
START_LOGITS = (4.0, 30.0)
STARTS = 4
_SAME = 1e-6


def regularization_path(
    problem: Problem,
    radii: Sequence[float] | np.ndarray,
    *,
    attention: str | None = None,
    norm: str | float | Norm = "frobenius",
    loss: str | Loss = "logistic",
    cone: tuple[Any, float] | None = None,
    head_radii: Sequence[float] | np.ndarray | None = None,
) -> Path:
    """Follow W_R = argmin L(W) over N(W) ≤ R along growing R.

    Each radius is minimised by a trust-region Newton method on the sphere, begun at the last one's solution. Losses are
    compared as logarithms of their excess over the loss of the selected tokens, so that a radius of 1e4 times the
    Att-SVM's value, where the loss is its infimum to 4,000 digits, is as sharp as any other. The problem is not
    convex: the lowest of several branches is taken at each radius, one followed from W = 0, one through the weights
    that separate the optimal tokens. Where optimal tokens are separable that one is the global path from some radius
    on; at moderate radii nothing proves that no lower minimum exists.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and, unless ``head_radii`` are given, a head (d,).
    radii : array, shape (L,)
        Growing.
    attention : {"combined", "factored", "prompt"}, optional
        None takes what the problem has. "factored" bounds ‖K‖² + ‖Q‖² ≤ 2R, which is N(KQ') ≤ R in the nuclear norm.
    norm : str, float or Norm
        "frobenius", "nuclear", or p of an entrywise ℓp norm, 1 < p < ∞.
    loss : str or Loss
        Of the margin: "logistic", "exponential", "linear" (with a fixed head), or a falling :class:`attsvm.Loss`.
    cone : (direction, float), optional
        Only weights whose correlation with the direction is at least that number, in (0, 1): the local path.
    head_radii : array, shape (L,), optional
        The radius r of the head v beside each R, growing or equal: L(v, W) over ‖v‖ ≤ r, N(W) ≤ R, ‖v‖ in the ℓp norm
        of W, else ℓ2. Minimised in v and W by turns; the lowest of one branch from W = 0 and eight from random weights.

    Returns
    -------
    Path
        With the direction errors to the Att-SVM of the tokens selected last.

    Raises
    ------
    ProblemError
        If radii do not grow from above 0, the problem has no labels ±1 or no head, the loss does not depend on the
        attention, the problem has more logits or weights than Newton steps can hold, or an argument is none of those
        above.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism* (global, local and joint
    regularisation paths of p). Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*
    (Frobenius and nuclear). Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent* (ℓp).
    """
    radii = parse_radii("radii", radii)
    kind = parse_attention(attention, problem, None).name
    norm = norm_of_ball(parse_norm(norm), kind)
    scalar = parse_scalar(loss)
    check_problem(problem, head_radii is not None)
    if head_radii is not None:
        head_radii = parse_radii("head_radii", head_radii, strictly=False)
        if head_radii.shape != radii.shape:
            raise ProblemError(f"head_radii: {len(head_radii)} found, one for each of {len(radii)} radii wanted")
        if scalar.log_value is None:
            raise ProblemError("loss: with head_radii it goes to zero, in logarithms: logistic or exponential wanted")
    cones = parse_cones(problem, cone)
    check_size(problem, norm, cone is not None)

    batch = problem.batch_shape
    shape = (problem.key_dim, problem.query_dim)
    followed: list[Path] = []
    for index in np.ndindex(*batch):
        one = problem[index] if batch else problem
        ball = WeightBall(shape, norm, None if cones is None else CircularCone(*cones[index]))
        points = (
            _follow(one, radii, ball, scalar)
            if head_radii is None
            else _follow_jointly(one, radii, head_radii, ball, scalar)
        )
        followed.append(_path(one, radii, head_radii, points, norm, kind))
    if not batch:
        return followed[0]
    return _stacked(followed, batch)


class _Point(NamedTuple):
    """One radius of one problem."""

    weights: np.ndarray
    excess: Excess  # over the head's optimal tokens
    residual: float
    head: np.ndarray
    head_residual: float = 0.0


def _follow(problem: Problem, radii: np.ndarray, ball: WeightBall, loss: Scalar) -> list[_Point]:
    assert problem.head is not None
    excess = Excess.of(problem, problem.head, loss)
    if not excess.depends_on_attention:
        raise ProblemError("problem: the loss does not depend on the attention: tokens of equal scores or equal keys")
    grid = _grid(radii, _first_radius(excess, ball))
    best: dict[float, Found] = {}

    def offer(radius: float, found: Found) -> bool:
        """Keep it if it is the lowest so far; whether another branch had been there already."""
        old = best.get(radius)
        if old is not None:
            if _close(old.weights, found.weights):
                return True
            if _not_lower(excess, found, old):
                return False
        best[radius] = found
        return False

    for radius, found in _branch(ball, excess, _begin(ball, excess), grid):
        offer(radius, found)
    arrived = ball.cone is not None or excess.selects_optimal(best[grid[-1]].weights)
    for start, at in _other_starts(ball, excess, grid):
        for upwards, sweep in ((True, grid[at:]), (False, grid[:at][::-1])):
            for radius, found in _branch(ball, excess, start, sweep):
                # where two branches have met one goes on, unless it has left the other before
                if offer(radius, found) and (arrived or not upwards):
                    break
    return [_Point(best[r].weights, excess, best[r].residual, problem.head) for r in radii]


def _not_lower(excess: Excess, one: Found, other: Found) -> bool:
    """Whether the first's loss is not below the second's."""
    base = one.objective
    if isinstance(base, Excess) and base.same_as(other.objective):
        return base.value(one.weights) >= base.value(other.weights)
    return excess.value(one.weights) >= excess.value(other.weights)


def _branch(
    ball: WeightBall, excess: Excess, start: np.ndarray, grid: Sequence[float]
) -> Iterator[tuple[float, Found]]:
    """Local minima along the grid, each begun where the last two point to."""
    previous: tuple[float, np.ndarray] | None = None
    last: tuple[float, np.ndarray] | None = None
    for radius in grid:
        begin = start * (radius / ball.size(start))
        if last is not None and last[1].any():
            begin = last[1] * (radius / last[0])
            if previous is not None and radius > last[0]:
                # W_R is its direction times R plus what stays finite
                ahead = last[1] + (radius - last[0]) / (last[0] - previous[0]) * (last[1] - previous[1])
                ahead = ahead * (radius / ball.size(ahead))
                around = excess.rebased(begin)
                begin = ahead if around.value(ahead) < around.value(begin) else begin
        found = ball.minimise(excess, begin, radius)
        previous, last = last, (radius, found.weights)
        yield radius, found


def _begin(ball: WeightBall, excess: Excess) -> np.ndarray:
    """The direction of the path out of W = 0."""
    if ball.cone is not None:
        return ball.cone.axis
    gradient = excess.expand(np.zeros(np.prod(ball.shape))).gradient
    if not gradient.any():
        gradient = np.random.default_rng(0).standard_normal(gradient.shape)
    return ball.steepest(gradient)


def _other_starts(ball: WeightBall, excess: Excess, grid: list[float]) -> Iterator[tuple[np.ndarray, int]]:
    """Weights to begin other branches at, and where in the grid: the cone's axis, or what separates optimal tokens."""
    if ball.cone is not None:
        yield from ((ball.cone.axis, at) for at in range(1, len(grid), 2))
        return
    separation = Separation(excess)
    if not len(separation.rows):
        return
    weights = ball.steepest(separation.expand(np.zeros(np.prod(ball.shape))).gradient)
    for at, radius in enumerate(grid):
        if not weights.any():  # least at zero: nothing separates
            return
        weights = ball.minimise(separation, weights * (radius / ball.size(weights)), radius).weights
        if (separation.rows @ weights).max() >= 0:
            continue
        found = ball.minimise(excess, weights, radius)
        if excess.selects_optimal(found.weights):
            yield found.weights, at
            return


def _follow_jointly(
    problem: Problem, radii: np.ndarray, head_radii: np.ndarray, ball: WeightBall, loss: Scalar
) -> list[_Point]:
    of_head = WeightBall((problem.dim, 1), ball.norm if isinstance(ball.norm, Lp) else Lp(2.0))
    excess = Excess.of(problem, np.zeros(problem.dim), loss)
    if not (excess.moving.any() and excess.values.any()):
        raise ProblemError("problem: the loss does not depend on attention and head: equal keys, or tokens of zeros")
    longest = _first_radius(excess, ball)
    grid = _joint_grid(radii, head_radii, longest)
    best: dict[int, _Point] = {}

    def follow(weights: np.ndarray, head: np.ndarray, indices: Iterable[int]) -> None:
        for index in indices:
            point = _by_turns(excess, weights, head, ball, of_head, *grid[index])
            weights, head = point.weights, point.head
            old = best.get(index)
            if old is None or _log_loss(point) < _log_loss(old) - _SAME:
                best[index] = point
            elif old is not point and _close(old.weights, weights) and _close(old.head, head):
                return

    def head_for(weights: np.ndarray) -> np.ndarray:
        if problem.head is not None and problem.head.any():
            return problem.head
        slope = HeadLoss(excess.pooled(weights), loss).expand(np.zeros(problem.dim)).gradient
        return -slope if slope.any() else np.ones(problem.dim)

    begin = np.zeros(np.prod(ball.shape)) if ball.cone is None else ball.cone.axis
    follow(begin, head_for(begin), range(len(grid)))
    generator = np.random.default_rng(0)
    for logit in START_LOGITS:
        at = int(np.argmin([abs(np.log(radius / longest * FIRST_LOGIT / logit)) for radius, _ in grid]))
        for _ in range(STARTS):
            start = generator.standard_normal(begin.shape) + (0 if ball.cone is None else ball.cone.axis * len(begin))
            start *= grid[at][0] / ball.size(start)
            follow(start, head_for(start), range(at, len(grid)))
            follow(best[at].weights, best[at].head, range(at - 1, -1, -1))
    asked = {radius: index for index, (radius, _) in enumerate(grid)}
    return [best[asked[radius]] for radius in radii.tolist()]


def _log_loss(point: _Point) -> float:
    excess = point.excess
    return HeadLoss(excess.pooled(point.weights), excess.loss).value(point.head)


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.linalg.norm(one - other) <= _SAME * np.linalg.norm(one))


def _by_turns(
    excess: Excess,
    weights: np.ndarray,
    head: np.ndarray,
    ball: WeightBall,
    of_head: WeightBall,
    radius: float,
    head_radius: float,
) -> _Point:
    """Minimise in the head and in the attention weights by turns until both are stationary."""
    head = head * (head_radius / of_head.size(head))
    if weights.any():
        weights = weights * (radius / ball.size(weights))
    best: _Point | None = None
    for _ in range(MOST_ALTERNATIONS):
        found = of_head.minimise(HeadLoss(excess.pooled(weights), excess.loss), head, head_radius)
        head = found.weights
        under = excess.under(head)
        start = weights if weights.any() else _begin(ball, under) * radius
        of_weights = ball.minimise(under, start, radius)
        weights = of_weights.weights
        # of the head under the attention as it is now
        after = of_head.residual(HeadLoss(excess.pooled(weights), excess.loss), head, head_radius)
        point = _Point(weights, under, of_weights.residual, head, after)
        if best is not None and after >= best.head_residual and after <= CONVERGED:
            return best
        best = point
        if after <= 1e-15:
            return point
    assert best is not None
    return best


def _first_radius(excess: Excess, ball: WeightBall) -> float:
    """The radius up to which all differences of logits are small."""
    dual = ball.norm.dual if isinstance(ball.norm, Lp) else Lp(2.0)
    # N* of (k_α − k_t) z', a product of rank one
    longest = np.max(dual.values(excess.keys, 1) * dual.values(excess.queries, 1)[:, None] * excess.allowed)
    return FIRST_LOGIT / float(longest)


def _grid(radii: np.ndarray, first: float) -> list[float]:
    """The radii, and as many between and before them that none is more than four times the last."""
    grid = [min(first, float(radii[0]))]
    for radius in radii.tolist():
        steps = max(1, int(np.ceil(np.log(radius / grid[-1]) / np.log(GROWTH) - 1e-9)))
        between = grid[-1] * (radius / grid[-1]) ** (np.arange(1, steps) / steps)
        grid += [*between.tolist(), radius]
    return sorted(set(grid))


def _joint_grid(radii: np.ndarray, head_radii: np.ndarray, first: float) -> list[tuple[float, float]]:
    """Pairs of radii between and before those asked for; before the first they keep its proportion."""
    scale = min(1.0, first / radii[0], FIRST_LOGIT / head_radii[0])
    both = np.stack([radii, head_radii], axis=1)
    grid = [tuple((scale * both[0]).tolist())]
    for target in both:
        last = np.array(grid[-1])
        steps = max(1, int(np.ceil(np.log((target / last).max()) / np.log(GROWTH) - 1e-9)))
        grid += [tuple((last * (target / last) ** (part / steps)).tolist()) for part in range(1, steps)]
        grid.append(tuple(target.tolist()))
    return sorted(set(grid))


def _path(
    problem: Problem,
    radii: np.ndarray,
    head_radii: np.ndarray | None,
    points: list[_Point],
    norm: Norm,
    attention: str,
) -> Path:
    """The points of one problem, and where they should go."""
    active = problem.canonical.active
    selected = np.full((len(points), *active.shape), -1)
    for row, point in zip(selected, points, strict=True):
        row[active] = np.argmax(point.excess.logits(point.weights), axis=1)
    if not problem.has_query_axis:
        selected = selected[..., 0]
    log_excess = np.array([point.excess.value(point.weights) for point in points])
    residual = np.array([point.residual for point in points])
    head_residual = np.array([point.head_residual for point in points])
    relaxed = head_limit = None
    if head_radii is not None:
        of_head = solve_head(problem, selected[-1], norm.p if isinstance(norm, Lp) else 2.0)
        head_limit = of_head.direction
        # v's radius is the one that goes on growing: a label with slack needs its token only not to fall behind
        if head_radii[-1] > radii[-1] and of_head.status != "infeasible":
            relaxed = ~of_head.support
    solution = solve_svm(problem, selected[-1], norm, relaxed=relaxed)
    weights = np.stack([point.weights for point in points])
    weights = weights.reshape(len(points), *((problem.key_dim, problem.query_dim) if problem.has_queries else (-1,)))
    return Path(
        radii=radii,
        weights=weights,
        loss=np.array([p.excess.infimum for p in points]) + np.exp(log_excess),
        log_excess=log_excess,
        selected=selected,
        status=np.where(np.maximum(residual, head_residual) <= CONVERGED, "converged", "stalled"),
        residual=residual,
        limit=solution.direction,
        limit_status=solution.status,
        norm=norm,
        attention=attention,
        head_radii=head_radii,
        head_weights=None if head_radii is None else np.stack([point.head for point in points]),
        head_limit=head_limit,
        head_residual=None if head_radii is None else head_residual,
    )


def _stacked(paths: list[Path], batch: tuple[int, ...]) -> Path:
    """The paths of a batch's problems as one."""
    first = paths[0]

    def stack(name: str, along: int) -> np.ndarray:
        array = np.stack([np.asarray(getattr(path, name)) for path in paths], axis=along)
        return array.reshape(*array.shape[:along], *batch, *array.shape[along + 1 :])

    joint = first.head_radii is not None
    along = ("weights", "loss", "log_excess", "selected", "status", "residual")
    return Path(
        radii=first.radii,
        **{name: stack(name, 1) for name in along},
        **{name: stack(name, 0) for name in ("limit", "limit_status")},
        norm=first.norm,
        attention=first.attention,
        head_radii=first.head_radii,
        head_weights=stack("head_weights", 1) if joint else None,
        head_limit=stack("head_limit", 0) if joint else None,
        head_residual=stack("head_residual", 1) if joint else None,
    )
