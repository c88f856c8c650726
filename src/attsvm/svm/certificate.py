"""The certificate of a candidate of any solver: feasible pairs, their gap, and Farkas multipliers."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attsvm.norms import Lp, Norm
from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights

FROBENIUS = Lp(2.0)

FARKAS_BOUND = 1e12
"""A selection counts as infeasible if its weights would have to be this large, on rows of unit norm."""

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
        This lower bound on N(W), for rows scaled to unit Frobenius norm with b = 1. Above 1e12 a problem is infeasible.
        0 for problems that are not infeasible.
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


def certify(constraints: Constraints, norm: Norm, weights: Weights, multipliers: TokenValues) -> Certified:
    """Make weights and multipliers feasible, and bound the optimum by them from both sides.

    The weights are projected on the equalities and divided by their smallest margin over the rows with b = 1; the
    multipliers are clipped at 0, except those of equalities, and divided by N*(A*(λ)). Then b'λ ≤ optimum ≤ N(W), up to
    violations of rows with b = 0, which scaling cannot repair; the field ``violation`` reports them.

    Parameters
    ----------
    constraints : Constraints
    norm : Norm
    weights : ndarray, shape (*batch, d_k, d_q)
    multipliers : ndarray, shape (*batch, n, Q, T)

    Returns
    -------
    Certified
        ``gap`` is ∞ where the weights have no positive margin, and 0 where they are 0.
    """
    flat, right, asked = (
        constraints.flat,
        constraints.flat(constraints.right),
        constraints.flat(constraints.margin_mask),
    )
    asks_margin = asked.any(axis=-1)
    dual, size = _feasible_multipliers(constraints, norm, multipliers)
    dual = dual / (size + (size == 0))[..., None, None, None]
    bound = np.vecdot(flat(dual), right)

    weights = constraints.project(weights)
    smallest = np.minimum.reduce(flat(constraints.apply(weights)), axis=-1, where=asked, initial=np.inf)
    repairable = asks_margin & (smallest > 0)
    scale = np.where(repairable, smallest, 1.0)
    if not asks_margin.all():
        scale = np.where(asks_margin, scale, np.inf)  # 0 is the least norm if no margin is required
    weights = weights / scale[..., None, None]

    slack = flat(constraints.apply(weights)) - right
    # rounding may leave the smallest margin a few units below 1: the upper bound allows for it
    smallest = 1.0 + np.minimum.reduce(slack, axis=-1, where=asked, initial=0.0)
    length = _length(weights)
    value = length if is_frobenius(norm) else norm.values(weights)
    positive = value + (value == 0)
    gap = np.where(repairable, np.maximum(1.0 - bound * smallest / positive, 0.0), np.where(asks_margin, np.inf, 0.0))

    room = flat(constraints.norms) * length[..., None]
    lacking = np.maximum(-slack, 0.0)
    if constraints.equality is not None:
        lacking = np.where(flat(constraints.equality), np.abs(slack), lacking)
    support = flat(constraints.inequality) & (slack <= SUPPORT_SLACK * room)
    return Certified(
        weights=weights,
        dual=dual,
        value=value,
        margin=np.where(asks_margin, smallest / positive, np.nan),
        gap=gap,
        violation=(lacking / (room + (room == 0))).max(axis=-1),
        raw_violation=lacking.max(axis=-1),
        support=support.reshape(constraints.inequality.shape),
    )


def farkas(constraints: Constraints, norm: Norm, multipliers: TokenValues) -> tuple[TokenValues, Values]:
    """Multipliers normalised to b'λ = 1, and the bound on N(W) that they prove on unit rows with b = 1.

    Parameters
    ----------
    constraints : Constraints
    norm : Norm
    multipliers : ndarray, shape (*batch, n, Q, T)

    Returns
    -------
    dual : ndarray, shape (*batch, n, Q, T)
    bound : ndarray, shape (*batch,)
        Σ μ / N*(A*(λ)) with μ = λ‖row‖ over the rows with b = 1; ∞ for a multiplier on a row of zeros.
    """
    dual, size = _feasible_multipliers(constraints, norm, multipliers)
    flat = constraints.flat(dual)
    norms = constraints.flat(constraints.norms)
    weight = np.vecdot(flat * (norms + (norms == 0)), constraints.flat(constraints.right))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(weight > 0, weight / size, 0.0)
    total = np.vecdot(flat, constraints.flat(constraints.right))
    return dual / (total + (total == 0))[..., None, None, None], bound


def is_frobenius(norm: Norm) -> bool:
    """Whether the norm is the Frobenius norm, for which faster formulas exist."""
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
    return dual, _length(pull) if is_frobenius(norm) else norm.dual.values(pull)


def _length(weights: Weights) -> Values:
    flat = weights.reshape(*weights.shape[:-2], -1)
    return np.asarray(np.sqrt(np.vecdot(flat, flat)))
