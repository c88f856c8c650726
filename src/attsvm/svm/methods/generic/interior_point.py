r"""Interior point for norms that are linear in the sum and the largest of the absolute entries.

With bounds u ≥ \|w\| on the entries, m on the largest one and τ on the norm, such a norm is a linear program:

    minimise τ  subject to  −u ≤ w ≤ u,  u ≤ m,  α_k Σu + β_k m ≤ τ for each pair,  Aw − s = b,  s ≥ 0.

With multipliers y, z of the bounds on w, v of u ≤ m, θ of the pairs and λ of the rows, the optimum satisfies

    A'λ = y − z,    y + z = v + Σ θ_k α_k,    Σv = Σ θ_k β_k,    Σθ = 1.

A step eliminates u and w entry by entry. What remains is the matrix A Θ⁻¹ A' + diag(s/λ) with a diagonal Θ, bordered by
m, θ and τ. It is factored once for Mehrotra's predictor and corrector.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from attsvm.norms.forms import linear_form
from attsvm.svm.constraints.row_products import FactoredRows
from attsvm.svm.loop import Report
from attsvm.svm.methods.generic.program import Bounds, Program, Vector

MAX_STEPS = 100

PATIENCE = 5
"""The iteration ends if the gap has not been halved in this many steps, once it is below :data:`SMALL`."""

SMALL = 1e-5

SOLVES = 3
"""Of each system of equations: the others reduce the rounding errors of the first."""

FEW_NUMBERS = 30_000
"""With at most this many numbers in the rows, orthogonal factors follow where the Cholesky factor leaves too few
digits, as near infeasibility."""

NEAR = 0.995
"""Share of the way to the boundary that a step goes."""


def interior_point(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``; the number of steps.

    ``program``: with a value of about 1, in a norm that has a :func:`attsvm.norms.forms.linear_form`. ``bounds``: their
    weights and multipliers are the initial point. ``report``: called as ``report(step, gap)``; a true return value ends
    the iteration.

    References: Mehrotra (1992), *On the implementation of a primal-dual interior point method*.
    """
    linear = _LinearProgram(program)
    point, careful = linear.start(bounds), False
    few = len(program.right) * math.prod(program.shape) <= FEW_NUMBERS
    step, limit, halved_at, halved = 0, min(max_steps, MAX_STEPS), 0, bounds.gap
    while True:
        gap = bounds.see(point.w.reshape(program.shape), point.rows)
        if gap <= 0.5 * halved or gap > SMALL:
            halved_at, halved = step, gap
        if report(step, gap) or gap <= target or step == limit:
            return step
        following = None if step - halved_at >= PATIENCE else _after(linear, point, careful)
        if following is not None:
            point, step = following, step + 1
        elif few and not careful:
            careful, halved_at = True, step
        else:
            return step


def _after(linear: "_LinearProgram", point: "_Point", careful: bool) -> "_Point | None":
    """The next point; None where rounding errors make the equations singular."""
    try:
        with np.errstate(all="ignore"):  # a breakdown gives NaN, which cannot be factored
            return _Step(linear, point, careful).next()
    except (np.linalg.LinAlgError, ValueError):
        return None


class _Point(NamedTuple):
    """Weights, their bounds and slacks, and the multipliers y, z, v, θ and λ."""

    w: Vector
    u: Vector
    m: float
    tau: float
    slack: Vector
    above: Vector
    below: Vector
    largest: Vector
    pairs: Vector
    rows: Vector


