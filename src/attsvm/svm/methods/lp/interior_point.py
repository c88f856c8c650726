r"""Interior point for the least ℓp norm under linear rows, one path for every p in [1, ∞], many problems together.

With a bound u_j ≥ \|w_j\| on every entry the problem is

    minimise ½‖u‖_p²  subject to  u − w ≥ 0,  u + w ≥ 0,  Aw − s = b,  s ≥ 0 (s = 0 on equalities).

Its central path, with multipliers y⁺, y⁻ of the two bounds and λ of the rows, Y = y⁺ + y⁻, is

    y⁺(u − w) = y⁻(u + w) = λs = μ,    y⁺ − y⁻ = A'λ,    Aw − s = b,    Y = ∇½‖u‖_p²  ⇔  u = ∇½‖Y‖_q².

Three choices keep the number of steps small for all p, from 1.01 to 200:

- the bounds: |w|^p itself is flat (p > 2) or sharp (p < 2) at 0, and Newton's method fails there; u stays positive
  until μ vanishes. Eliminating u leaves y⁺ − y⁻ = w u^{p−2}, reweighted least squares with the weights smoothed by μ;
- half the *squared* norm is homogeneous of degree 2 whatever p is, so scaling w costs nothing, where ‖w‖_p^p would
  change by 10^50 at p = 50;
- the curve between u and Y is linearised where its exponent is at most 1: Y(u) for p ≤ 2, u(Y) for p > 2.

A step eliminates all unknowns except λ. What remains is one symmetric matrix A Θ⁻¹ A' + diag(s/λ), where Θ is diagonal
plus rank one. It is factored once for Mehrotra's predictor and corrector.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg.lapack import dpotrf, dpotrs

from attsvm.svm.constraints.row_products import RowProducts, RowVector, Vector
from attsvm.svm.methods.candidate import Report
from attsvm.svm.methods.iteration import Iteration, Look, Point, iterate
from attsvm.svm.methods.lp.point import dual_exponent, lp_norm, relative_gap

Column = Float[np.ndarray, "N 1"]
REFINEMENTS = 2
"""Rounds of refinement in every solve of a careful step."""


class State(NamedTuple):
    """An iterate: w, u, y⁺, y⁻, λ and s."""

    w: Vector
    u: Vector
    upper: Vector
    lower: Vector
    multipliers: RowVector
    slack: RowVector


def interior_point(
    rows: RowProducts,
    right: RowVector,
    equality: Bool[np.ndarray, "N m"],
    p: float,
    start: Vector,
    multipliers: RowVector,
    target: float = 1e-13,
    max_steps: int = 60,
    report: Report | None = None,
    careful: bool = False,
) -> Point:
    """Least ‖w‖_p with rows·w ≥ right (= right where ``equality``), for N feasible problems together.

    Parameters
    ----------
    rows : RowProducts
        Of about unit norm. A missing row is a row of zeros with right side −1.
    right : ndarray, shape (N, m)
        With a positive entry in every problem.
    equality : bool ndarray, shape (N, m)
    p : float
        1 ≤ p ≤ ∞.
    start, multipliers : ndarrays, shapes (N, D), (N, m)
        The initial point, not 0, for instance the Frobenius solution.
    target : float
        Relative gap at which the iteration of a problem ends. It also ends when the gap has stopped falling.
    max_steps : int
    report : callable, optional
        Called as ``report(step, largest gap)``; a true return value stops.
    careful : bool
        Use orthogonal factors, which take several times as long, for problems near infeasibility. Dense rows only.

    Returns
    -------
    Point
        The best iterate of each problem, with leading axis N.

    References
    ----------
    Mehrotra (1992), *On the implementation of a primal-dual interior point method*, for the two solves a step.
    """
    size = lp_norm(start, p)
    right = right / size
    path = _CentralPath(rows, right, equality, p, _start(rows, right, equality, p, start / size, multipliers), careful)
    best = iterate(path, Point.unsolved(path.state.w, path.state.multipliers), target, max_steps, report)
    return best._replace(weights=best.weights * size)


class _CentralPath(Iteration):
    """The problems that still run, and their iterates."""

    patience = 4
    small = 1e-5

    def __init__(
        self,
        rows: RowProducts,
        right: RowVector,
        equality: Bool[np.ndarray, "N m"],
        p: float,
        state: State,
        careful: bool,
    ) -> None:
        self.rows, self.right, self.equality = rows, right, equality
        self.p, self.state, self.careful = p, state, careful

    def look(self) -> Look:
        """The iterates and their gaps."""
        state = self.state
        found = self.residuals = _residuals(self.rows, self.right, self.equality, state)
        gap = relative_gap(self.right, self.equality, self.p, state.w, state.multipliers, found.image, found.gradient)
        return Look(state.w, state.multipliers, gap, np.isfinite(state.multipliers).all(axis=-1))

    def keep(self, going: Bool[np.ndarray, " N"]) -> None:
        """Drop the other problems."""
        self.rows, self.right, self.equality = self.rows.keep(going), self.right[going], self.equality[going]
        self.state = State(*(part[going] for part in self.state))
        self.residuals = _Residuals(*(part[going] for part in self.residuals))

    def advance(self) -> None:
        """One predictor-corrector step."""
        with np.errstate(all="ignore"):  # a problem that breaks down gives NaN, never a better gap
            self.state = _advance(self.rows, self.equality, self.p, self.state, self.residuals, self.careful)


class _Residuals(NamedTuple):
    image: RowVector  # Aw
    gradient: Vector  # A'λ
    primal: RowVector  # Aw − s − b
    dual: Vector  # A'λ − (y⁺ − y⁻)


class _Curve(NamedTuple):
    """∇½‖x‖_r² at x > 0 and its derivative diag(diagonal) + weight·direction direction', for r in [1, 2]."""

    value: Vector
    diagonal: Vector
    weight: float
    direction: Vector


