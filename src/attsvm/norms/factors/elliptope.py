r"""The largest margin over the unit balls of γ2 and of fused norms, by an interior-point method, and their dual norms.

The unit balls consist of the corners C_h = X_h,₁₂ of positive semidefinite matrices X_h, h = 1, …, H, whose diagonal
blocks sum to the identity in some sense, 𝓑(Σ X_h) = 1: in γ2 the diagonals, in the fused norms the blocks themselves.
:class:`Balance` is this linear map. The programs

    max θ   over X_h ⪰ 0, 𝓑(Σ X_h) = 1, A(C) − s = θ b, s ≥ 0
    min 1'y over Z_h = 𝓑*(y) − lift(A*(λ)_h) ⪰ 0, b'λ = 1, λ ≥ 0 (free on equalities)

are each other's duals, and 1'y exceeds θ by Σ ⟨X_h, Z_h⟩ + λ's. The step is that of Helmberg, Rendl, Vanderbei and
Wolkowicz: XZ = μI is linearised as ΔX = μZ⁻¹ − X − sym(X ΔZ Z⁻¹), and everything except y, λ and θ is eliminated.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from attsvm._utils.linear_algebra import lift
from attsvm._utils.shapes import Bool, Float

Square = Float[np.ndarray, "K K"]
Squares = Float[np.ndarray, "H K K"]
Vector = Float[np.ndarray, " k"]

EPS = float(np.finfo(float).eps)

GOOD_GAP = 1e-13
"""The relative gap at which the iteration ends."""

NEARLY_OPTIMAL = 1e-7
"""Below this gap, the iteration ends when rounding stops its progress."""

NEAR = 1e-6
"""Factors of a matrix prove a bound for another one if this is a multiple of it, up to this part of its length."""

MAX_STEPS = 60
PATIENCE = 2
"""The iteration ends when this many steps below it have not made the gap smaller."""


class Balance(Protocol):
    """The map 𝓑 from a symmetric matrix to coordinates of what has to be the identity, and its adjoint."""

    one: Vector  # shape (k,), the coordinates of the identity

    def collect(self, matrix: Square) -> Vector:
        """Apply 𝓑 to X."""

    def spread(self, free: Vector) -> Square:
        """Apply the adjoint 𝓑* to y."""

    def of_products(self, left: Float[np.ndarray, "K m"], right: Float[np.ndarray, "K m"]) -> np.ndarray:
        """Return 𝓑(sym(l_a r_a')) for each column a, shape (k, m)."""

    def equations(self, matrices: Squares, inverses: Squares) -> Square:
        """Return the matrix of y → 𝓑(Σ sym(X_h 𝓑*(y) Z_h⁻¹))."""

    def above(self, sums: Vector) -> Vector:
        """Return coordinates y for which 𝓑*(y) is diagonal, with at least these numbers."""


class Diagonal:
    """𝓑 takes the diagonal of one matrix."""

    def __init__(self, size: int) -> None:
        self.one = np.ones(size)

    def collect(self, matrix: Square) -> Vector:
        return np.diagonal(matrix)

    def spread(self, free: Vector) -> Square:
        return np.diag(free)

    def of_products(self, left: Float[np.ndarray, "K m"], right: Float[np.ndarray, "K m"]) -> np.ndarray:
        return np.asarray(left * right)

    def equations(self, matrices: Squares, inverses: Squares) -> Square:
        return np.asarray((matrices * inverses).sum(axis=0))

    def above(self, sums: Vector) -> Vector:
        return sums


class MarginRows(Protocol):
    """The rows A: margins of corners, their adjoint, and what they add to the equations of a step."""

    right: Vector
    equality: Bool[np.ndarray, " m"]

    def apply(self, corners: Float[np.ndarray, "H d_k d_q"]) -> Vector:
        """Compute A(C), the margins of the corners."""

    def adjoint(self, multipliers: Vector) -> Float[np.ndarray, "H d_k d_q"]:
        """Compute the adjoint, A*(λ)."""

    def equations(self, matrices: Squares, inverses: Squares, balance: Balance) -> tuple[np.ndarray, np.ndarray]:
        """Return, with L_a = lift(row a), the 𝓑(sym(X L_a Z⁻¹)), shape (k, m), and ⟨L_a, X L_b Z⁻¹⟩."""


class OneRow:
    """Σ ⟨G_h, C_h⟩ = θ: the largest θ over the unit ball is the dual norm of G."""

    right, equality = np.ones(1), np.zeros(1, bool)

    def __init__(self, matrices: Float[np.ndarray, "H d_k d_q"]) -> None:
        self.matrices = matrices

    def apply(self, corners: np.ndarray) -> Vector:
        return np.array([np.vdot(self.matrices, corners)])

    def adjoint(self, multipliers: Vector) -> np.ndarray:
        return np.asarray(multipliers[0] * self.matrices)

    def equations(self, matrices: Squares, inverses: Squares, balance: Balance) -> tuple[np.ndarray, np.ndarray]:
        lifted = lift(self.matrices)
        product = matrices @ lifted @ inverses
        whole = product.sum(axis=0)
        return balance.collect(0.5 * (whole + whole.T))[:, None], np.array([[np.vdot(lifted, product)]])


class MarginPair(NamedTuple):
    """Both sides of the program at the end."""

    matrices: Squares  # shape (H, K, K), X
    multipliers: Vector  # shape (m,), λ
    free: Vector  # shape (k,), y. Z is positive definite for it.
    steps: int
    limited: bool  # whether the limit of steps ended the iteration


def largest_margin(
    rows: MarginRows,
    balance: Balance,
    multipliers: Vector,
    split: int,
    good_gap: float = GOOD_GAP,
    max_steps: int | None = None,
    report: Callable[[int, float], bool] | None = None,
) -> MarginPair:
    """Find the largest θ with A(C) ≥ θ b over the unit ball.

    ``multipliers``: shape (m,), initial λ at any scale: positive, except on equalities. ``split``: number of rows of a
    corner. ``good_gap``: the relative gap at which the iteration ends, if it is above ``GOOD_GAP``. ``max_steps``: by
    default 60. ``report``: called as ``report(step, relative gap)`` for each point; a true return value ends the
    iteration.

    Returns the best point, if rounding stops the iteration. At step 0 the corners are 0.

    References: Helmberg, Rendl, Vanderbei and Wolkowicz (1996), *An interior-point method for semidefinite
    programming*.
    """
    # b'λ = 1, for which the multipliers of negative right sides must not be too large
    gain = rows.right * multipliers
    above, below = gain[gain > 0].sum(), -gain[gain < 0].sum()
    multipliers = np.where(gain < 0, multipliers * min(1.0, 0.5 * above / (below or 1.0)), multipliers)
    multipliers = multipliers / (rows.right @ multipliers)
    lifted = lift(rows.adjoint(multipliers))
    # above the sums of the rows, the diagonal makes Z positive definite
    sums = np.abs(lifted).sum(axis=-1).max(axis=0)
    free = balance.above(1.1 * np.maximum(sums, 0.01 * sums.max()))
    identity = np.eye(len(sums))
    share = float(balance.collect(identity)[0]) * len(lifted)
    matrices = np.broadcast_to(identity / share, lifted.shape)
    mu = float(np.trace(balance.spread(free))) / len(sums) / share
    slack = np.where(rows.equality, 0.0, mu / np.where(rows.equality, 1.0, multipliers))
    point = _ElliptopePoint(matrices, free, multipliers, slack)
    best, least, waited = point, np.inf, 0
    good_gap, limit = max(good_gap, GOOD_GAP), max_steps or MAX_STEPS
    for steps in range(limit + 1):
        try:
            step = _NewtonStep(rows, balance, point, split)
        except np.linalg.LinAlgError:
            break
        gap = step.mu * step.count / float(balance.one @ point.free)
        waited = waited + 1 if gap > 0.9 * least and least < NEARLY_OPTIMAL else 0
        if gap < least:
            best, least = point, gap
        stopped = report is not None and report(steps, step.margin_gap())
        if stopped or gap < good_gap or waited == PATIENCE or steps == limit:
            break
        point = step.next()
    return MarginPair(best.matrices, best.multipliers, best.free, steps, steps == limit)


class _ElliptopePoint(NamedTuple):
    matrices: Squares
    free: Vector
    multipliers: Vector
    slack: Vector

    def moved(self, change: "_ElliptopePoint", primal: float, dual: float) -> "_ElliptopePoint":
        return _ElliptopePoint(
            self.matrices + primal * change.matrices,
            self.free + dual * change.free,
            self.multipliers + dual * change.multipliers,
            self.slack + primal * change.slack,
        )


class _NewtonStep:
    """The equations of a predictor-corrector step from a point."""

    def __init__(self, rows: MarginRows, balance: Balance, point: _ElliptopePoint, split: int) -> None:
        self.rows, self.balance, self.point, self.split = rows, balance, point, split
        self.unsigned = rows.equality
        self.positive = np.where(self.unsigned, 1.0, point.multipliers)
        self.count = point.matrices.shape[0] * point.matrices.shape[1] + int((~self.unsigned).sum())
        dual = self._dual_change(point)
        self.dual_factors = np.linalg.cholesky(dual)
        self.factors = np.linalg.cholesky(point.matrices)
        inverses = np.linalg.inv(dual)
        self.inverses = 0.5 * (inverses + inverses.mT)
        self.mu = (float(np.vdot(point.matrices, dual)) + float(point.multipliers @ point.slack)) / self.count
        crossed, products = rows.equations(point.matrices, self.inverses, balance)
        products[np.diag_indices(len(products))] += point.slack / self.positive
        # b'λ = 1 excludes the direction (y, λ), in which the equations are singular in the limit
        self.weight = float(np.trace(products)) / float(rows.right @ rows.right)
        products += self.weight * np.outer(rows.right, rows.right)
        size = len(balance.one)
        whole = np.zeros((size + len(products), size + len(products)))
        whole[:size, :size] = balance.equations(point.matrices, self.inverses)
        whole[:size, size:] = -crossed  # the lower triangle is not read
        whole[size:, size:] = products
        self.equations = _factored(whole)
        self.border = np.concatenate([np.zeros(size), rows.right])
        self.answer = scipy.linalg.cho_solve(self.equations, self.border, check_finite=False)

    def margin_gap(self) -> float:
        """Return the relative difference between 1'y and the smallest margin of the corners."""
        asked = self.rows.right > 0
        margin = float((self._margins(self.point.matrices)[asked] / self.rows.right[asked]).min())
        return max(1 - max(margin, 0.0) / float(self.balance.one @ self.point.free), 0.0)

    def next(self) -> _ElliptopePoint:
        point = self.point
        nothing = np.zeros_like(point.matrices), np.zeros_like(point.slack)
        guess = self._solved(0.0, *nothing)
        reached = [min(1.0, length) for length in self._lengths(guess)]
        ahead = point.moved(guess, *reached)
        left = float(np.vdot(ahead.matrices, self._dual_change(ahead))) + float(ahead.multipliers @ ahead.slack)
        aim = min(1.0, (left / (self.mu * self.count)) ** 2) * self.mu
        crossed = guess.matrices @ self._dual_change(guess) @ self.inverses
        change = self._solved(aim, 0.5 * (crossed + crossed.mT), guess.multipliers * guess.slack)
        near = 0.9 + 0.09 * min(reached)
        return point.moved(change, *(min(1.0, near * length) for length in self._lengths(change)))

    def _dual_change(self, change: _ElliptopePoint) -> Squares:
        """Return 𝓑*(y) − lift(A*(λ)), which is linear."""
        return np.asarray(self.balance.spread(change.free) - lift(self.rows.adjoint(change.multipliers)))

    def _solved(self, mu: float, crossed: Squares, row_crossed: Vector) -> _ElliptopePoint:
        """Return the change that aims at XZ = μI, with the terms of second order."""
        point, rows, balance = self.point, self.rows, self.balance
        target = mu * self.inverses - crossed
        row_target = np.where(self.unsigned, 0.0, (mu - row_crossed) / self.positive)
        rest = 1 - float(rows.right @ point.multipliers)
        margins = row_target - self._margins(target) + self.weight * rest * rows.right
        lacking = balance.collect(target.sum(axis=0)) - balance.one
        found = scipy.linalg.cho_solve(self.equations, np.concatenate([lacking, margins]), check_finite=False)
        # b'(λ + Δλ) = 1 determines θ
        found += self.answer * ((rest - float(self.border @ found)) / float(self.border @ self.answer))
        change = point._replace(free=found[: len(lacking)], multipliers=found[len(lacking) :])
        pushed = point.matrices @ self._dual_change(change) @ self.inverses
        factor = np.where(self.unsigned, 0.0, point.slack / self.positive)
        slack = row_target - point.slack - factor * change.multipliers
        return change._replace(matrices=target - point.matrices - 0.5 * (pushed + pushed.mT), slack=slack)

    def _margins(self, matrices: Squares) -> Vector:
        return self.rows.apply(matrices[:, : self.split, self.split :])

    def _lengths(self, change: _ElliptopePoint) -> tuple[float, float]:
        """Return the steps to the boundary of X and s, and of Z and λ."""
        point, bounded = self.point, ~self.unsigned
        falls = [_fall(self.factors, change.matrices), _fall(self.dual_factors, self._dual_change(change))]
        for k, (now, then) in enumerate(((point.slack, change.slack), (point.multipliers, change.multipliers))):
            falls[k] = max(falls[k], float((-then[bounded] / now[bounded]).max(initial=0.0)))
        return 1 / max(falls[0], 1e-3), 1 / max(falls[1], 1e-3)


def at_unit_scale(x: np.ndarray, bound: Callable[[np.ndarray], float]) -> float:
    """Return a bound on a norm of x from that of x over its largest entry; that entry if it is 0 or not finite."""
    scale = float(np.abs(x).max(initial=0.0))
    return scale * bound(x / scale) if 0 < scale < np.inf else scale


def nearest_multiple(whole: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray] | None:
    """Return the factor of the multiple of an array nearest to x, and the rest of x; None if the rest is not small."""
    factor = float(np.vdot(whole, x)) / (float(np.vdot(whole, whole)) or 1.0)
    rest = x - factor * whole
    return (factor, rest) if float(np.linalg.norm(rest)) <= NEAR * float(np.linalg.norm(x)) else None


def _factored(equations: Square) -> tuple[Square, bool]:
    """Return the Cholesky factor of positive semidefinite equations.

    If more rows are active than the corners have dimensions, many multipliers are optimal, and the equations are
    singular in the limit. Cholesky's method then fails from rounding. It succeeds after the diagonal has grown by the
    part Nε that rounding can take away, and later steps correct the error of this.

    References: Higham (2002), *Accuracy and Stability of Numerical Algorithms*, Theorem 10.7.
    """
    factored: tuple[Square, bool]
    try:
        factored = scipy.linalg.cho_factor(equations, check_finite=False)
    except np.linalg.LinAlgError:
        equations[np.diag_indices_from(equations)] *= 1 + len(equations) * EPS
        factored = scipy.linalg.cho_factor(equations, overwrite_a=True, check_finite=False)
    return factored


def _fall(factors: Squares, changes: Squares) -> float:
    """Return the largest eigenvalue of −F⁻¹ ΔM F⁻', for M = FF'."""
    most = -np.inf
    for factor, change in zip(factors, changes, strict=True):
        half = scipy.linalg.solve_triangular(factor, change, lower=True, check_finite=False)
        scaled = scipy.linalg.solve_triangular(factor, half.T, lower=True, check_finite=False)
        most = max(most, -float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0]))
    return most
