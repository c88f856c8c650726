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

from attsvm.svm.constraints.row_products import P, RowProducts, Selection, Vector
from attsvm.svm.constraints.unit_rows import Chosen, RowVector
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.methods.lp.point import dual_exponent, lp_norm, relative_gap

Column = Float[np.ndarray, "N 1"]

REFINEMENTS = 2
"""Rounds of refinement in every solve of a careful step."""


class _Problems(NamedTuple):
    """Aw ≥ b, with equality where ``equality`` is true, for N problems in the ℓp norm."""

    rows: RowProducts
    right: RowVector
    equality: Bool[np.ndarray, "N m"]
    p: float

    def keep(self, some: Chosen) -> "_Problems":
        return _Problems(self.rows.keep(some), self.right[some], self.equality[some], self.p)


class State(NamedTuple):
    """An iterate: w, u, y⁺, y⁻, λ and s."""

    w: Vector
    u: Vector
    upper: Vector
    lower: Vector
    multipliers: RowVector
    slack: RowVector


def interior_point(
    rows: Selection[P],
    p: float,
    start: Vector,
    multipliers: RowVector,
    target: float = 1e-13,
    max_steps: int = 60,
    report: Report | None = None,
    careful: bool = False,
) -> Point:
    """Least ‖w‖_p under some rows, for N feasible problems together.

    ``rows``: at least one positive right side in each problem. ``p``: 1 ≤ p ≤ ∞. ``start``, ``multipliers``: shapes (N,
    D), (N, m), the initial point, not 0, for instance the Frobenius solution. ``target``: relative gap at which the
    iteration of a problem ends. It also ends when the gap has stopped falling. ``report``: called as ``report(step,
    largest gap)``; a true return value stops. ``careful``: use orthogonal factors, which take several times as long,
    for problems near infeasibility. Dense rows only.

    Returns the best iterate of each problem, with leading axis N.

    References: Mehrotra (1992), *On the implementation of a primal-dual interior point method*, for the two solves a
    step.
    """
    size = lp_norm(start, p)
    problems = _Problems(rows.products, rows.unit.right / size, rows.unit.equality, p)
    path = _CentralPath(problems, _start(problems, start / size, multipliers), careful)
    begin = Point.unsolved(path.state.w, path.state.multipliers)
    best = iterate(path, begin, Stop(target, max_steps), report)
    return best._replace(weights=best.weights * size)


class _CentralPath(Iteration):
    """The problems that still run, and their iterates."""

    def __init__(self, problems: _Problems, state: State, careful: bool) -> None:
        self.problems, self.state, self.careful = problems, state, careful

    def evaluate(self) -> Iterates:
        state, (_, right, equality, p) = self.state, self.problems
        found = self.residuals = _residuals(self.problems, state)
        gap = relative_gap(right, equality, p, state.w, state.multipliers, found.image, found.gradient)
        return Iterates(state.w, state.multipliers, gap, np.isfinite(state.multipliers).all(axis=-1))

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.problems = self.problems.keep(going)
        self.state = State(*(part[going] for part in self.state))
        self.residuals = _Residuals(*(part[going] for part in self.residuals))

    def advance(self) -> None:
        """Make one predictor-corrector step."""
        with np.errstate(all="ignore"):  # a problem that breaks down gives NaN, never a better gap
            self.state = _advance(self.problems, self.state, self.residuals, self.careful)


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


def _start(problems: _Problems, w: Vector, multipliers: RowVector) -> State:
    """A point well inside all bounds: sizes from w and the multipliers, but at least a fraction of the largest one."""
    rows, right, equality, p = problems
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


def _residuals(problems: _Problems, state: State) -> _Residuals:
    image, gradient = problems.rows.apply(state.w), problems.rows.adjoint(state.multipliers)
    dual = gradient - (state.upper - state.lower)
    # rows of nearly opposite directions have huge multipliers that nearly cancel; their rounding errors, divided by the
    # small curvature of large p, would make w useless
    noise = 4 * np.finfo(float).eps * np.max(np.abs(state.multipliers), axis=-1, keepdims=True)
    return _Residuals(image, gradient, image - state.slack - problems.right, np.where(np.abs(dual) <= noise, 0.0, dual))


