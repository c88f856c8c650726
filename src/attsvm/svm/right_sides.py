"""Right sides of any sign, and weights that are measured from a centre: checks, and weights that keep all rows.

With W = W_0 + V, the least N(W − W_0) under A(W) ≥ b is the least N(V) under A(V) ≥ h with h = b − A(W_0). The methods
solve it as they solve b = 1. Dividing V by its smallest A(V)/h over the rows with h > 0 keeps these rows, but it may
violate the others by a little. V is therefore moved to the nearest weights that keep all of them.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from attsvm._utils.checks import as_floats, weights_of
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.svm.certificate import FROBENIUS, UNIT, VIOLATION_ALLOWED, length_of, rounding_of_margins
from attsvm.svm.constraints.constraints import ALL_TOKENS, LENGTHS, Constraints, TokenValues, Weights
from attsvm.svm.methods.registry import Candidate, SolverSettings, find_candidate
from attsvm.svm.tolerances import DEPENDENT

PADDINGS = 2.0, 0.0
"""Rounding errors by which weights are moved inside the rows; none if there is no room inside."""

HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Tolerances of HiGHS, the smallest that it allows."""

SEEN = 1e-4
"""A violation of this part of the unit is found to six digits."""

ROOM = 1.001, 0.1 * VIOLATION_ALLOWED
"""Rows that contradict each other by t may be violated by this multiple of t, and this part of the largest b more."""

MOST_NUMBERS = 1_000_000
"""In the rows of the largest problem that HiGHS solves, in a second or two."""


def check_required(problem: Problem, required: Any, batch: tuple[int, ...]) -> Float[np.ndarray, "*batch n Q T"] | None:
    """The margins that are required, with all batch axes and a Q axis; NaN where nothing is.

    Raises ProblemError if the shape does not fit, or an entry is infinite.
    """
    if required is None:
        return None
    array = as_floats("required", required, "real numbers, NaN where no margin is required")
    own = (*problem.query_shape[len(problem.batch_shape) :], problem.num_tokens)
    if array.shape not in (own, problem.batch_shape + own, batch + own):
        raise ProblemError(f"required: expected shape {batch + own}, got {array.shape}")
    if np.isinf(array).any():
        raise ProblemError("required: expected finite numbers, or NaN where no margin is required, got infinity")
    array = np.broadcast_to(array, batch + own)
    return problem.copies.largest(array if problem.has_query_axis else array[..., None, :])


def check_center(problem: Problem, center: Any, batch: tuple[int, ...]) -> Weights | None:
    """The centre, with all batch axes and two of its own.

    Raises ProblemError if the shape does not fit, or a number is not finite.
    """
    if center is None:
        return None
    weights = weights_of(center, "center")
    own = problem.weights_shape
    if weights.shape not in (own, batch + own):
        raise ProblemError(f"center: expected shape {batch + own}, got {weights.shape}")
    if not np.isfinite(weights).all():
        raise ProblemError("center: expected finite numbers, got NaN or inf")
    problem.check_blocks("center", weights)
    return (
        np.broadcast_to(weights, batch + own)
        if problem.has_queries
        else np.broadcast_to(weights[..., None], batch + own + (1,))
    )


def with_margins(constraints: Constraints, required: TokenValues | None) -> Constraints:
    """The constraints A(W) ≥ b, from those with right side 1; the latter if no margins are given.

    Raises ProblemError if there are sets of tokens, or a margin is too large for doubles.
    """
    if constraints.equality is not None:
        raise ProblemError("selected: expected one token for each query with required or center, got sets of tokens")
    inequality, right = constraints.inequality, constraints.right
    if required is not None:
        required = required.reshape(inequality.shape)
        inequality = inequality & ~np.isnan(required)
        right = np.where(inequality, required, 0.0)
        if (abs(right) > LENGTHS[1] * np.where(constraints.norms > 0, constraints.norms, 1.0)).any():
            raise ProblemError(
                f"required: expected margins up to {LENGTHS[1]:g} times the length of k_α − k_t and that of the query, "
                f"got {abs(right).max():.3g}"
            )
    return replace(constraints, inequality=inequality, right=right, center_length=np.zeros(constraints.batch_shape))


def measured_from(center: Weights, constraints: Constraints) -> Constraints:
    """The constraints A(V) ≥ b − A(W_0) on V = W − W_0.

    Raises ProblemError if a margin of the centre overflows.
    """
    length = length_of(center)
    right = constraints.right - constraints.apply(center)
    if not np.isfinite(right).all():
        raise ProblemError("center: expected weights with finite margins; scale the centre or the problem")
    # a margin that the centre has up to rounding asks for no change of it
    error = constraints.sizes * length[..., None, None, None] + abs(constraints.right)
    right = np.where(abs(right) <= rounding_of_margins(constraints) * error, 0.0, right)
    return replace(constraints, right=right, center_length=length)