def _curve(x: Vector, r: float) -> _Curve:
    norm = lp_norm(x, r)
    relative = x / norm
    direction = relative ** (r - 1)
    return _Curve(norm * direction, (r - 1) * direction / relative, 2 - r, direction)


def _dot(a: np.ndarray, b: np.ndarray) -> Column:
    return np.asarray(np.vecdot(a, b)[:, None])


def _start(
    rows: RowProducts, right: RowVector, equality: Bool[np.ndarray, "N m"], p: float, w: Vector, multipliers: RowVector
) -> State:
    """A point well inside all bounds: sizes from w and the multipliers, but at least a fraction of the largest one."""
    u = np.maximum(1.1 * np.abs(w), (0.1 if p <= 2 else 0.3) * np.max(np.abs(w), axis=-1, keepdims=True))
    if p <= 2:
        total = _curve(u, p).value
    else:
        total = lp_norm(u, p) * (u / np.max(u, axis=-1, keepdims=True)) ** min(p - 1, 1e3)
        total = np.maximum(total, 1e-3 * np.max(total, axis=-1, keepdims=True))
        u = np.maximum(_curve(total, dual_exponent(p)).value, u)
    upper, lower = total * (u + w) / (2 * u), total * (u - w) / (2 * u)
    largest = np.max(right, axis=-1, keepdims=True)
    slack = np.maximum(rows.apply(w) - right, 0.1 * largest)
    floor = 0.05 * _dot(total, u) / (right.shape[-1] * largest)
    # the objective and the dual agree at the optimum: b'λ = ‖w‖ ‖A'λ‖
    known = np.maximum(_dot(right * (right > 0), multipliers), np.finfo(float).tiny)
    scaled = multipliers * (np.maximum(_dot(upper - lower, w), 0) / known)
    multipliers = np.where(equality, scaled, np.maximum(scaled, floor))
    return State(w, u, upper, lower, multipliers, np.where(equality, 0.0, slack))


