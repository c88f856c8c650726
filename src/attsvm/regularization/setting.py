"""Check the arguments of both kinds of path, follow the problems of a batch, and make one result of the points."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from attsvm._utils.checks import as_floats, check_number
from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.heads import Head, Linear, parse_head
from attsvm.losses import OutputLoss, parse_margin_loss
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization.balls import NuclearBall, WeightBall
from attsvm.regularization.barrier_balls import ball_of
from attsvm.regularization.branches import PathPoint, PathWatch
from attsvm.regularization.flat_excess import FlatExcess
from attsvm.regularization.margin_losses import Scalar, function_of, scalar_of
from attsvm.regularization.result import PathResult, is_solved
from attsvm.regularization.trust_region import CircularCone
from attsvm.results import Status
from attsvm.svm import solve_svm
from attsvm.training import Attention, Objective, parse_attention

MOST_LOGITS = 6_000
"""The Hessian between logits is a matrix of this size: 288 MB."""
MOST_NUMBERS = 50_000_000
"""Numbers of one array: 400 MB."""
FACTORED = (Lp(2.0), Nuclear())
"""Norms that a path of factors accepts: the Frobenius norm of the factors is the nuclear norm of their product."""
_FILL = {"f": np.nan, "i": -1, "b": False}
"""Fills points and problems that were not reached, by the kind of the array."""

P = TypeVar("P", bound=PathResult)


@dataclass(frozen=True)
class PathSetting:
    """Hold what a path of a batch of problems minimises, and over which weights."""

    problem: Problem
    attention: Attention
    norm: Norm  # of W or p; nuclear for factors
    loss: OutputLoss
    scalar: Scalar  # the same loss, in logarithms
    cones: Mapping[tuple[int, ...], CircularCone] | None

    @classmethod
    def of(
        cls,
        problem: Problem,
        attention: str | None,
        rank: int | None,
        norm: str | float | Norm,
        loss: str | OutputLoss | Callable[..., Any],
        cone: tuple[Any, float] | None = None,
    ) -> "PathSetting":
        """Check the arguments of :func:`attsvm.regularization_path` with these names.

        Raises ProblemError if one of them does not fit.
        """
        check_is_problem(problem)
        problem.check_one_head()
        if problem.labels is None:
            raise ProblemError("problem: expected labels -1 and 1, but it has none")
        problem, parsed = parse_margin_loss(problem, loss)
        layer = parse_attention(attention, problem, rank)
        bounding = _norm_of_ball(layer, parse_norm(norm))
        setting = cls(problem, layer, bounding, parsed, scalar_of(parsed), _parse_cones(problem, cone))
        # all problems of a batch have the same shapes, so that one ball decides on the size
        _check_size(problem, setting.ball(next(np.ndindex(*problem.batch_shape), ())))
        return setting

    @property
    def rank(self) -> int | None:
        """The largest rank of the weights, if the factors have fewer columns than rows."""
        return self.attention.largest_rank(self.problem)

    @property
    def penalty_scale(self) -> float:
        """The factor of the norm's power in a penalty: the least ‖K‖² + ‖Q‖² of factors of W is 2‖W‖_*."""
        return 2.0 if self.attention.name == "factored" else 1.0

    def ball(self, index: tuple[int, ...]) -> WeightBall:
        """The weights of the problem at this index of the batch: N(W) ≤ radius, of this rank, inside its cone."""
        shape = (self.problem.key_dim, self.problem.query_dim)
        cone = None if self.cones is None else self.cones[index]
        if self.attention.name == "factored":
            # {KQ' : ‖K‖² + ‖Q‖² ≤ 2R} = {W : ‖W‖_* ≤ R}, of rank at most the number of columns
            return NuclearBall(shape, self.norm, cone, self.rank)
        return ball_of(self.norm, shape, cone)

    def excess_of(self, head: str | Head | None) -> Callable[[Problem, tuple[int, ...]], FlatExcess]:
        """The loss under a fixed prediction head, of a problem and its index in the batch.

        ``head``: by default the linear one of the problem. Raises ProblemError if there is none, or it does not fit.
        """
        if head is None and self.problem.head is None:
            raise ProblemError(
                'problem: expected a head, or head_radii, got neither; problem.with_head("mean") fits a head'
            )
        parsed = Linear() if head is None else parse_head(head)
        _, parameters = Objective.of(self.problem, self.attention, parsed, self.loss)

        def excess(problem: Problem, index: tuple[int, ...]) -> FlatExcess:
            # the parameters of the head have the batch axes of the problem
            own = {name: x[index] for name, x in parameters.items()}
            return FlatExcess.of(problem, function_of(parsed, own), self.scalar)

        return excess

    def problems(self) -> Iterator[tuple[tuple[int, ...], Problem]]:
        """The problems of the batch with their indices."""
        batch = self.problem.batch_shape
        return ((index, self.problem[index] if batch else self.problem) for index in np.ndindex(*batch))


