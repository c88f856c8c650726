r"""The largest margin over the elliptope, by an interior-point method: the dual of γ2, and its Att-SVM.

The corners X₁₂ of positive semidefinite matrices X with ones on the diagonal are the unit ball of γ2. The programs

    max θ   over X ⪰ 0, X_ii = 1, A(X₁₂) − s = θ b, s ≥ 0
    min Σ w over Z = D(w) − ½ lift(A*(λ)) ⪰ 0, b'λ = 1, λ ≥ 0 (free on equalities)

are each other's duals, and Σ w exceeds θ by ⟨X, Z⟩ + λ's. The step is that of Helmberg, Rendl, Vanderbei and
Wolkowicz: XZ = μI is linearised as ΔX = μZ⁻¹ − X − sym(X ΔZ Z⁻¹), and everything except w, λ and θ is eliminated.
"""

from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve, solve_triangular

Square = Float[np.ndarray, "K K"]
Vector = Float[np.ndarray, " k"]

GOOD_GAP = 1e-13
"""The relative gap at which the iteration ends."""

NEARLY_OPTIMAL = 1e-7
"""Below this gap, the iteration ends when rounding stops its progress."""

MAX_STEPS = 60
PATIENCE = 2
"""The iteration ends when this many steps below it have not made the gap smaller."""


class MarginRows(Protocol):
    """The rows A: margins of corners, their adjoint, and what they add to the equations of a step."""

    right: Vector
    equality: Bool[np.ndarray, " m"]

    def apply(self, corner: np.ndarray) -> Vector:
        """A(X₁₂)."""

    def adjoint(self, multipliers: Vector) -> np.ndarray:
        """A*(λ)."""

    def equations(self, matrix: Square, inverse: Square) -> tuple[np.ndarray, np.ndarray]:
        """With L_a = ½ lift(row a): the diagonals of sym(X L_a Z⁻¹), shape (K, m), and ⟨L_a, X L_b Z⁻¹⟩."""


class MarginPair(NamedTuple):
    """Both sides of the program at the end.

    Attributes
    ----------
    matrix : ndarray, shape (K, K)
        X.
    multipliers : ndarray, shape (m,)
        λ.
    diagonal : ndarray, shape (K,)
        w. Z is positive definite for it.
    steps : int
    """

    matrix: Square
    multipliers: Vector
    diagonal: Vector
    steps: int


def largest_margin(rows: MarginRows, multipliers: Vector, split: int) -> MarginPair:
    """The largest θ with A(X₁₂) ≥ θ b over the elliptope.

    Parameters
    ----------
    rows : MarginRows
    multipliers : ndarray, shape (m,)
        Initial λ at any scale: positive, except on equalities.
    split : int
        Number of rows of X₁₂.

    Returns
    -------
    MarginPair
        The best one, if rounding stops the iteration.

    References
    ----------
    Helmberg, Rendl, Vanderbei and Wolkowicz (1996), *An interior-point method for semidefinite programming*.
    """
    multipliers = multipliers / (rows.right @ multipliers)
    lifted = lift(rows.adjoint(multipliers))
    # above the sums of the rows, the diagonal makes Z positive definite
    diagonal = np.abs(lifted).sum(axis=1)
    diagonal = 1.1 * np.maximum(diagonal, 0.01 * diagonal.max())
    matrix = np.eye(len(diagonal))
    mu = float(diagonal.mean())
    slack = np.where(rows.equality, 0.0, mu / np.where(rows.equality, 1.0, multipliers))
    point = _Point(matrix, diagonal, multipliers, slack)
    best, least, steps, waited = point, np.inf, 0, 0
    while steps < MAX_STEPS:
        try:
            step = _Step(rows, point, split)
        except np.linalg.LinAlgError:
            break
        gap = step.mu * step.count / float(point.diagonal.sum())
        waited = waited + 1 if gap > 0.9 * least and least < NEARLY_OPTIMAL else 0
        if gap < least:
            best, least = point, gap
        if gap < GOOD_GAP or waited == PATIENCE:
            break
        point, steps = step.next(), steps + 1
    return MarginPair(best.matrix, best.multipliers, best.diagonal, steps)


class _Point(NamedTuple):
    matrix: Square
    diagonal: Vector
    multipliers: Vector
    slack: Vector

    def moved(self, change: "_Point", primal: float, dual: float) -> "_Point":
        return _Point(
            self.matrix + primal * change.matrix,
            self.diagonal + dual * change.diagonal,
            self.multipliers + dual * change.multipliers,
            self.slack + primal * change.slack,
        )


