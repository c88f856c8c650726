"""Every check on what a user asks a regularisation path for."""

from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, Spectral
from attsvm.problem import Problem

MOST_LOGITS = 6_000
MOST_NUMBERS = 50_000_000


def parse_radii(name: str, radii: Any, strictly: bool = True) -> np.ndarray:
    """Positive numbers that grow, or with ``strictly`` False do not fall."""
    try:
        array = np.array(radii, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name}: not an array of numbers ({error})") from None
    if array.ndim != 1 or not len(array):
        raise ProblemError(f"{name}: shape {array.shape} found, (L,) with at least one wanted")
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ProblemError(f"{name}: {array[~(np.isfinite(array) & (array > 0))][0]} found, positive numbers wanted")
    falling = np.flatnonzero(np.diff(array) <= 0 if strictly else np.diff(array) < 0)
    if len(falling):
        i = int(falling[0])
        raise ProblemError(f"{name}: {array[i + 1]:g} after {array[i]:g} found, growing radii wanted")
    return array


def norm_of_ball(norm: Norm, attention: str) -> Norm:
    """The norm that bounds W, for a kind of attention."""
    if attention == "prompt" and isinstance(norm, Nuclear):
        return Lp(2.0)
    if attention == "factored":
        if not isinstance(norm, Nuclear) and norm != Lp(2.0):
            raise ProblemError(
                f"norm: {norm.name} found for factored attention; its ball ‖K‖² + ‖Q‖² ≤ 2R is that of the nuclear norm"
            )
        return Nuclear()
    if isinstance(norm, Spectral) or (isinstance(norm, Lp) and not 1 < norm.p < np.inf):
        raise ProblemError(f'norm: {norm.name} found; a path takes "frobenius", "nuclear" or p with 1 < p < inf')
    return norm


def check_problem(problem: Problem, trains_head: bool) -> None:
    """Labels ±1, and a head where it is not on the path itself."""
    if problem.labels is None or problem.num_classes is not None:
        found = "no labels" if problem.labels is None else f"{problem.num_classes} classes"
        raise ProblemError(f"problem: {found} found, labels -1 and 1 wanted")
    if problem.head is None and not trains_head:
        raise ProblemError("problem: has no head; give it one, or head_radii")


def check_size(problem: Problem, norm: Norm, in_cone: bool) -> None:
    """Newton steps hold the Hessian between logits, and the logits' derivatives in W."""
    num_logits = int(problem.canonical.active.sum(axis=(-2, -1)).max()) * problem.num_tokens
    num_weights = problem.key_dim * problem.query_dim
    dense = in_cone or (isinstance(norm, Lp) and norm.p > 2)
    if num_logits > MOST_LOGITS or num_logits * num_weights > MOST_NUMBERS or (dense and num_weights**2 > MOST_NUMBERS):
        raise ProblemError(
            f"problem: {num_logits:,} logits of {num_weights:,} weights found, more than a path's Newton steps can hold"
        )


def parse_cones(
    problem: Problem, cone: tuple[Any, float] | None
) -> dict[tuple[int, ...], tuple[np.ndarray, float]] | None:
    """Axis, flat and of length 1, and correlation of each problem's cone."""
    if cone is None:
        return None
    if not isinstance(cone, tuple) or len(cone) != 2:
        raise ProblemError("cone: a pair wanted, of a direction and the least correlation with it")
    axis = np.asarray(cone[0], dtype=np.float64)
    own = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    if axis.shape not in (own, problem.batch_shape + own):
        raise ProblemError(f"cone: direction of shape {axis.shape} found, {problem.batch_shape + own} wanted")
    axis = np.broadcast_to(axis, problem.batch_shape + own).reshape(*problem.batch_shape, -1)
    length = np.linalg.norm(axis, axis=-1)
    if not (np.isfinite(axis).all() and (length > 0).all()):
        raise ProblemError("cone: a direction without finite entries, or zero, found")
    try:
        correlation = float(cone[1])
    except (TypeError, ValueError):
        raise ProblemError(f"cone: {cone[1]!r} found, the least correlation wanted, a number in (0, 1)") from None
    if not 0 < correlation < 1:
        raise ProblemError(f"cone: correlation {correlation:g} found, a number in (0, 1) wanted")
    return {i: (axis[i] / length[i], correlation) for i in np.ndindex(*problem.batch_shape)}
