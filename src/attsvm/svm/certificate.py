"""The certificate of a candidate of any solver: feasible pairs, their gap, and Farkas multipliers."""

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attsvm.norms import Lp, Norm
from attsvm.svm.constraints.constraints import ALL_TOKENS, Constraints, TokenMask, TokenValues, Weights
from attsvm.svm.constraints.exact import ExactConstraints

FROBENIUS = Lp(2.0)

FARKAS_BOUND = 1e12
"""A selection counts as infeasible if its weights would have to be this large, on rows of unit norm."""

VIOLATION_ALLOWED = 1e-9
"""Largest violation of a constraint by an optimal answer, relative to ‖row‖ ‖W‖."""

EPS = float(np.finfo(float).eps)
UNIT = EPS / 2
"""Relative error of one rounded operation."""

REPAIRABLE = 64
"""Margins that are short by this many rounding errors can be repaired."""

RESCALINGS = 2
"""How often the multipliers are divided by N*(A*(λ)) as it is in integers."""

PADDINGS = (0.0, 0.0, 1.0, 4.0)
"""The corrections of the weights: by how many of their rounding errors the margins then exceed 1."""

DEPENDENT = 1e-13
"""Singular values of unit rows below this, relative to the largest, count as rounding errors."""

MOST_REPAIRED = 4_000_000
"""Numbers in the rows that are stored to repair their margins."""

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


class Products(NamedTuple):
    """A(W) − b and N*(A*(λ)), and how far rounding may have moved them."""

    slack: Float[np.ndarray, "*batch R"]  # slack, slack_error: the error may be one number for all rows
    slack_error: Float[np.ndarray, "*batch R"] | float
    size: Values  # N*(A*(λ)) with its rounding error added
    length: Values  # ‖W‖_F
    room: Float[np.ndarray, "*batch R"]  # ‖row‖ ‖W‖_F


def certify(
    constraints: Constraints, norm: Norm, weights: Weights, multipliers: TokenValues, tol: float | None = None
) -> Certified:
    """Make weights and multipliers feasible, and bound the optimum by them from both sides.

    The weights are projected on the equalities and divided by their smallest margin over the rows with b = 1; the
    multipliers are clipped at 0, except those of equalities, and divided by N*(A*(λ)). Then b'λ ≤ optimum ≤ N(W), up to
    violations of rows with b = 0, which scaling cannot repair; the field ``violation`` reports them.

    With ``tol``, ``gap`` and ``violation`` contain bounds on the rounding errors of A(W) and A*(λ). If only rounding
    keeps them from ``tol`` and :data:`VIOLATION_ALLOWED`, :func:`certify_exactly` repeats the evaluation in integers.

    ``tol``: the gap that is required. None leaves rounding errors out, which is enough for a solver that looks at
    itself.

    ``gap`` is ∞ where the weights have no positive margin, and 0 where they are 0. Bounds that contradict each other,
    as with a wrong dual norm, have their distance as gap.
    """
    flat, asked = constraints.flat, constraints.flat(constraints.margin_mask)
    asks_margin = constraints.asks_margin
    dual, size = _feasible_multipliers(constraints, norm, multipliers)
    divisor = size + (size == 0)
    dual = dual / divisor[..., None, None, None]

    weights = constraints.project(weights)
    smallest = np.minimum.reduce(flat(constraints.apply(weights)), axis=-1, where=asked, initial=np.inf)
    scale, usual = smallest, asks_margin & (smallest > 0)
    if np.count_nonzero(usual) < usual.size:
        scale = np.where(usual, smallest, np.where(asks_margin, 1.0, np.inf))  # 0 is the least norm without a margin
    weights = weights / scale[..., None, None]
    slack = flat(constraints.apply(weights)) - flat(constraints.right)
    size, length = size / divisor, length_of(weights)
    room = flat(constraints.norms) * length[..., None]
    if tol is None:
        return certified(constraints, norm, weights, dual, Products(slack, 0.0, size, length, room))
    reach = room if constraints.sizes is constraints.norms else flat(constraints.sizes) * length[..., None]
    size = size + _rounding_of_size(constraints, norm, dual)
    products = Products(slack, rounding_of_margins(constraints) * reach, size, length, room)
    done = certified(constraints, norm, weights, dual, products)
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
    for index in _in_doubt(constraints, done, slack, tol):
        own = Certified(*(np.asarray(part)[index] for part in done))
        better = certify_exactly(constraints.one(index), norm, own.weights, own.dual, tol)
        if _short(better, tol) < _short(own, tol):
            done = Certified(*map(partial(_with, index), done, better))
    return done