class _Step:
    """The equations of a predictor-corrector step from a point."""

    def __init__(self, rows: MarginRows, point: _Point, split: int) -> None:
        self.rows, self.point, self.split = rows, point, split
        self.free = rows.equality
        self.positive = np.where(self.free, 1.0, point.multipliers)
        size = len(point.diagonal)
        self.count = size + int((~self.free).sum())
        dual = np.diag(point.diagonal) - lift(rows.adjoint(point.multipliers))
        self.dual_factor = np.linalg.cholesky(dual)
        self.factor = np.linalg.cholesky(point.matrix)
        inverse = np.linalg.inv(dual)
        self.inverse = 0.5 * (inverse + inverse.T)
        self.mu = (float(np.vdot(point.matrix, dual)) + float(point.multipliers @ point.slack)) / self.count
        crossed, products = rows.equations(point.matrix, self.inverse)
        products[np.diag_indices(len(products))] += point.slack / self.positive
        # b'λ = 1 excludes the direction (w, λ), in which the equations are singular in the limit
        self.weight = float(np.trace(products)) / float(rows.right @ rows.right)
        products += self.weight * np.outer(rows.right, rows.right)
        whole = np.block([[point.matrix * self.inverse, -crossed], [-crossed.T, products]])
        self.equations = cho_factor(whole)
        self.border = np.concatenate([np.zeros(size), rows.right])
        self.answer = cho_solve(self.equations, self.border)

    def next(self) -> _Point:
        """The next point."""
        point = self.point
        nothing = np.zeros_like(point.matrix), np.zeros_like(point.slack)
        guess = self._solved(0.0, *nothing)
        reached = [min(1.0, length) for length in self._lengths(guess)]
        ahead = point.moved(guess, *reached)
        left = float(np.vdot(ahead.matrix, self._dual_change(ahead))) + float(ahead.multipliers @ ahead.slack)
        aim = min(1.0, (left / (self.mu * self.count)) ** 2) * self.mu
        crossed = guess.matrix @ self._dual_change(guess) @ self.inverse
        change = self._solved(aim, 0.5 * (crossed + crossed.T), guess.multipliers * guess.slack)
        near = 0.9 + 0.09 * min(reached)
        return point.moved(change, *(min(1.0, near * length) for length in self._lengths(change)))

    def _dual_change(self, change: _Point) -> Square:
        """D(w) − ½ lift(A*(λ)), which is linear."""
        return np.asarray(np.diag(change.diagonal) - lift(self.rows.adjoint(change.multipliers)))

    def _solved(self, mu: float, crossed: Square, row_crossed: Vector) -> _Point:
        """The change that aims at XZ = μI, with the terms of second order."""
        point, rows, size = self.point, self.rows, len(self.point.diagonal)
        target = mu * self.inverse - crossed
        row_target = np.where(self.free, 0.0, (mu - row_crossed) / self.positive)
        rest = 1 - float(rows.right @ point.multipliers)
        margins = row_target - self._margins(target) + self.weight * rest * rows.right
        free = cho_solve(self.equations, np.concatenate([np.diagonal(target) - 1, margins]))
        # b'(λ + Δλ) = 1 determines θ
        free += self.answer * ((rest - float(self.border @ free)) / float(self.border @ self.answer))
        change = point._replace(diagonal=free[:size], multipliers=free[size:])
        pushed = point.matrix @ self._dual_change(change) @ self.inverse
        slack = row_target - point.slack - np.where(self.free, 0.0, point.slack / self.positive) * free[size:]
        return change._replace(matrix=target - point.matrix - 0.5 * (pushed + pushed.T), slack=slack)

    def _margins(self, matrix: Square) -> Vector:
        return self.rows.apply(matrix[: self.split, self.split :])

    def _lengths(self, change: _Point) -> tuple[float, float]:
        """The steps to the boundary of X and s, and of Z and λ."""
        point, bounded = self.point, ~self.free
        falls = [_fall(self.factor, change.matrix), _fall(self.dual_factor, self._dual_change(change))]
        for k, (now, then) in enumerate(((point.slack, change.slack), (point.multipliers, change.multipliers))):
            falls[k] = max(falls[k], float((-then[bounded] / now[bounded]).max(initial=0.0)))
        return 1 / max(falls[0], 1e-3), 1 / max(falls[1], 1e-3)


def lift(corner: np.ndarray) -> Square:
    """½ [[0, C], [C', 0]]."""
    rows, columns = corner.shape
    lifted = np.zeros((rows + columns, rows + columns))
    lifted[:rows, rows:], lifted[rows:, :rows] = 0.5 * corner, 0.5 * corner.T
    return lifted


def _fall(factor: Square, change: Square) -> float:
    """The largest eigenvalue of −F⁻¹ ΔM F⁻', for M = FF'."""
    half = solve_triangular(factor, change, lower=True)
    scaled = solve_triangular(factor, half.T, lower=True)
    return -float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0])