class _LinearProgram:
    """The data, and what each bound leaves at a point."""

    def __init__(self, program: Program) -> None:
        self.alpha, self.beta = np.array(linear_form(program.norm)).T
        self.rows, self.right, self.unequal = FactoredRows(program.rows), program.right, ~program.equality

    def apply(self, w: Vector) -> Vector:
        return np.asarray(self.rows.apply(w[None])[0])

    def adjoint(self, multipliers: Vector) -> Vector:
        return np.asarray(self.rows.adjoint(multipliers[None])[0])

    def start(self, bounds: Bounds) -> _Point:
        """A point well inside all bounds."""
        w = bounds.weights.ravel()
        u = np.maximum(1.1 * np.abs(w), 0.1 * np.abs(w).max())
        m = 1.2 * float(u.max())
        tau = 1.1 * float((self.alpha * u.sum() + self.beta * m).max())
        pairs = np.full(len(self.alpha), 1 / len(self.alpha))
        largest = np.full(len(w), float(pairs @ self.beta) / len(w))
        total, top = largest + pairs @ self.alpha, float(self.right.max())
        floor = 0.05 * float(total @ u) / (len(self.right) * top)
        rows = np.where(self.unequal, np.maximum(bounds.multipliers, floor), bounds.multipliers)
        slack = np.maximum(self.apply(w) - self.right, 0.1 * top)[self.unequal]
        return _Point(w, u, m, tau, slack, total * (u + w) / (2 * u), total * (u - w) / (2 * u), largest, pairs, rows)

    def gaps(self, point: _Point) -> list[Vector]:
        """What each bound leaves; linear in the point."""
        w, u, m, tau, slack = point[:5]
        return [u - w, u + w, m - u, tau - self.alpha * u.sum() - self.beta * m, slack]

    def prices(self, point: _Point) -> list[Vector]:
        """The multiplier of each bound."""
        return [*point[5:9], point.rows[self.unequal]]