class _Linearised(NamedTuple):
    """The equations of u and Y, linearised: Δu = P·load + offset, P = diag(inverse) − rank·turn turn'.

    ``skew`` and ``shift`` make up the load, skew·Δw + push − shift; what is left of w is Θ = diag(theta) +
    rank·(skew turn)(skew turn)'.
    """

    skew: Vector
    inverse: Vector
    turn: Vector
    rank: Column
    shift: Vector
    offset: Vector
    theta: Vector

    def change(self, load: Vector) -> Vector:
        return np.asarray(self.inverse * load - self.rank * self.turn * _dot(self.turn, load) + self.offset)


def _linearised(p: float, state: State) -> _Linearised:
    """The curve linearised: α Δu = β (ΔY − shift) + rank one, with β = 1 for Y(u) (p ≤ 2) and α = 1 for u(Y)."""
    w, u, upper, lower = state[:4]
    stiff_upper, stiff_lower = upper / (u - w), lower / (u + w)
    stiff, skew = stiff_upper + stiff_lower, stiff_upper - stiff_lower
    if p <= 2:
        curve = _curve(u, p)
        den = curve.diagonal + stiff
        turn = curve.direction / den
        rank = curve.weight / (1 + curve.weight * _dot(curve.direction, turn))
        theta = (4 * stiff_upper * stiff_lower + curve.diagonal * stiff) / den
        return _Linearised(skew, 1 / den, turn, rank, curve.value - (upper + lower), np.zeros_like(u), theta)
    curve = _curve(upper + lower, dual_exponent(p))
    den = 1 + curve.diagonal * stiff
    turn = curve.direction / den
    rank = -curve.weight / (1 + curve.weight * _dot(curve.direction, stiff * turn))
    offset = curve.value - u
    theta = (4 * stiff_upper * stiff_lower * curve.diagonal + stiff) / den
    return _Linearised(skew, curve.diagonal / den, turn, rank, stiff * offset, offset, theta)