def _residuals(rows: RowProducts, right: RowVector, equality: Bool[np.ndarray, "N m"], state: State) -> _Residuals:
    image, gradient = rows.apply(state.w), rows.adjoint(state.multipliers)
    dual = gradient - (state.upper - state.lower)
    # rows of nearly opposite directions have huge multipliers that nearly cancel; their rounding errors, divided by the
    # small curvature of large p, would make w useless
    noise = 4 * np.finfo(float).eps * np.max(np.abs(state.multipliers), axis=-1, keepdims=True)
    return _Residuals(image, gradient, image - state.slack - right, np.where(np.abs(dual) <= noise, 0.0, dual))


def _advance(
    rows: RowProducts,
    equality: Bool[np.ndarray, "N m"],
    p: float,
    state: State,
    residuals: _Residuals,
    careful: bool,
) -> State:
    """One predictor-corrector step."""
    w, u, upper, lower, multipliers, slack = state
    above, below = u - w, u + w
    count = 2 * w.shape[-1] + (~equality).sum(axis=-1, keepdims=True)
    mu = (_dot(upper, above) + _dot(lower, below) + _dot(multipliers, slack)) / count

    # the curve, linearised: α Δu = β (ΔY − shift) + rank one, with β = 1 for Y(u) and α = 1 for u(Y)
    stiff_upper, stiff_lower = upper / above, lower / below
    stiff, skew = stiff_upper + stiff_lower, stiff_upper - stiff_lower
    if p <= 2:
        curve = _curve(u, p)
        den = curve.diagonal + stiff
        inverse, turn = 1 / den, curve.direction / den
        rank = curve.weight / (1 + curve.weight * _dot(curve.direction, turn))
        shift = curve.value - (upper + lower)
        offset = np.zeros_like(u)
        theta = (4 * stiff_upper * stiff_lower + curve.diagonal * stiff) / den
    else:
        curve = _curve(upper + lower, dual_exponent(p))
        den = 1 + curve.diagonal * stiff
        inverse, turn = curve.diagonal / den, curve.direction / den
        rank = -curve.weight / (1 + curve.weight * _dot(curve.direction, stiff * turn))
        offset = curve.value - u
        shift = stiff * offset
        theta = (4 * stiff_upper * stiff_lower * curve.diagonal + stiff) / den
    # Δu = P(skew Δw + …) with P = diag(inverse) − rank·turn turn';  Θ = diag(theta) + rank·(skew turn)(skew turn)'
    tilt = skew * turn / theta
    drop = rank / (1 + rank * _dot(tilt, skew * turn))  # Θ⁻¹ = diag(1/theta) − drop·tilt tilt'

    def resist(x: Vector) -> Vector:
        return np.asarray(x / theta - drop * tilt * _dot(tilt, x))

    safe = np.where(equality, 1.0, multipliers)
    ratio = np.where(equality, 0.0, slack / safe)
    moved = rows.apply(tilt)
    if careful:
        # Θ⁻¹ᐟ² = diag(1/√theta) (I − bend·v v') with v = √theta·tilt
        root = np.sqrt(theta)
        length = _dot(tilt, theta * tilt)
        bend = drop / (1 + np.sqrt(np.maximum(1 - drop * length, 0.0)))
        half = rows.scaled(1 / root) - (bend * moved)[:, :, None] * (root * tilt)[:, None, :]
        factor: _Factor = _OrthogonalFactor(half, ratio)
    else:
        factor = _CholeskyFactor(rows.gram(1 / theta) - (drop * moved)[:, :, None] * moved[:, None, :], ratio)

    def solve(above_target: Vector, below_target: Vector, row_target: RowVector) -> State:
        push_upper, push_lower = above_target / above, below_target / below
        load = push_upper + push_lower - shift
        bent = inverse * load - rank * turn * _dot(turn, load) + offset
        force = residuals.dual - (push_upper - push_lower) + skew * bent
        rest = resist(force)
        d_multipliers = factor.solve(-residuals.primal + row_target / safe - rows.apply(rest))
        d_w = resist(rows.adjoint(d_multipliers)) + rest
        for _ in range(REFINEMENTS if careful else 0):
            lacking = -residuals.primal + row_target / safe - ratio * d_multipliers - rows.apply(d_w)
            # w is corrected directly: a small correction that is first added to the multipliers would be rounded away
            correction = factor.solve(lacking)
            d_multipliers = d_multipliers + correction
            d_w = d_w + resist(rows.adjoint(correction))
        load = skew * d_w + load
        d_u = inverse * load - rank * turn * _dot(turn, load) + offset
        d_upper = (above_target - upper * (d_u - d_w)) / above
        d_lower = (below_target - lower * (d_u + d_w)) / below
        d_slack = np.where(equality, 0.0, (row_target - slack * d_multipliers) / safe)
        return State(d_w, d_u, d_upper, d_lower, d_multipliers, d_slack)

    def longest(step: State) -> Column:
        """The step that reaches the first bound."""
        pairs = (
            (step.u - step.w, above),
            (step.u + step.w, below),
            (step.upper, upper),
            (step.lower, lower),
            (np.where(equality, 0.0, step.multipliers), safe),
            (step.slack, np.where(equality, 1.0, slack)),
        )
        falls = [np.max(-change / size, axis=-1, keepdims=True) for change, size in pairs]
        return np.asarray(1 / np.maximum(0.1, np.max(np.concatenate(falls, axis=-1), axis=-1, keepdims=True)))

    zero = np.where(equality, 0.0, -multipliers * slack)
    guess = solve(-upper * above, -lower * below, zero)
    length = np.minimum(1.0, longest(guess))
    ahead = State(*(part + length * change for part, change in zip(state, guess, strict=True)))
    left = (
        _dot(ahead.upper, ahead.u - ahead.w)
        + _dot(ahead.lower, ahead.u + ahead.w)
        + _dot(ahead.multipliers, ahead.slack)
    ) / count
    aim = mu * np.clip((left / mu) ** 3, 1e-6, 1.0)
    step = solve(
        aim - upper * above - guess.upper * (guess.u - guess.w),
        aim - lower * below - guess.lower * (guess.u + guess.w),
        np.where(equality, 0.0, aim - multipliers * slack - guess.multipliers * guess.slack),
    )
    # near the optimum a step may go closer to the boundary, which makes the last steps fast
    length = np.minimum(1.0, longest(step) * np.maximum(0.9, 1 - np.sqrt(mu)))
    return State(*(part + length * change for part, change in zip(state, step, strict=True)))