def _norm_of_ball(attention: Attention, norm: Norm) -> Norm:
    """The norm that bounds the weights of the Att-SVM."""
    if attention.name == "combined":
        return norm
    if attention.name == "prompt":
        return norm.of_vectors
    if attention.name != "factored":
        raise ProblemError(f"attention: expected combined, factored or prompt, got {attention.name}")
    if norm not in FACTORED:
        raise ProblemError(
            f'norm: expected "frobenius" or "nuclear" for factored attention, whose ball ‖K‖² + ‖Q‖² ≤ 2R is the '
            f"nuclear one, got {norm.name}"
        )
    # both names mean one ball: the Frobenius norm of (K, Q), or the nuclear norm of KQ'
    return Nuclear()


def _check_size(problem: Problem, ball: WeightBall) -> None:
    """Check that the Hessian between logits, and the derivatives of the logits in W, fit into memory."""
    # the Hessian is J'CJ: C has a row and a column for each logit, J a row of d_k d_q derivatives
    num_logits = int(problem.canonical.active.sum(axis=(-2, -1)).max()) * problem.num_tokens
    num_weights = problem.key_dim * problem.query_dim
    # a cone, and for p > 2 the sphere, add a matrix in all entries of W
    dense = ball.needs_dense_hessian and num_weights**2 > MOST_NUMBERS
    if num_logits > MOST_LOGITS or num_logits * num_weights > MOST_NUMBERS or dense:
        raise ProblemError(
            f"problem: expected at most {MOST_LOGITS:,} logits and {MOST_NUMBERS:,} derivatives, for the Newton steps "
            f"of a path, got {num_logits:,} logits of {num_weights:,} weights"
        )


def _parse_cones(problem: Problem, cone: tuple[Any, float] | None) -> dict[tuple[int, ...], CircularCone] | None:
    """The cone of each problem of a batch."""
    if cone is None:
        return None
    if not isinstance(cone, tuple) or len(cone) != 2:
        raise ProblemError(
            f"cone: expected a pair of a direction and the smallest correlation with it, got {type(cone).__name__}"
        )
    axis = np.asarray(cone[0], dtype=np.float64)
    own = problem.weights_shape
    if axis.shape not in (own, problem.batch_shape + own):
        raise ProblemError(f"cone: expected a direction of shape {problem.batch_shape + own}, got {axis.shape}")
    axis = np.broadcast_to(axis, problem.batch_shape + own).reshape(*problem.batch_shape, -1)
    length = np.linalg.norm(axis, axis=-1)
    if not (np.isfinite(axis).all() and (length > 0).all()):
        raise ProblemError("cone: expected a finite nonzero direction, got zero, NaN or inf")
    # a correlation of 0 would be a half-space, and one of 1 a single ray
    correlation = check_number("cone", cone[1], "a correlation in (0, 1)", lambda x: 0 < x < 1)
    # c ‖W‖ ≤ ⟨W, D⟩ describes the cone for ‖D‖ = 1 only
    return {i: CircularCone(axis[i] / length[i], correlation) for i in np.ndindex(*problem.batch_shape)}


def parse_radii(name: str, radii: Any, *, strictly: bool = True) -> np.ndarray:
    """Positive numbers that increase, or with ``strictly=False`` do not decrease."""
    array = _numbers(name, radii, "positive finite numbers", lambda x: x > 0)
    # strictly=False: a head may keep its radius while that of the attention grows
    _check_order(name, array, "increasing radii", np.diff(array) <= 0 if strictly else np.diff(array) < 0)
    return array


def parse_log_penalties(log_penalties: Any) -> np.ndarray:
    """Finite numbers that decrease."""
    # λ itself is never formed: exp(−1e4) is 0 in floating point
    array = _numbers("log_penalties", log_penalties, "finite logarithms", np.isfinite)
    _check_order("log_penalties", array, "decreasing logarithms", np.diff(array) >= 0)
    return array