def repaired(constraints: Constraints, candidate: Candidate) -> Candidate:
    """The candidate with weights that keep all rows, rounding errors included, if the nearest such weights are near.

    A move D of least ‖D‖_F with A(D) ≥ h − A(V) + padding is a problem of the same kind, in the Frobenius norm.
    """
    if constraints.center_length is None:
        return candidate
    flat = constraints.with_one_axis()
    weights = _scaled(flat, np.asarray(candidate.weights).reshape(flat.batch_shape + flat.weights_shape))
    left = flat.asks_margin & ~candidate.ray.reshape(-1) & np.isfinite(weights).all(axis=(-2, -1))
    for padding in PADDINGS:
        index = np.flatnonzero(left)
        if len(index) == 0:
            break
        some = flat[index]
        length = length_of(weights[index]) + some.center_length
        room = rounding_of_margins(some) * (some.sizes * length[:, None, None, None] + abs(some.right))
        short = np.where(some.inequality, some.right - some.apply(weights[index]) + padding * room, 0.0)
        lacking = short.max(axis=ALL_TOKENS, initial=0.0) > 0
        index, short = index[lacking], short[lacking]
        if len(index) == 0:
            break
        violated = replace(flat[index], right=short)
        moved = find_candidate(violated, FROBENIUS, SolverSettings())
        after = weights[index] + _scaled(violated, moved.weights)
        now = np.where(flat.inequality[index], flat.right[index] - flat[index].apply(after), 0.0)
        better = ~moved.ray & (now.max(axis=ALL_TOKENS) < np.maximum(short.max(axis=ALL_TOKENS), 0.0))
        weights[index[better]] = after[better]
        left[index[better]] = False
    return candidate._replace(weights=weights.reshape(candidate.weights.shape))


def _scaled(constraints: Constraints, weights: Weights) -> Weights:
    """Weights divided by their smallest A(V)/h, if that is positive: candidates have any scale."""
    smallest = constraints.smallest_margin(weights)
    return np.asarray(weights / np.where((smallest > 0) & np.isfinite(smallest), smallest, 1.0)[:, None, None])


def least_violating(exact: Constraints) -> tuple[Weights | None, TokenValues]:
    """Weights that violate the rows of one problem least, and multipliers that prove by how much: a ray or nearly one.

    On unit rows G, the least t with Gw + t ≥ h has the dual max h'μ over G'μ = 0, Σμ ≤ 1 and μ ≥ 0. Where HiGHS finds
    no optimum or the rows are too many, there are no weights, and the multipliers are those of the Frobenius norm.
    """
    constraints = exact[...]  # without exact products
    if constraints.most_rows * math.prod(constraints.weights_shape) <= MOST_NUMBERS:
        G, h, _, position = constraints.rows()
        size = float(abs(h).max(initial=0.0)) or 1.0
        objective, left = np.append(np.zeros(G.shape[1]), 1.0), -np.hstack([G, np.ones((len(G), 1))])
        bounds: Any = [(None, None)] * G.shape[1] + [(0, None)]
        point, unit, t, solved = np.zeros(G.shape[1]), size, 0.0, None
        # iterative refinement (Gleixner, Steffy and Wolter 2012): HiGHS is accurate to 1e-10 of the unit of h − Gw
        while unit > 0 and t < SEEN:
            found = linprog(objective, A_ub=left, b_ub=(G @ point - h) / unit, bounds=bounds, options=HIGHS)
            if found.status != 0:
                break
            solved, point, t = found, point + unit * found.x[:-1], float(found.x[-1])
            violation = float((h - G @ point).max(initial=0.0))
            unit = violation if UNIT * size < violation < unit else 0.0
        if solved is not None:
            room = ROOM[0] * violation * constraints.norms + ROOM[1] * abs(constraints.right).max()
            relaxed = replace(constraints, right=np.where(constraints.inequality, constraints.right - room, 0.0))
            least = point.reshape(constraints.weights_shape)
            near = repaired(relaxed, find_candidate(relaxed, FROBENIUS, SolverSettings())).weights
            # the set of such weights may be too thin for the solver of the shortest
            keeps = bool(
                (np.where(constraints.inequality, relaxed.right - relaxed.apply(near), 0.0) <= 0.01 * room).all()
            )
            kept = near if keeps else least
            ray = constraints.spread(np.maximum(-solved.ineqlin.marginals, 0.0), position)
            active = np.flatnonzero(ray.reshape(-1)[position])
            # the least change of μ with G'μ = 0, as far as doubles allow
            pull = exact.adjoint(ray).reshape(-1)
            change = np.linalg.lstsq(G[active].T, pull, rcond=DEPENDENT)[0]
            return kept, np.maximum(ray - constraints.spread(change, position[active]), 0.0)
    return None, find_candidate(constraints, FROBENIUS, SolverSettings()).multipliers
