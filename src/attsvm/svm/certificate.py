"""The certificate of a candidate of any solver: feasible pairs, their gap, and Farkas multipliers."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.norms import Lp, Norm
from attsvm.svm.constraints.constraints import ALL_TOKENS, Constraints, TokenMask, TokenValues, Weights

FROBENIUS = Lp(2.0)

FARKAS_BOUND = 1e12
"""A selection counts as infeasible if its weights would have to be this large, on rows of unit norm."""

VIOLATION_ALLOWED = 1e-9
"""Largest violation of a constraint by an optimal answer, relative to ‖row‖ ‖W‖."""

RIGID = VIOLATION_ALLOWED / 5
"""The same of equalities and rows with right side 0 or less in the methods, which scaling cannot repair."""

UNIT = float(np.finfo(float).epsneg)
"""Relative error of one rounded operation."""

CONTRADICTION = 1e-6
"""If the lower bound exceeds the upper one by this much, relative to it, value and dual are not those of one norm."""

SUPPORT_SLACK = 1e-6
"""Support tokens have at most this slack, relative to ‖row‖ ‖W‖."""

Values = Float[np.ndarray, "*batch"]


class Certificate(NamedTuple):
    """Farkas multipliers: λ ≥ 0 (free on equalities) with b'λ = 1 and A*(λ) nearly zero.

    Every feasible W has N(W) ≥ b'λ / N*(A*(λ)), so these multipliers prove that there is none of reasonable size.

    Attributes
    ----------
    dual : ndarray, shape (*batch, n[, Q], T)
        λ for the original rows; zeros for problems that are not infeasible.
    bound : float, or ndarray of shape (*batch,)
        This lower bound on N(W), for rows scaled to unit Frobenius norm with b = 1. If it is above 1e12, or the same
        bound on ‖W‖_F is, a problem is infeasible. 0 for problems that are not infeasible.

    See Also
    --------
    attsvm.Solution : Its ``certificate`` is one, if the selection is infeasible.
    attsvm.feasibility

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[0.0, 1.0], [0.0, 0.0], [0.0, -1.0]]])
    >>> solution = attsvm.solve_svm(problem, [1])
    >>> solution.status, solution.certificate.dual.round(3)
    (<Status.INFEASIBLE: 'infeasible'>, array([[0.5, 0. , 0.5]]))
    """

    dual: np.ndarray
    bound: "float | np.ndarray"


class Certified(NamedTuple):
    """A candidate that was made feasible on the primal and the dual side, with its bounds."""

    weights: Weights
    dual: TokenValues
    value: Values
    margin: Values
    gap: Values
    violation: Values
    raw_violation: Values
    support: TokenMask


def certify(
    constraints: Constraints, norm: Norm, weights: Weights, multipliers: TokenValues, tol: float | None = None
) -> Certified:
    """Make weights and multipliers feasible, and bound the optimum by them from both sides.

    The weights are projected on the equalities and divided by their smallest A(W)/b over the rows with b > 0; the
    multipliers are clipped at 0, except those of equalities, and divided by N*(A*(λ)). Then b'λ ≤ optimum ≤ N(W), up to
    violations of rows with b ≤ 0, which scaling cannot repair; the field ``violation`` reports them.

    With ``tol``, ``gap`` and ``violation`` contain bounds on the rounding errors of A(W) and A*(λ). Where these bounds
    are larger than what is allowed, the answer is not called optimal. Exact constraints have only the last rounding.

    ``tol``: the gap that is required. None leaves rounding errors out, which is enough for a solver that looks at
    itself.

    ``gap`` is ∞ where the weights have no positive margin, and 0 where they are 0. Bounds that contradict each other,
    as with a wrong dual norm, have their distance as gap.
    """
    asks_margin = constraints.asks_margin
    dual, size = _feasible_multipliers(constraints, norm, multipliers)
    divisor = size + (size == 0)
    dual, size = dual / divisor[..., None, None, None], size / divisor
    if constraints.is_exact:
        _, size = _feasible_multipliers(constraints, norm, dual)  # the division is rounded, too

    weights = constraints.project(weights)
    smallest = constraints.smallest_margin(weights)
    scale, usual = smallest, asks_margin & (smallest > 0)
    if np.count_nonzero(usual) < usual.size:
        scale = np.where(usual, smallest, np.where(asks_margin, 1.0, np.inf))  # 0 is the least norm without a margin
    if constraints.center_length is not None and tol is not None:
        scale = np.where(asks_margin, 1.0, np.inf)  # scaled and repaired already
    weights = weights / scale[..., None, None]
    if tol is None:
        return _bounded(constraints, norm, weights, dual, size, 0.0)
    size = size + _rounding_of_size(constraints, norm, dual)
    done = _bounded(constraints, norm, weights, dual, size, rounding_of_margins(constraints))
    optimal = is_optimal(done, tol)
    if np.count_nonzero(optimal) == optimal.size:
        return done
    known = np.isfinite(weights).all(axis=(-2, -1)) & np.isfinite(dual).all(axis=ALL_TOKENS)
    if not known.all():  # weights of 0 prove nothing either, and are numbers
        weights, dual = (
            np.where(known[..., None, None], weights, 0.0),
            np.where(known[..., None, None, None], dual, 0.0),
        )
        return certify(constraints, norm, weights, dual, tol)
    return done


def is_optimal(done: Certified, tol: float) -> Bool[np.ndarray, "*batch"]:
    """Where the bounds prove an answer that is optimal up to ``tol``."""
    result: Bool[np.ndarray, "*batch"] = (done.gap <= tol) & (done.violation <= VIOLATION_ALLOWED)
    return result


def _bounded(
    constraints: Constraints, norm: Norm, weights: Weights, dual: TokenValues, size: Values, rounding: float
) -> Certified:
    """What weights and multipliers of the right signs prove.

    ``size``: N*(A*(λ)), with its rounding error added. ``rounding``: the error of A(W), relative to ‖row‖ ‖W‖_F.
    """
    flat, asked = constraints.flat, constraints.flat(constraints.margin_mask)
    asks_margin = constraints.asks_margin
    slack, length = flat(constraints.slack(weights)), length_of(weights)
    room = flat(constraints.norms) * length[..., None]
    error = rounding * (room if constraints.sizes is constraints.norms else flat(constraints.sizes) * length[..., None])
    if constraints.is_exact:
        error = UNIT * abs(slack)
    value = length if is_frobenius(norm) else norm.values(weights)
    positive = value + (value == 0)
    # scaling by the smallest margin makes the weights feasible, and scaling by N*(A*(λ)) the multipliers
    lowest = short = slack - error
    total = np.vecdot(flat(dual), flat(constraints.right))
    if constraints.center_length is not None:
        # h = b − A(W_0) has rounding errors, b = 1 has none
        center = constraints.center_length[..., None]
        of_right = rounding * (flat(constraints.sizes) * center + flat(abs(constraints.right)))
        lowest = lowest - of_right
        short = lowest / np.where(asked, flat(constraints.right), 1.0)
        total = total - np.vecdot(flat(dual), of_right)
        room = np.where(room > 0, room, flat(constraints.norms) * center)  # W = 0 is compared with W_0
    smallest = 1.0 + np.minimum.reduce(short, axis=-1, where=asked, initial=0.0)
    bound = total / (size + (size == 0))
    apart, margin = 1.0 - bound * smallest / positive, smallest / positive
    gap = np.maximum(apart, 0.0)
    usual = asks_margin & (smallest > 0) & (apart >= -CONTRADICTION)
    if np.count_nonzero(usual) < usual.size:
        gap = np.where(apart < -CONTRADICTION, -apart, gap)
        gap = np.where(asks_margin, np.where(smallest > 0, gap, np.inf), 0.0)
        margin = np.where(asks_margin, margin, np.nan)
    if constraints.center_length is not None:
        margin = np.minimum.reduce(slack, axis=-1, where=flat(constraints.inequality), initial=np.inf)
        margin = np.where(np.isfinite(margin), margin, np.nan)

    lacking = np.maximum(-lowest, 0.0)
    if constraints.equality is not None:
        lacking = np.where(flat(constraints.equality), np.abs(slack) + error, lacking)
    support = flat(constraints.inequality) & (slack <= SUPPORT_SLACK * room)
    return Certified(
        weights=weights,
        dual=dual,
        value=value,
        margin=margin,
        gap=gap,
        violation=np.maximum.reduce(lacking / (room + (room == 0)), axis=-1),
        raw_violation=np.maximum.reduce(lacking, axis=-1),
        support=support.reshape(constraints.inequality.shape),
    )


def farkas(constraints: Constraints, norm: Norm, multipliers: TokenValues) -> tuple[TokenValues, Values]:
    """Multipliers normalised to b'λ = 1, and the bound on N(W) that they prove on unit rows with b = 1.

    Returns ``dual`` and ``bound``: Σ μ / N*(A*(λ)) with μ = λ‖row‖ over the rows with b = 1; ∞ for a multiplier on a
    row of zeros. For right sides of any sign, it is in units of their mean Σ λ|b| / Σ μ over the rows with b ≠ 0.
    """
    dual, size = _feasible_multipliers(constraints, norm, multipliers)
    size_error = _rounding_of_size(constraints, norm, dual)
    right, norms = constraints.flat(constraints.right), constraints.flat(constraints.norms)
    total = np.vecdot(constraints.flat(dual), right)
    proves = total > 0
    total = np.where(proves, total, 1.0)
    dual, size, size_error = dual / total[..., None, None, None], size / total, size_error / total
    if constraints.is_exact:
        _, size = _feasible_multipliers(constraints, norm, dual)
    # on unit rows the multipliers are λ‖row‖; a row of zeros keeps its own
    own = constraints.flat(dual)
    weight = np.vecdot(own * (norms + (norms == 0)), (right != 0).astype(np.float64))
    if constraints.center_length is not None:
        mean, of_center = np.vecdot(own, abs(right)), np.vecdot(own, constraints.flat(constraints.sizes))
        rounding = rounding_of_margins(constraints) * (mean + of_center * constraints.center_length)
        weight = weight * (1.0 - rounding) / (mean + (mean == 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(proves & (weight > 0) & (size >= 0), weight / (size + size_error), 0.0)
    return dual, bound


def is_frobenius(norm: Norm) -> bool:
    return norm is FROBENIUS or norm == FROBENIUS


def unattainable(constraints: Constraints) -> TokenMask:
    """Rows of zeros that require a positive margin, from duplicate tokens or a query that is zero."""
    return np.asarray(constraints.margin_mask & (constraints.norms == 0))


def _feasible_multipliers(constraints: Constraints, norm: Norm, multipliers: TokenValues) -> tuple[TokenValues, Values]:
    """Multipliers clipped at 0 on inequalities, and the dual norm of A*(λ)."""
    dual = np.where(constraints.inequality, np.maximum(multipliers, 0.0), 0.0)
    if constraints.equality is not None:
        dual = np.where(constraints.equality, multipliers, dual)
    pull, scale = constraints.adjoint(dual), 1.0
    if constraints.is_exact:  # squares of what is left of large terms may underflow
        scale = float(abs(pull).max()) or 1.0
        pull = pull / scale
    return dual, scale * (length_of(pull) if is_frobenius(norm) else norm.dual.values(pull))


def _rounding_of_size(constraints: Constraints, norm: Norm, dual: TokenValues) -> Values:
    """How far rounding may have moved the dual norm of A*(λ)."""
    if constraints.is_exact:  # by the rounding of each entry, like that of the norm itself
        return np.zeros(constraints.batch_shape)
    total = np.vecdot(
        constraints.flat(dual if constraints.equality is None else abs(dual)), constraints.flat(constraints.sizes)
    )
    factor = rounding_of_sums(constraints) * over_frobenius(norm, constraints.weights_shape)
    result: Values = total * factor
    return result


def rounding_of_margins(constraints: Constraints) -> float:
    """A bound on the rounding error of a margin, relative to ‖row‖ ‖W‖, if it is a product with keys and queries."""
    return UNIT * (sum(constraints.weights_shape) + 4)


def rounding_of_sums(constraints: Constraints) -> float:
    """Bound the rounding error of A*(λ), relative to Σ λ ‖row‖.

    Sums of many terms are made in blocks, and their errors are independent: they grow with the square root.

    References: Higham and Mary (2019), *A new approach to probabilistic rounding error analysis*.
    """
    *_, n, Q, T = constraints.inequality.shape
    return float(UNIT * (min(n * Q, 4 * math.sqrt(n * Q)) + min(T, 4 * math.sqrt(T)) + 6))


def over_frobenius(norm: Norm, shape: tuple[int, int]) -> float:
    """A number c with N*(X) ≤ c ‖X‖_F for the dual norm of matrices of this shape."""
    if norm is FROBENIUS:
        return 1.0
    dual = norm.dual
    try:
        return _frobenius_factor(dual, shape)
    except TypeError:  # a norm without a hash
        return dual.frobenius_factor(shape)


@cache
def _frobenius_factor(norm: Norm, shape: tuple[int, int]) -> float:
    return norm.frobenius_factor(shape)


def length_of(weights: Weights) -> Values:
    """Return the Frobenius norm of each matrix."""
    flat = weights.reshape(*weights.shape[:-2], -1)
    result: Values = np.sqrt(np.vecdot(flat, flat))
    return result