class _Step:
    """The equations of a step from a point, with everything eliminated but λ, m, θ and τ."""

    def __init__(self, linear: _LinearProgram, point: _Point, careful: bool) -> None:
        self.linear, self.point = linear, point
        self.gaps, self.prices = linear.gaps(point), linear.prices(point)
        self.count = sum(map(len, self.gaps))
        self.mu = _total(self.gaps, self.prices) / self.count
        above, below, largest, pairs, rows = (price / gap for price, gap in zip(self.prices, self.gaps, strict=True))
        self.skew, self.largest = above - below, largest
        self.bound = 1 / (above + below + largest)
        self.resist = 1 / ((4 * above * below + (above + below) * largest) * self.bound)  # Θ⁻¹
        self.tilt = self.skew * self.bound
        # residuals of the conditions of w and u, of m and τ, and of the rows
        self.pulled = linear.adjoint(point.rows) - (point.above - point.below)
        self.bent = point.above + point.below - point.largest - linear.alpha @ point.pairs
        self.short = np.array([point.largest.sum() - linear.beta @ point.pairs, point.pairs.sum() - 1])
        self.missed = linear.apply(point.w) - linear.right
        self.missed[linear.unequal] -= point.slack
        self.loose = np.zeros(len(self.missed))
        self.loose[linear.unequal] = 1 / rows
        self.factor = self._orthogonal() if careful else self._cholesky()
        # how w, u and λ follow Δm and Σ α_k Δθ_k
        nothing = np.zeros(len(self.missed))
        self.by_m = self._free(self.resist * self.tilt * largest, largest, nothing)
        self.by_pairs = self._free(-self.resist * self.tilt, np.full(len(largest), -1.0), nothing)
        self.border = self._border(1 / pairs)

    def _cholesky(self) -> np.ndarray:
        """The upper factor of A Θ⁻¹ A' + diag(s/λ), from the matrix."""
        matrix = self.linear.rows.gram(self.resist[None])[0]
        matrix[np.diag_indices(len(matrix))] += self.loose
        return np.asarray(cho_factor(matrix, overwrite_a=True)[0])

    def _orthogonal(self) -> np.ndarray:
        """The same, with half the digits lost."""
        half = self.linear.rows.scaled(np.sqrt(self.resist)[None])[0]
        return np.asarray(np.linalg.qr(np.concatenate([half.T, np.diag(np.sqrt(self.loose))]), mode="r"))

    def _free(self, w: Vector, force: Vector, rows: Vector) -> tuple[Vector, Vector, Vector]:
        """Changes of w, u and λ with Aw + diag(s/λ) λ = rows, for fixed m, θ and τ."""
        multipliers, left = np.zeros(len(rows)), rows - self.linear.apply(w)
        for _ in range(SOLVES):
            more = cho_solve((self.factor, False), left)
            # w is corrected directly: a small correction of large multipliers would be rounded away
            multipliers, w = multipliers + more, w + self.resist * self.linear.adjoint(more)
            left = rows - self.linear.apply(w) - self.loose * multipliers
        return w, self.bound * (self.skew * w + force), multipliers

    def _border(self, loose: Vector) -> np.ndarray:
        """The equations of Σv, of θ, and of Σθ, in Δm, Δθ and Δτ."""
        linear, size = self.linear, len(loose)
        matrix = np.zeros((size + 2, size + 2))
        _, by_m, _ = self.by_m
        _, by_pairs, _ = self.by_pairs
        matrix[0, 0] = self.largest @ (by_m - 1)
        matrix[0, 1:-1] = (self.largest @ by_pairs) * linear.alpha - linear.beta
        matrix[1:-1, 0] = -linear.alpha * by_m.sum() - linear.beta
        matrix[1:-1, 1:-1] = np.diag(loose) - np.outer(linear.alpha, by_pairs.sum() * linear.alpha)
        matrix[1:-1, -1] = matrix[-1, 1:-1] = 1.0
        return matrix

    def _solved(self, goals: Sequence[Vector]) -> _Point:
        """The change after which each product of a bound and its multiplier has changed by its goal."""
        linear, unequal = self.linear, self.linear.unequal
        above, below, largest = (goal / gap for goal, gap in zip(goals[:3], self.gaps[:3], strict=True))
        force = above + below - largest + self.bent
        rows = -self.missed
        rows[unequal] += goals[4] / self.prices[4]
        w, u, multipliers = self._free(self.resist * (self.pulled - above + below + self.tilt * force), force, rows)
        right = np.array(
            [
                -largest.sum() - self.short[0] - self.largest @ u,
                *(goals[3] / self.prices[3] + linear.alpha * u.sum()),
                -self.short[1],
            ]
        )
        m, *theta, tau = np.linalg.solve(self.border, right)
        share = float(linear.alpha @ theta)
        w, u, multipliers = (
            part + m * by_m + share * by_pairs
            for part, by_m, by_pairs in zip((w, u, multipliers), self.by_m, self.by_pairs, strict=True)
        )
        slack = (goals[4] - self.gaps[4] * multipliers[unequal]) / self.prices[4]
        above, below, largest = (
            (goal - price * move) / gap
            for goal, price, move, gap in zip(goals, self.prices, (u - w, u + w, m - u), self.gaps, strict=False)
        )
        return _Point(w, u, m, tau, slack, above, below, largest, np.array(theta), multipliers)

    def next(self) -> _Point:
        """The point after a predictor and a corrector."""
        products = [gap * price for gap, price in zip(self.gaps, self.prices, strict=True)]
        guess = self._solved([-each for each in products])
        ahead = self._moved(guess, 1.0)
        left = _total(self.linear.gaps(ahead), self.linear.prices(ahead)) / self.count
        aim = self.mu * float(np.clip((left / self.mu) ** 3, 1e-8, 1.0))
        gaps, prices = self.linear.gaps(guess), self.linear.prices(guess)
        goals = [aim - each - gap * price for each, gap, price in zip(products, gaps, prices, strict=True)]
        return self._moved(self._solved(goals), NEAR)

    def _moved(self, change: _Point, near: float) -> _Point:
        """The weights after one step length, the multipliers after another, each within this share of its bounds."""
        sides = (self.gaps, self.linear.gaps(change)), (self.prices, self.linear.prices(change))
        lengths = [min(1.0, near / _fall(*side)) for side in sides]
        each: Any = zip(self.point, change, 5 * lengths[:1] + 5 * lengths[1:], strict=True)
        return _Point(*(now + length * more for now, more, length in each))


def _total(gaps: Sequence[Vector], prices: Sequence[Vector]) -> float:
    return float(sum(gap @ price for gap, price in zip(gaps, prices, strict=True)))


def _fall(sizes: Sequence[Vector], changes: Sequence[Vector]) -> float:
    """The largest relative decrease."""
    return max(0.1, *(float((-change / size).max()) for size, change in zip(sizes, changes, strict=True) if len(size)))