def is_optimal(done: Certified, tol: float) -> Bool[np.ndarray, "*batch"]:
    """Where the bounds prove an answer that is optimal up to ``tol``."""
    result: Bool[np.ndarray, "*batch"] = (done.gap <= tol) & (done.violation <= VIOLATION_ALLOWED)
    return result


def _with(index: tuple[int, ...], array: np.ndarray, part: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array[index] = part
    return array


def _short(done: Certified, tol: float) -> float:
    """Return the factor by which gap or violation exceeds what is allowed."""
    return max(float(done.gap) / max(tol, EPS), float(done.violation) / VIOLATION_ALLOWED)


def _in_doubt(constraints: Constraints, done: Certified, slack: np.ndarray, tol: float) -> Iterator[tuple[int, ...]]:
    """The problems that only the rounding of their margins keeps from being optimal."""
    failed = ~is_optimal(done, tol)
    flat, asked = constraints.flat, constraints.flat(constraints.margin_mask)
    noise = (
        flat(constraints.sizes) * (REPAIRABLE * rounding_of_margins(constraints) * length_of(done.weights))[..., None]
    )
    hoped = np.minimum.reduce(1.0 + slack + noise, axis=-1, where=asked, initial=np.inf)
    bound = np.vecdot(flat(done.dual), flat(constraints.right))
    with np.errstate(invalid="ignore", over="ignore"):
        failed &= (bound * hoped >= (1 - tol) * done.value) & (done.value > 0) & np.isfinite(done.value)
    failed &= ~unattainable(constraints).any(axis=ALL_TOKENS)
    if failed.any() and ExactConstraints.affordable(constraints):
        yield from map(tuple, np.argwhere(failed).tolist())


def certify_exactly(constraints: Constraints, norm: Norm, weights: Weights, dual: TokenValues, tol: float) -> Certified:
    """The certificate of one problem by products in integers, after a correction of the margins that rounding moved.

    A row that is long compared with the others has a margin of 1 as a small difference of large terms. The rounding of
    W, which each product with W contains, can leave it far below 1. Dividing all weights by that margin would make
    them needlessly large. A change of W of the size of its last digits repairs it, and changes N(W) as little.

    ``constraints``: of one problem, with ``given``. ``weights``: with margins of about 1. ``dual``: with N*(A*(λ))
    about 1. ``tol``: of the answers with at most this gap, the one with the least violation is returned.
    """
    exact, flat = ExactConstraints(constraints), constraints.flat
    asked = flat(constraints.margin_mask)
    inequality = flat(constraints.inequality)
    sizes = flat(constraints.sizes)
    for _ in range(RESCALINGS):
        size = np.asarray(norm.dual.values(exact.adjoint(dual)))
        if not 0 < abs(size - 1) < np.inf:
            break
        dual = dual / (size + (size == 0))
    size = np.asarray(norm.dual.values(exact.adjoint(dual)))
    best: Certified | None = None
    noise = REPAIRABLE * rounding_of_margins(constraints) * sizes * length_of(weights)
    slack = flat(exact.slack(weights))
    hoped = float(np.min(1.0 + slack + noise, where=asked, initial=np.inf))
    if 0 < hoped < np.inf:
        weights = weights / hoped
        slack = flat(exact.slack(weights))
    for padding in PADDINGS:
        length = length_of(weights)
        room = flat(constraints.norms) * length
        products = Products(slack, EPS * np.abs(slack), (1 + EPS) * size, length, room)
        done = certified(constraints, norm, weights, dual, products)
        if best is None or (max(done.gap, tol), done.raw_violation) < (max(best.gap, tol), best.raw_violation):
            best = done
        if best.gap <= tol and best.violation <= EPS:
            break
        lacking = np.where(inequality, np.maximum(padding * UNIT * sizes * length - slack, 0.0), -slack)
        rows = constraints.rows((lacking != 0).reshape(constraints.right.shape))
        if not len(rows.matrix) or rows.matrix.size > MOST_REPAIRED:
            break
        wanted = lacking[rows.position] / flat(constraints.norms)[rows.position]
        change = np.linalg.lstsq(rows.matrix, wanted, rcond=DEPENDENT)[0]
        weights = weights + change.reshape(weights.shape)
        slack = flat(exact.slack(weights))
    assert best is not None
    return best


def certified(
    constraints: Constraints, norm: Norm, weights: Weights, dual: TokenValues, products: Products
) -> Certified:
    """What weights and multipliers of the right signs prove, given products with them."""
    flat, asked = constraints.flat, constraints.flat(constraints.margin_mask)
    asks_margin = constraints.asks_margin
    slack, error, size, length, room = products
    value = length if is_frobenius(norm) else norm.values(weights)
    positive = value + (value == 0)
    # scaling by the smallest margin makes the weights feasible, and scaling by N*(A*(λ)) the multipliers
    lowest = slack - error
    smallest = 1.0 + np.minimum.reduce(lowest, axis=-1, where=asked, initial=0.0)
    bound = np.vecdot(flat(dual), flat(constraints.right)) / (size + (size == 0))
    apart, margin = 1.0 - bound * smallest / positive, smallest / positive
    gap = np.maximum(apart, 0.0)
    usual = asks_margin & (smallest > 0) & (apart >= -CONTRADICTION)
    if np.count_nonzero(usual) < usual.size:
        gap = np.where(apart < -CONTRADICTION, -apart, gap)
        gap = np.where(asks_margin, np.where(smallest > 0, gap, np.inf), 0.0)
        margin = np.where(asks_margin, margin, np.nan)

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

    Returns ``dual`` and ``bound`` (Σ μ / N*(A*(λ)) with μ = λ‖row‖ over the rows with b = 1; ∞ for a multiplier on a
    row of zeros).
    """
    dual, size = _feasible_multipliers(constraints, norm, multipliers)
    size_error = _rounding_of_size(constraints, norm, dual)
    right, norms = constraints.flat(constraints.right), constraints.flat(constraints.norms)
    total = np.vecdot(constraints.flat(dual), right)
    total = total + (total == 0)
    dual, size, size_error = dual / total[..., None, None, None], size / total, size_error / total
    weight = np.vecdot(constraints.flat(dual) * (norms + (norms == 0)), right)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(weight > 0, weight / (size + size_error), 0.0)
        doubtful = (bound <= FARKAS_BOUND) & (weight > FARKAS_BOUND * (size - size_error))
    if doubtful.any() and ExactConstraints.affordable(constraints):
        for index in map(tuple, np.argwhere(doubtful).tolist()):
            pull = ExactConstraints(constraints.one(index)).adjoint(dual[index])
            bound[index] = weight[index] / ((1 + EPS) * norm.dual.values(pull))
    return dual, bound


def is_frobenius(norm: Norm) -> bool:
    return norm is FROBENIUS or norm == FROBENIUS


def unattainable(constraints: Constraints) -> TokenMask:
    """Rows of zeros that require a margin of 1, from duplicate tokens or a query that is zero."""
    return np.asarray(constraints.margin_mask & (constraints.norms == 0))


def _feasible_multipliers(constraints: Constraints, norm: Norm, multipliers: TokenValues) -> tuple[TokenValues, Values]:
    """Multipliers clipped at 0 on inequalities, and the dual norm of A*(λ)."""
    dual = np.where(constraints.inequality, np.maximum(multipliers, 0.0), 0.0)
    if constraints.equality is not None:
        dual = np.where(constraints.equality, multipliers, dual)
    pull = constraints.adjoint(dual)
    return dual, length_of(pull) if is_frobenius(norm) else norm.dual.values(pull)


def _rounding_of_size(constraints: Constraints, norm: Norm, dual: TokenValues) -> Values:
    """How far rounding may have moved the dual norm of A*(λ)."""
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
