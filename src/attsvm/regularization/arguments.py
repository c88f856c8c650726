"""The arguments that both kinds of path share, checked, and what they determine for each problem of a batch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.heads import Head, Linear, parse_head
from attsvm.losses import OutputLoss, parse_loss
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization.balls import NuclearBall, WeightBall, ball_of
from attsvm.regularization.excess import Excess
from attsvm.regularization.head_function import function_of
from attsvm.regularization.log_losses import Scalar, scalar_of
from attsvm.regularization.trust_region import CircularCone
from attsvm.training.attention import Attention, Combined, Factored, Prompt, parse_attention
from attsvm.training.setup import make_objective

MOST_LOGITS = 6_000
MOST_NUMBERS = 50_000_000
FACTORED = (Lp(2.0), Nuclear())
"""Norms that a path of factors accepts: the Frobenius norm of the factors is the nuclear norm of their product."""


@dataclass(frozen=True)
class Setting:
    """What a path of a batch of problems minimises, and over which weights."""

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
    ) -> "Setting":
        """Check the arguments of :func:`attsvm.regularization_path` with these names.

        Raises ProblemError if one of them does not fit.
        """
        check_is_problem(problem)
        problem.check_one_head()
        if problem.labels is None or problem.num_classes is not None:
            found = "no labels" if problem.labels is None else f"{problem.num_classes} classes"
            raise ProblemError(f"problem: expected labels -1 and 1, got {found}")
        layer = parse_attention(attention, problem, rank)
        parsed = parse_loss(loss, None)
        bounding = _norm_of_ball(layer, parse_norm(norm))
        setting = cls(problem, layer, bounding, parsed, scalar_of(parsed), _parse_cones(problem, cone))
        _check_size(problem, setting.ball(next(np.ndindex(*problem.batch_shape), ())))
        return setting

    @property
    def rank(self) -> int | None:
        """The largest rank of the weights, if the factors have fewer columns than rows."""
        return self.attention.largest_rank(self.problem)

    @property
    def penalty_scale(self) -> float:
        """What the norm's power is multiplied by in a penalty: the least ‖K‖² + ‖Q‖² of factors of W is 2‖W‖_*."""
        return 2.0 if isinstance(self.attention, Factored) else 1.0

    def ball(self, index: tuple[int, ...]) -> WeightBall:
        """The weights of the problem at this index of the batch: N(W) ≤ radius, of this rank, inside its cone."""
        shape = (self.problem.key_dim, self.problem.query_dim)
        cone = None if self.cones is None else self.cones[index]
        if isinstance(self.attention, Factored):
            return NuclearBall(shape, self.norm, cone, self.rank)
        return ball_of(self.norm, shape, cone)

    def excess_of(self, head: str | Head | None) -> Callable[[Problem, tuple[int, ...]], Excess]:
        """The loss under a fixed prediction head, of a problem and its index in the batch.

        ``head``: by default the linear one of the problem. Raises ProblemError if there is none, or it does not fit.
        """
        if head is None and self.problem.head is None:
            raise ProblemError(
                'problem: expected a head, or head_radii, got neither; problem.with_head("mean") fits a head'
            )
        parsed = Linear() if head is None else parse_head(head)
        _, parameters = make_objective(
            self.problem, self.attention, parsed, self.loss, train_head=False, penalized=False
        )

        def excess(problem: Problem, index: tuple[int, ...]) -> Excess:
            own = {name: x[index] for name, x in parameters.items()}
            return Excess.of(problem, function_of(parsed, own), self.scalar)

        return excess

    def problems(self) -> Iterator[tuple[tuple[int, ...], Problem]]:
        """The problems of the batch with their indices."""
        batch = self.problem.batch_shape
        return ((index, self.problem[index] if batch else self.problem) for index in np.ndindex(*batch))


def _norm_of_ball(attention: Attention, norm: Norm) -> Norm:
    """The norm that bounds the weights of the Att-SVM."""
    if isinstance(attention, Combined):
        return norm
    if isinstance(attention, Prompt):
        return norm.of_vectors
    if not isinstance(attention, Factored):
        raise ProblemError(f"attention: expected combined, factored or prompt, got {attention.name}")
    if norm not in FACTORED:
        raise ProblemError(
            f'norm: expected "frobenius" or "nuclear" for factored attention, whose ball ‖K‖² + ‖Q‖² ≤ 2R is the '
            f"nuclear one, got {norm.name}"
        )
    return Nuclear()


def _check_size(problem: Problem, ball: WeightBall) -> None:
    """Check that the Hessian between logits, and the derivatives of the logits in W, fit into memory."""
    num_logits = int(problem.canonical.active.sum(axis=(-2, -1)).max()) * problem.num_tokens
    num_weights = problem.key_dim * problem.query_dim
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
    return {i: CircularCone(axis[i] / length[i], correlation) for i in np.ndindex(*problem.batch_shape)}


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
