"""The soft-margin Att-SVM, for selections that no weights keep, or that only very large weights keep."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError
from attsvm.svm.certificate import Certified, length_of, rounding_of_margins, rounding_of_sums
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.box_program import MAX_STEPS, solve_box

LARGEST_GRAM = 2_000
"""Largest number of rows whose whole Gram matrix is formed; for more rows, that of a part at a time is."""
DESCENT_STEPS = 300
ROUNDS = 40


class SoftMargin(NamedTuple):
    """What the multipliers prove."""

    certified: Certified
    objective: np.ndarray


def check_slack(slack: float, euclidean: bool, constraints: Constraints, relaxed: object) -> float:
    """Return C as a float.

    Raises ProblemError if it is not a positive number, the norm is not the Frobenius norm, sets are selected, or
    ``relaxed`` is given.
    """
    C = check_number("slack", slack, "a positive number C", lambda x: x > 0)
    if not euclidean:
        raise ProblemError("slack: expected the Frobenius norm, or the l2 norm of a prompt, got another norm")
    if constraints.equality is not None:
        raise ProblemError("slack: expected one selected token per query, got sets of tokens")
    if relaxed is not None:
        raise ProblemError("slack: expected no relaxed queries, got relaxed; leave one of them out")
    return C


def solve_slack(constraints: Constraints, C: float, settings: Settings, hard: Candidate) -> Candidate:
    """Multipliers 0 ≤ λ ≤ C of min ½‖W‖² + C Σ max(0, 1 − A(W)); the weights are A*(λ).

    If the hard-margin multipliers lie in the box, they are the answer. Otherwise an interior point method solves the
    dual, a quadratic program in a box, on the Gram matrix of the rows. With more than 2,000 rows, projected gradient
    steps through A and A* first determine which multipliers are at a bound, and only the other rows are used.

    ``constraints``: with one token per query and no relaxed query. ``hard``: the candidate of the Frobenius solver for
    the same constraints.
    """
    if not np.isfinite(constraints.norms).all():
        return Candidate.nothing(constraints, "norms of rows are not finite")
    batch = constraints.batch_shape
    shape = constraints.inequality.shape
    multipliers, steps = np.zeros(shape), np.zeros(batch, dtype=int)
    inside, scaled = _hard_margin(constraints, C, hard)
    multipliers[inside] = scaled[inside]
    rest = ~inside
    number = int(np.prod(shape[-3:]))
    method, why = "hard-margin", "every hard-margin multiplier is at most C"
    if rest.any() and number <= LARGEST_GRAM:
        method, why = "box-interior-point", "small: the Gram matrix of the rows fits in memory"
    elif rest.any():
        method, why = "decomposition", "large: the Gram matrix of part of the rows at a time"
    solve_one = _by_gram if number <= LARGEST_GRAM else _decomposed
    for index in map(tuple, np.argwhere(rest).tolist()):
        own = constraints[index] if batch else constraints
        try:
            multipliers[index], steps[index] = solve_one(own, C, settings)
        except np.linalg.LinAlgError:  # the multipliers of the hard margin, cut off at C, are certified like any other
            multipliers[index] = np.clip(scaled[index], 0.0, C)
    return Candidate(
        weights=_touched_up(constraints, C, multipliers),
        multipliers=multipliers,
        ray=np.zeros(batch, dtype=bool),
        steps=steps,
        method=method,
        why=why,
    )


def certify_slack(constraints: Constraints, C: float, weights: Weights, multipliers: TokenValues) -> SoftMargin:
    """The bounds that weights W and multipliers 0 ≤ λ ≤ C prove: P(W) ≥ optimum ≥ D(λ).

    P − D is computed without cancellation: it is the sum of λ (A(W) − 1) over the rows above their margin, of
    (C − λ)(1 − A(W)) over those below, and of ½‖W − A*(λ)‖². The gap contains a bound on the rounding errors.
    """
    flat = constraints.flat
    dual = np.clip(multipliers, 0.0, C) * constraints.inequality
    mask, of_dual, length = flat(constraints.inequality), flat(dual), length_of(weights)
    margins = flat(constraints.apply(weights))
    error = flat(constraints.sizes) * (rounding_of_margins(constraints) * length)[..., None]
    apart = length_of(weights - constraints.adjoint(dual))
    apart_error = rounding_of_sums(constraints) * np.vecdot(of_dual, flat(constraints.sizes))
    short = np.where(mask, 1.0 - margins, 0.0)
    gap, objective = _soft_gap(C, of_dual, length, short, error, apart + apart_error)
    some = mask.any(axis=-1)
    smallest = 1.0 - np.max(short + error, axis=-1, where=mask, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.where(some & (length > 0), smallest / length, np.nan)
    done = Certified(
        weights=weights,
        dual=dual,
        value=length,
        margin=margin,
        gap=gap,
        violation=np.zeros(constraints.batch_shape),
        raw_violation=np.zeros(constraints.batch_shape),
        support=dual > 0,
    )
    return SoftMargin(done, objective)


def _soft_gap(
    C: float, dual: np.ndarray, length: np.ndarray, short: np.ndarray, error: np.ndarray, apart: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """An upper bound on (P − D)/P, and P, for rows that are short of their margin by ``short`` up to ``error``."""

    def excess_of(short: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(short > 0, (C - dual) * short, -dual * short))

    objective = 0.5 * length**2 + C * np.maximum(short, 0.0).sum(axis=-1)
    least = 0.5 * length**2 + C * np.maximum(short - error, 0.0).sum(axis=-1)
    # the excess of a row is a convex function of its margin
    excess = np.maximum(excess_of(short - error), excess_of(short + error)).sum(axis=-1) + 0.5 * apart**2
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(excess == 0, 0.0, excess / least)
    # nothing is proved if norms of rows overflow or underflow
    return np.where(np.isnan(gap), np.inf, gap), objective


def _touched_up(constraints: Constraints, C: float, multipliers: TokenValues) -> Weights:
    """A*(λ), or the nearest weights with a margin of 1 on the rows with 0 < λ < C if these have a smaller gap.

    For large C, A*(λ) is a small sum of large terms and loses digits. A margin that rounding leaves below 1 costs C
    times the difference, while slightly longer weights cost almost nothing.
    """
    weights = constraints.adjoint(multipliers)
    if constraints.batch_shape:
        pairs = ((constraints[i], multipliers[i]) for i in np.ndindex(constraints.batch_shape))
        return np.stack([_touched_up(each, C, own) for each, own in pairs]).reshape(weights.shape)
    inside = (multipliers > 0) & (multipliers < C)
    number = np.count_nonzero(inside)
    if not 0 < number <= LARGEST_GRAM:
        return weights
    lacking = (1.0 - constraints.apply(weights))[inside]
    moved = np.zeros(multipliers.shape)
    gram = _gram(constraints, inside.reshape(-1))
    moved[inside] = np.linalg.lstsq(gram, lacking, rcond=1e-14)[0]
    exact = weights + constraints.adjoint(moved)
    # weights that are longer by what rounding may take from the margins
    longest = float(constraints.sizes.max(where=inside, initial=0.0))
    padding = 1 + rounding_of_margins(constraints) * longest * float(length_of(exact))
    candidates = (weights, exact, weights * padding, exact * padding)
    return min(candidates, key=lambda each: certify_slack(constraints, C, each, multipliers).certified.gap)


def _by_gram(constraints: Constraints, C: float, settings: Settings) -> tuple[TokenValues, int]:
    """Multipliers of one problem, from its whole Gram matrix."""
    rows = constraints.rows_mask.reshape(-1)
    multipliers = np.zeros(rows.size)
    limit = MAX_STEPS if settings.max_steps is None else settings.max_steps
    found = solve_box(_gram(constraints, rows), constraints.right.reshape(-1)[rows], np.full(rows.sum(), C), limit)
    multipliers[rows] = found.point
    return multipliers.reshape(constraints.inequality.shape), found.steps


def _hard_margin(constraints: Constraints, C: float, hard: Candidate) -> tuple[np.ndarray, TokenValues]:
    """Where the hard-margin multipliers are at most C, and these multipliers with W = A*(λ)."""
    flat = constraints.flat
    dual = np.maximum(hard.multipliers, 0.0) * constraints.inequality
    weights = constraints.adjoint(dual)
    smallest = np.min(flat(constraints.apply(weights)), axis=-1, where=flat(constraints.inequality), initial=np.inf)
    fine = ~hard.ray & (smallest > 0)
    # a margin above 1 by eps costs eps, a margin below 1 by eps costs C times eps
    scaled = dual / np.where(fine & np.isfinite(smallest), smallest, 1.0)[..., None, None, None]
    fits = np.asarray(fine & (flat(scaled).max(axis=-1, initial=0.0) <= C))
    return fits, scaled


def _gram(constraints: Constraints, rows: np.ndarray) -> np.ndarray:
    """Products of some rows of one problem, chosen by a mask over the flattened (n, Q, T)."""
    position = np.flatnonzero(rows)
    left, queries = constraints.differences(position), constraints.queries_of(position)
    return np.asarray((left @ left.mT) * (queries @ queries.mT))


def _decomposed(constraints: Constraints, C: float, settings: Settings) -> tuple[TokenValues, int]:
    """Multipliers of one large problem: projected gradient steps, then the box program of the unsettled multipliers."""
    shape, right = constraints.inequality.shape, constraints.right
    best, least = np.zeros(shape), np.inf
    multipliers = np.zeros(shape)
    rate = 1 / _largest_eigenvalue(constraints)
    limit = ROUNDS if settings.max_steps is None else settings.max_steps
    steps = 0
    for steps in range(1, limit + 1):
        multipliers = _descend(constraints, C, multipliers, rate)
        slope = constraints.apply(constraints.adjoint(multipliers)) - right
        # settled: at a bound, with a slope that keeps it there
        settled = ((multipliers <= 0) & (slope > 0)) | ((multipliers >= C) & (slope < 0)) | ~constraints.inequality
        open_rows = np.flatnonzero(~settled)
        if 0 < len(open_rows) <= 2 * LARGEST_GRAM:
            chosen = np.zeros(multipliers.size, dtype=bool)
            chosen[open_rows] = True
            gram = _gram(constraints, chosen)
            fixed = multipliers.copy().reshape(-1)
            fixed[open_rows] = 0.0
            pull = constraints.apply(constraints.adjoint(fixed.reshape(shape))).reshape(-1)
            goal = right.reshape(-1)[open_rows] - pull[open_rows]
            fixed[open_rows] = solve_box(gram, goal, np.full(len(open_rows), C)).point
            multipliers = fixed.reshape(shape)
        gap = float(certify_slack(constraints, C, constraints.adjoint(multipliers), multipliers).certified.gap)
        if gap < least:
            best, least = multipliers, gap
        stop = settings.report is not None and settings.report(steps, least)
        if least <= min(settings.tol, 1e-10) or stop:
            break
    return best, steps


def _descend(constraints: Constraints, C: float, multipliers: TokenValues, rate: float) -> TokenValues:
    """Accelerated projected gradient on the dual, restarted when it overshoots."""
    ahead, momentum = multipliers, 1.0
    for _ in range(DESCENT_STEPS):
        slope = (constraints.apply(constraints.adjoint(ahead)) - constraints.right) * constraints.inequality
        after = np.clip(ahead - rate * slope, 0.0, C) * constraints.inequality
        if np.vdot(slope, after - multipliers) > 0:
            ahead, momentum = after, 1.0
        else:
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = after + (momentum - 1) / following * (after - multipliers)
            momentum = following
        multipliers = after
    return multipliers


def _largest_eigenvalue(constraints: Constraints) -> float:
    """An upper bound, up to a few percent, on the largest eigenvalue of A A*, by power iteration."""
    vector = constraints.inequality.astype(float)
    size = 1.0
    for _ in range(50):
        vector = constraints.apply(constraints.adjoint(vector)) * constraints.inequality
        size = float(np.linalg.norm(vector))
        if size == 0:
            return 1.0
        vector /= size
    return 1.05 * size