class _Factor:
    """Triangular factors of the matrices A Θ⁻¹ A' + diag(ratio); if there are none, solutions are NaN."""

    factors: list[np.ndarray | None]
    lower: bool

    def solve(self, right: RowVector) -> RowVector:
        result = np.full_like(right, np.nan)
        for k, factor in enumerate(self.factors):
            if factor is not None:
                result[k] = dpotrs(factor, right[k], lower=self.lower)[0]
        return result


class _CholeskyFactor(_Factor):
    def __init__(self, matrices: Float[np.ndarray, "N m m"], ratio: RowVector) -> None:
        diagonal = np.arange(matrices.shape[-1])
        # dependent equalities (two sets that share tokens) make the matrix singular: a ridge of the size of rounding
        # errors is added, and the residual of the next step corrects its effect
        matrices[:, diagonal, diagonal] += ratio + 1e-15 * np.where(ratio > 0, 1, 10) * matrices[:, diagonal, diagonal]
        self.factors, self.lower = [], True
        for matrix in matrices:
            factor, failed = dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
            self.factors.append(None if failed else factor)


class _OrthogonalFactor(_Factor):
    """Factors from A Θ⁻¹ᐟ² itself: squaring it would lose the digits of rows of nearly opposite directions."""

    def __init__(self, halves: Float[np.ndarray, "N m D"], ratio: RowVector) -> None:
        count = ratio.shape[-1]
        size = np.sum(halves * halves, axis=-1)
        bottom = np.eye(count) * np.sqrt(ratio + 1e-28 * size)[:, None, :]
        stacked = np.concatenate([halves.mT, bottom], axis=1)
        finite = np.isfinite(stacked).all(axis=(1, 2))
        triangles = np.linalg.qr(np.where(finite[:, None, None], stacked, 0.0), mode="r")
        self.factors, self.lower = [r if ok else None for r, ok in zip(triangles, finite, strict=True)], False