def _numbers(name: str, given: Any, expected: str, fits: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    array = as_floats(name, given, "an array of numbers")
    if array.ndim != 1 or not len(array):
        raise ProblemError(f"{name}: expected shape (L,) with L >= 1, got {array.shape}")
    wrong = array[~(np.isfinite(array) & fits(array))]
    if len(wrong):
        raise ProblemError(f"{name}: expected {expected}, got {wrong[0]}")
    return array


def _check_order(name: str, array: np.ndarray, expected: str, wrong: np.ndarray) -> None:
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ProblemError(f"{name}: expected {expected}, got {array[i + 1]:g} after {array[i]:g}")


def parse_head_radii(
    head_radii: Sequence[float] | np.ndarray | None, radii: np.ndarray, loss: Scalar, head: object
) -> Any:
    """One head radius for each radius, or None."""
    if head_radii is None:
        return None
    if head is not None:
        raise ProblemError(f"head: expected None with head_radii, which train a linear head, got {head!r}")
    array = parse_radii("head_radii", head_radii, strictly=False)
    if array.shape != radii.shape:
        raise ProblemError(f"head_radii: expected one for each of {len(radii)} radii, got {len(array)}")
    # the steps in the head minimise log L, a log-sum-exp of log ℓ at the margins
    if loss.log_value is None:
        raise ProblemError('loss: expected "logistic" or "exponential" with head_radii, which need the log of the loss')
    return array


def path_fields(
    setting: PathSetting,
    problem: Problem,
    points: Sequence[PathPoint],
    stopped: bool,
    head_residual: np.ndarray | None = None,
    relaxed: np.ndarray | None = None,
) -> dict[str, Any]:
    """The fields that both kinds of path share, for one problem.

    ``problem``: without batch axes. ``relaxed``: the queries that the Att-SVM relaxes.
    """
    selected = selected_tokens(problem, points)
    active = problem.canonical.active
    kept = np.zeros((len(points), *active.shape, problem.num_tokens), dtype=bool)
    for row, point in zip(kept, points, strict=True):
        # padded queries keep nothing
        row[active] = point.excess.kept(point.weights)
    # counted before tokens with equal keys are added to a kept one, since they are one token
    single = (kept[-1].sum(axis=-1) <= 1).all()
    kept = problem.copies.largest(kept)
    if not problem.has_query_axis:
        kept = kept[:, :, 0]
    # the limit is the Att-SVM of the tokens, or of the sets of tokens, that are kept last
    solution = solve_svm(
        problem,
        selected[-1] if single else kept[-1],
        setting.norm,
        relaxed=relaxed,
        rank=setting.rank,
    )
    weights = np.stack([point.weights for point in points])
    matrix = (problem.key_dim, problem.query_dim) if problem.has_queries else (-1,)
    residual = np.array([point.residual for point in points])
    all_solved = is_solved(residual, head_residual).all()
    return {
        "status": Status.INTERRUPTED if stopped else Status.CONVERGED if all_solved else Status.INACCURATE,
        "weights": weights.reshape(len(points), *matrix),
        "loss": np.array([point.excess.loss_at(point.weights) for point in points]),
        "log_excess": np.array([point.excess.value(point.weights) for point in points]),
        "selected": selected,
        "residual": residual,
        "limit": solution.direction,
        "limit_status": Status(str(solution.status)),
        "kept": kept,
        "norm": setting.norm,
        "attention": setting.attention.name,
        "rank": setting.rank,
    }


def selected_tokens(problem: Problem, points: Sequence[PathPoint]) -> np.ndarray:
    """The token of largest logit at each point, shape (L, n[, Q]); -1 for padded queries."""
    active = problem.canonical.active
    selected = np.full((len(points), *active.shape), -1)
    for row, point in zip(selected, points, strict=True):
        row[active] = point.excess.selected(point.weights)
    return selected if problem.has_query_axis else selected[..., 0]


def follow_batch(
    setting: PathSetting,
    num_points: int,
    callback: Callback | None,
    follow_one: Callable[[Problem, tuple[int, ...], PathWatch], P],
) -> P:
    """The paths of all problems of the batch as one, up to the point where the callback stops the work."""
    batch = setting.problem.batch_shape
    watch = PathWatch(callback, num_points * int(np.prod(batch)))
    paths: list[P] = []
    for index, one in setting.problems():
        paths.append(follow_one(one, index, watch))
        watch.before += num_points
        if watch.stopped:
            break
    return _stacked(paths, batch) if batch else paths[0]


def _stacked(paths: Sequence[P], batch: tuple[int, ...]) -> P:
    """The paths of the problems of a batch as one; points and problems that were not reached are filled up."""
    longest = max(paths, key=lambda path: len(path.loss))
    number = int(np.prod(batch))
    changed: dict[str, Any] = {}
    for entry in fields(longest):
        role, first = entry.metadata["attsvm.role"], getattr(longest, entry.name)
        if first is None or role not in ("record", "trial"):
            continue
        values = [np.asarray(getattr(path, entry.name)) for path in paths]
        # records have their own axis before those of the batch
        if role == "record":
            whole = np.full((len(first), number, *first.shape[1:]), _FILL[first.dtype.kind], dtype=first.dtype)
            for i, value in enumerate(values):
                whole[: len(value), i] = value
            changed[entry.name] = whole.reshape(len(first), *batch, *first.shape[1:])
        else:
            # without own axes there are only statuses; directions of problems that were not reached are NaN
            missing = np.asarray(Status.INTERRUPTED) if np.ndim(first) == 0 else np.full_like(first, np.nan)
            values += [missing] * (number - len(paths))
            changed[entry.name] = np.stack(values).reshape(*batch, *np.shape(first))
    return replace(longest, **changed)