class _Equations:
    """The equations of a step at one iterate, with everything but λ eliminated, and their matrix factored."""

    def __init__(self, problems: _Problems, state: State, residuals: _Residuals, careful: bool) -> None:
        self.rows, self.equality, self.state, self.residuals = problems.rows, problems.equality, state, residuals
        self.above, self.below = state.u - state.w, state.u + state.w
        self.refinements = REFINEMENTS if careful else 0
        self.linear = linear = _linearised(problems.p, state)
        theta, bent = linear.theta, linear.skew * linear.turn
        self.tilt = tilt = bent / theta
        self.drop = drop = linear.rank / (1 + linear.rank * _dot(tilt, bent))  # Θ⁻¹ = diag(1/theta) − drop·tilt tilt'
        self.safe = np.where(self.equality, 1.0, state.multipliers)
        self.ratio = np.where(self.equality, 0.0, state.slack / self.safe)
        moved = self.rows.apply(tilt)
        if careful:
            # Θ⁻¹ᐟ² = diag(1/√theta) (I − bend·v v') with v = √theta·tilt
            root = np.sqrt(theta)
            length = _dot(tilt, theta * tilt)
            bend = drop / (1 + np.sqrt(np.maximum(1 - drop * length, 0.0)))
            half = self.rows.scaled(1 / root) - (bend * moved)[:, :, None] * (root * tilt)[:, None, :]
            self.factor: _Factor = _OrthogonalFactor(half, self.ratio)
        else:
            gram = self.rows.gram(1 / theta) - (drop * moved)[:, :, None] * moved[:, None, :]
            self.factor = _CholeskyFactor(gram, self.ratio)

    def _resist(self, x: Vector) -> Vector:
        """Multiply x by Θ⁻¹."""
        return np.asarray(x / self.linear.theta - self.drop * self.tilt * _dot(self.tilt, x))

    def solve(self, above_target: Vector, below_target: Vector, row_target: RowVector) -> State:
        """The step for which y⁺(u − w), y⁻(u + w) and λs change by these amounts."""
        rows, state, linear, residuals, factor = self.rows, self.state, self.linear, self.residuals, self.factor
        push_upper, push_lower = above_target / self.above, below_target / self.below
        load = push_upper + push_lower - linear.shift
        force = residuals.dual - (push_upper - push_lower) + linear.skew * linear.change(load)
        rest = self._resist(force)
        multipliers = factor.solve(-residuals.primal + row_target / self.safe - rows.apply(rest))
        w = self._resist(rows.adjoint(multipliers)) + rest
        for _ in range(self.refinements):
            lacking = -residuals.primal + row_target / self.safe - self.ratio * multipliers - rows.apply(w)
            # w is corrected directly: a small correction first added to the multipliers would be rounded away
            correction = factor.solve(lacking)
            multipliers = multipliers + correction
            w = w + self._resist(rows.adjoint(correction))
        u = linear.change(linear.skew * w + load)
        upper = (above_target - state.upper * (u - w)) / self.above
        lower = (below_target - state.lower * (u + w)) / self.below
        slack = np.where(self.equality, 0.0, (row_target - state.slack * multipliers) / self.safe)
        return State(w, u, upper, lower, multipliers, slack)

    def longest(self, step: State) -> Column:
        """The length at which the step reaches the first bound, at most 10."""
        pairs = (
            (step.u - step.w, self.above),
            (step.u + step.w, self.below),
            (step.upper, self.state.upper),
            (step.lower, self.state.lower),
            (np.where(self.equality, 0.0, step.multipliers), self.safe),
            (step.slack, np.where(self.equality, 1.0, self.state.slack)),
        )
        falls = [np.max(-change / size, axis=-1, keepdims=True) for change, size in pairs]
        return np.asarray(1 / np.maximum(0.1, np.max(np.concatenate(falls, axis=-1), axis=-1, keepdims=True)))


def _total(state: State) -> Column:
    """y⁺'(u − w) + y⁻'(u + w) + λ's."""
    bounds = _dot(state.upper, state.u - state.w) + _dot(state.lower, state.u + state.w)
    return np.asarray(bounds + _dot(state.multipliers, state.slack))


def _advance(problems: _Problems, state: State, residuals: _Residuals, careful: bool) -> State:
    """Make one predictor-corrector step."""
    equality, multipliers, slack = problems.equality, state.multipliers, state.slack
    count = 2 * state.w.shape[-1] + (~equality).sum(axis=-1, keepdims=True)
    mu = _total(state) / count
    equations = _Equations(problems, state, residuals, careful)

    def after(step: State, length: Column) -> State:
        return State(*(part + length * change for part, change in zip(state, step, strict=True)))

    above, below = -state.upper * equations.above, -state.lower * equations.below
    guess = equations.solve(above, below, np.where(equality, 0.0, -multipliers * slack))
    left = _total(after(guess, np.minimum(1.0, equations.longest(guess)))) / count
    aim = mu * np.clip((left / mu) ** 3, 1e-6, 1.0)
    step = equations.solve(
        aim + above - guess.upper * (guess.u - guess.w),
        aim + below - guess.lower * (guess.u + guess.w),
        np.where(equality, 0.0, aim - multipliers * slack - guess.multipliers * guess.slack),
    )
    # near the optimum a step may go closer to the boundary, which makes the last steps fast; but a bound that shortens
    # the step would nearly become 0, and all later steps would be short
    longest = equations.longest(step)
    return after(step, np.minimum(1.0, longest * np.maximum(0.9, 1 - np.maximum(np.sqrt(mu), (1 - longest) / 2))))


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
