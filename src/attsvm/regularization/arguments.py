"""Checks of the arguments of a regularization path."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization.balls import NuclearBall, WeightBall, ball_of
from attsvm.regularization.excess import Scalar
from attsvm.regularization.trust_region import CircularCone
from attsvm.training.attention import Attention, Combined, Factored, Prompt

MOST_LOGITS = 6_000
MOST_NUMBERS = 50_000_000
FACTORED = (Lp(2.0), Nuclear())
"""Norms that a path of factors accepts: the Frobenius norm of the factors is the nuclear norm of their product."""


def _numbers(name: str, given: Any) -> np.ndarray:
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name}: expected an array of numbers, got {type(given).__name__} ({error})") from None
    if array.ndim != 1 or not len(array):
        raise ProblemError(f"{name}: expected shape (L,) with L >= 1, got {array.shape}")
    return array


def parse_radii(name: str, radii: Any, *, strictly: bool = True) -> np.ndarray:
    """Positive numbers that increase, or with ``strictly=False`` do not decrease."""
    array = _numbers(name, radii)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ProblemError(
            f"{name}: expected positive finite numbers, got {array[~(np.isfinite(array) & (array > 0))][0]}"
        )
    falling = np.flatnonzero(np.diff(array) <= 0 if strictly else np.diff(array) < 0)
    if len(falling):
        i = int(falling[0])
        raise ProblemError(f"{name}: expected increasing radii, got {array[i + 1]:g} after {array[i]:g}")
    return array


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
    if loss.log_value is None:
        raise ProblemError('loss: expected "logistic" or "exponential" with head_radii, which need the log of the loss')
    return array


@singledispatch
def norm_of_ball(attention: Attention, norm: Norm) -> Norm:
    """The norm that bounds the weights of the Att-SVM, found by the type of the attention.

    Raises ProblemError if paths of this attention are not known, or not in this norm.
    """
    raise ProblemError(f"attention: expected combined, factored or prompt, got {attention.name}")


@norm_of_ball.register
def _(attention: Combined, norm: Norm) -> Norm:
    return norm


@norm_of_ball.register
def _(attention: Prompt, norm: Norm) -> Norm:
    return norm.of_vectors


@norm_of_ball.register
def _(attention: Factored, norm: Norm) -> Norm:
    if norm not in FACTORED:
        raise ProblemError(
            f'norm: expected "frobenius" or "nuclear" for factored attention, whose ball ‖K‖² + ‖Q‖² ≤ 2R is the '
            f"nuclear one, got {norm.name}"
        )
    return Nuclear()


@singledispatch
def ball_for(attention: Attention, norm: Norm, shape: tuple[int, int], cone: CircularCone | None = None) -> WeightBall:
    """The ball of a path of this attention, in the norm that :func:`norm_of_ball` returns."""
    return ball_of(norm, shape, cone)


@ball_for.register
def _(attention: Factored, norm: Norm, shape: tuple[int, int], cone: CircularCone | None = None) -> WeightBall:
    return NuclearBall(shape, norm, cone, attention.rank if attention.rank < min(shape) else None)


@singledispatch
def penalty_scale(attention: Attention) -> float:
    """What the norm's power is multiplied by in a penalty."""
    return 1.0


@penalty_scale.register
def _(attention: Factored) -> float:
    return 2.0  # the least ‖K‖² + ‖Q‖² of factors of W is 2‖W‖_*


def parse_log_penalties(log_penalties: Any) -> np.ndarray:
    """Finite numbers that decrease."""
    name = "log_penalties"
    array = _numbers(name, log_penalties)
    if not np.isfinite(array).all():
        raise ProblemError(f"{name}: expected finite logarithms, got {array[~np.isfinite(array)][0]}")
    rising = np.flatnonzero(np.diff(array) >= 0)
    if len(rising):
        i = int(rising[0])
        raise ProblemError(f"{name}: expected decreasing logarithms, got {array[i + 1]:g} after {array[i]:g}")
    return array


def check_problem(problem: Problem) -> None:
    """Check for labels ±1 and one attention head."""
    check_is_problem(problem)
    problem.check_one_head()
    if problem.labels is None or problem.num_classes is not None:
        found = "no labels" if problem.labels is None else f"{problem.num_classes} classes"
        raise ProblemError(f"problem: expected labels -1 and 1, got {found}")


def check_size(problem: Problem, ball: WeightBall) -> None:
    """Check that the Hessian between logits, and the derivatives of the logits in W, fit into memory."""
    num_logits = int(problem.canonical.active.sum(axis=(-2, -1)).max()) * problem.num_tokens
    num_weights = problem.key_dim * problem.query_dim
    dense = ball.needs_dense_hessian and num_weights**2 > MOST_NUMBERS
    if num_logits > MOST_LOGITS or num_logits * num_weights > MOST_NUMBERS or dense:
        raise ProblemError(
            f"problem: expected at most {MOST_LOGITS:,} logits and {MOST_NUMBERS:,} derivatives, for the Newton steps "
            f"of a path, got {num_logits:,} logits of {num_weights:,} weights"
        )


def parse_cones(
    problem: Problem, cone: tuple[Any, float] | None
) -> dict[tuple[int, ...], tuple[np.ndarray, float]] | None:
    """For each problem of a batch, the axis of the cone (flat, of length 1) and the correlation."""
    if cone is None:
        return None
    if not isinstance(cone, tuple) or len(cone) != 2:
        raise ProblemError(
            f"cone: expected a pair of a direction and the smallest correlation with it, got {type(cone).__name__}"
        )
    axis = np.asarray(cone[0], dtype=np.float64)
    own = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    if axis.shape not in (own, problem.batch_shape + own):
        raise ProblemError(f"cone: expected a direction of shape {problem.batch_shape + own}, got {axis.shape}")
    axis = np.broadcast_to(axis, problem.batch_shape + own).reshape(*problem.batch_shape, -1)
    length = np.linalg.norm(axis, axis=-1)
    if not (np.isfinite(axis).all() and (length > 0).all()):
        raise ProblemError("cone: expected a finite nonzero direction, got zero, NaN or inf")
    try:
        correlation = float(cone[1])
    except (TypeError, ValueError):
        raise ProblemError(f"cone: expected a correlation in (0, 1), got {cone[1]!r}") from None
    if not 0 < correlation < 1:
        raise ProblemError(f"cone: expected a correlation in (0, 1), got {correlation:g}")
    return {i: (axis[i] / length[i], correlation) for i in np.ndindex(*problem.batch_shape)}
