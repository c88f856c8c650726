r"""Interior point for the least ℓp norm under linear rows, one path for every p in [1, ∞], many problems together.

With a bound u_j ≥ \|w_j\| on every entry the problem is

    minimise ½‖u‖_p²  subject to  u − w ≥ 0,  u + w ≥ 0,  Aw − s = b,  s ≥ 0 (s = 0 on equalities).

Its central path, with multipliers y⁺, y⁻ of the two bounds and λ of the rows, Y = y⁺ + y⁻, is

    (1) y⁺(u − w) = y⁻(u + w) = μ,   (2) λs = μ,   (3) y⁺ − y⁻ = A'λ,   (4) Aw − s = b,
    (5) Y = ∇½‖u‖_p²  ⇔  u = ∇½‖Y‖_q².

Three choices keep the number of steps small for all p, from 1.01 to 200:

- the bounds: |w|^p itself is flat (p > 2) or sharp (p < 2) at 0, and Newton's method fails there; u stays positive
  until μ vanishes. Eliminating u leaves y⁺ − y⁻ = w u^{p−2}, reweighted least squares with the weights smoothed by μ;
- half the *squared* norm is homogeneous of degree 2 whatever p is, so scaling w costs nothing, where ‖w‖_p^p would
  change by 10^50 at p = 50;
- the curve (5) is linearised where its exponent is at most 1: Y(u) for p ≤ 2, u(Y) for p > 2.

A step eliminates all unknowns except λ. What remains is one symmetric matrix A Θ⁻¹ A' + diag(s/λ), where Θ is diagonal
plus rank one.
"""

from typing import Generic, NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.svm.constraints.rows import RowVector, Vector
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.methods.lp.problems import LpProblems, R, dual_exponent, lp_norm
from attsvm.svm.methods.predictor_corrector import Lengths, RowSystem, Values, predictor_corrector

Column = Float[np.ndarray, "N 1"]
Pair = Float[np.ndarray, "N 2 D"]

REFINEMENTS = 2
"""Rounds of refinement in every solve of a careful step."""


def interior_point(
    problems: LpProblems[R],
    weights: Vector,
    multipliers: RowVector,
    stop: Stop,
    report: Report | None = None,
    careful: bool = False,
) -> Point:
    """Least ‖w‖_p under some rows, for N feasible problems together.

    ``weights``, ``multipliers``: the initial point, not 0, for instance the Frobenius solution. ``careful``: use
    orthogonal factors, which take several times as long, for problems near infeasibility. Dense rows only.
    """
    size = lp_norm(weights, problems.p)  # the value becomes about 1
    problems = problems.divided(size)
    state = _start(problems, weights / size, multipliers)
    path = _LpCentralPath(problems, state, careful)
    best = iterate(path, Point.unsolved(state.w, state.multipliers), stop, report)
    return best._replace(weights=best.weights * size)


class LpIterate(NamedTuple):
    """An iterate, or a change of one."""

    w: Vector
    u: Vector
    bounds: Pair  # u − w and u + w, which lose no digits near 0 as fields of their own
    y: Pair  # y⁺ and y⁻
    multipliers: RowVector
    slack: RowVector

    def moved(self, step: "LpIterate", length: Values) -> "LpIterate":
        return LpIterate(*(part + _axes(length, part) * change for part, change in zip(self, step, strict=True)))

    def total(self) -> Values:
        """Return y⁺'(u − w) + y⁻'(u + w) + λ's."""
        pairs = np.vecdot(self.y, self.bounds).sum(axis=-1)
        return np.asarray(pairs + np.vecdot(self.multipliers, self.slack))


class _Residuals(NamedTuple):
    image: RowVector  # Aw
    gradient: Vector  # A'λ
    primal: RowVector  # Aw − s − b, what (4) lacks
    dual: Vector  # A'λ − (y⁺ − y⁻), what (3) lacks


class _LpCentralPath(Iteration, Generic[R]):
    """The problems that still run, and their iterates."""

    def __init__(self, problems: LpProblems[R], state: LpIterate, careful: bool) -> None:
        self.problems, self.state, self.careful = problems, state, careful

    def evaluate(self) -> Iterates:
        state, problems = self.state, self.problems
        image, gradient = problems.rows.apply(state.w), problems.rows.adjoint(state.multipliers)
        dual = gradient - (state.y[:, 0] - state.y[:, 1])
        # rows of nearly opposite directions have huge multipliers that nearly cancel; their rounding errors, divided
        # by the small curvature of large p, would make w useless
        noise = 4 * np.finfo(float).eps * np.max(np.abs(state.multipliers), axis=-1, keepdims=True)
        dual = np.where(np.abs(dual) <= noise, 0.0, dual)
        self.residuals = _Residuals(image, gradient, image - state.slack - problems.right, dual)
        gap = problems.gap(state.w, state.multipliers, image, gradient)
        return Iterates(state.w, state.multipliers, gap, np.isfinite(state.multipliers).all(axis=-1))

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.problems = self.problems.select(going)
        self.state = LpIterate(*(part[going] for part in self.state))
        self.residuals = _Residuals(*(part[going] for part in self.residuals))

    def advance(self) -> None:
        """Make one step. One length serves primal and dual variables, because (5) couples them."""
        with np.errstate(all="ignore"):  # a problem that breaks down gives NaN, never a better gap
            equations = _LpEquations(self.problems, self.state, self.residuals, self.careful)
            step, (length, _) = predictor_corrector(equations)
            self.state = self.state.moved(step, length)


def _start(problems: LpProblems[R], w: Vector, multipliers: RowVector) -> LpIterate:
    """A point well inside all bounds: sizes from w and the multipliers, but at least a fraction of the largest one."""
    rows, right, gain, equality, p = problems
    u = np.maximum(1.1 * np.abs(w), (0.1 if p <= 2 else 0.3) * np.max(np.abs(w), axis=-1, keepdims=True))
    if p <= 2:
        total = _curve(u, p).value
    else:
        total = lp_norm(u, p) * (u / np.max(u, axis=-1, keepdims=True)) ** min(p - 1, 1e3)
        total = np.maximum(total, 1e-3 * np.max(total, axis=-1, keepdims=True))
        u = np.maximum(_curve(total, dual_exponent(p)).value, u)
    y = np.stack([total * (u + w), total * (u - w)], axis=1) / (2 * u)[:, None, :]
    largest = np.max(right, axis=-1, keepdims=True)
    slack = np.maximum(rows.apply(w) - right, 0.1 * largest)
    floor = 0.05 * _dot(total, u) / (right.shape[-1] * largest)
    # the objective and the dual agree at the optimum: b'λ = ‖w‖ ‖A'λ‖
    known = np.maximum(_dot(gain, multipliers), np.finfo(float).tiny)
    scaled = multipliers * (np.maximum(_dot(y[:, 0] - y[:, 1], w), 0) / known)
    multipliers = np.where(equality, scaled, np.maximum(scaled, floor))
    return LpIterate(w, u, _bounds(w, u), y, multipliers, np.where(equality, 0.0, slack))


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


class _Elimination(NamedTuple):
    """The curve (5) solved for Δu, with (1): Δu = P (skew·Δw + push − shift) + offset.

    P = diag(inverse) − rank·turn turn', and (3) becomes A'Δλ = Θ Δw − … with Θ = diag(theta) + rank·(skew turn)(skew
    turn)'.
    """

    inverse: Vector
    turn: Vector
    rank: Column
    shift: Vector
    offset: Vector
    theta: Vector

    def change(self, load: Vector) -> Vector:
        """Return Δu for skew·Δw + push − shift."""
        return np.asarray(self.inverse * load - self.rank * self.turn * _dot(self.turn, load) + self.offset)


def _eliminated(p: float, state: LpIterate, stiff_upper: Vector, stiff_lower: Vector) -> _Elimination:
    """Solve for Δu with the derivative C of the curve, as diagonal plus rank one by Sherman and Morrison."""
    stiff, total = stiff_upper + stiff_lower, state.y.sum(axis=1)
    if p <= 2:
        # Y + ΔY = ∇ + C Δu with ΔY = push − stiff Δu + skew Δw: P = (C + stiff)⁻¹
        curve = _curve(state.u, p)
        den = curve.diagonal + stiff
        turn = curve.direction / den
        rank = curve.weight / (1 + curve.weight * _dot(curve.direction, turn))
        # stiff − skew²/den, without cancellation
        theta = (4 * stiff_upper * stiff_lower + curve.diagonal * stiff) / den
        return _Elimination(1 / den, turn, rank, curve.value - total, np.zeros_like(turn), theta)
    # u + Δu = ∇ + C ΔY: P = (I + C stiff)⁻¹ C
    curve = _curve(total, dual_exponent(p))
    den = 1 + curve.diagonal * stiff
    turn = curve.direction / den
    rank = -curve.weight / (1 + curve.weight * _dot(curve.direction, stiff * turn))
    offset = curve.value - state.u
    theta = (4 * stiff_upper * stiff_lower * curve.diagonal + stiff) / den
    return _Elimination(curve.diagonal / den, turn, rank, stiff * offset, offset, theta)


class _LpEquations(Generic[R]):
    """The equations of a step at one iterate, with everything but λ eliminated, and their matrix factored."""

    def __init__(self, problems: LpProblems[R], state: LpIterate, residuals: _Residuals, careful: bool) -> None:
        self.rows, self.state, self.residuals = problems.rows, state, residuals
        self.unequal = ~problems.equality
        self.count = 2 * state.w.shape[-1] + self.unequal.sum(axis=-1)
        self.mu = state.total() / self.count
        self.refinements = REFINEMENTS if careful else 0
        # (1) gives Δy = push − stiff·Δbounds
        self.stiff = state.y / state.bounds
        upper, lower = self.stiff[:, 0], self.stiff[:, 1]
        self.skew = upper - lower
        self.curve = curve = _eliminated(problems.p, state, upper, lower)
        bent = self.skew * curve.turn
        self.tilt = tilt = bent / curve.theta
        # Θ⁻¹ = diag(1/theta) − drop·tilt tilt'
        self.drop = drop = curve.rank / (1 + curve.rank * _dot(tilt, bent))
        # (2) gives Δs = (target − sΔλ)/λ; s is 0 on equalities and stays 0
        self.divisor = np.where(problems.equality, 1.0, state.multipliers)
        self.ratio = state.slack / self.divisor
        moved = self.rows.apply(tilt)
        if careful:
            # Θ⁻¹ᐟ² = diag(1/√theta) (I − bend·v v') with v = √theta·tilt
            root = np.sqrt(curve.theta)
            bend = drop / (1 + np.sqrt(np.maximum(1 - drop * _dot(tilt, curve.theta * tilt), 0.0)))
            half = self.rows.scaled(1 / root) - (bend * moved)[:, :, None] * (root * tilt)[:, None, :]
            self.system = RowSystem.of_halves(half, self.ratio)
        else:
            gram = self.rows.gram(1 / curve.theta) - (drop * moved)[:, :, None] * moved[:, None, :]
            self.system = RowSystem(gram, self.ratio)
        self.failed = self.system.failed

    def predictor(self) -> LpIterate:
        state = self.state
        return self._solve(-state.y * state.bounds, -state.multipliers * state.slack)

    def corrector(self, aim: Values, predictor: LpIterate) -> LpIterate:
        state = self.state
        rows = self.unequal * aim[:, None] - state.multipliers * state.slack - predictor.multipliers * predictor.slack
        return self._solve(aim[:, None, None] - state.y * state.bounds - predictor.y * predictor.bounds, rows)

    def mu_after(self, step: LpIterate, lengths: Lengths) -> Values:
        return np.asarray(self.state.moved(step, lengths[0]).total() / self.count)

    def longest(self, step: LpIterate) -> Lengths:
        """Return the length at which the step reaches the first bound, at most 10, twice."""
        state, N = self.state, len(self.mu)
        falls = [
            -step.bounds / state.bounds,
            -step.y / state.y,
            self.unequal * -step.multipliers / self.divisor,
            self.unequal * -step.slack / np.where(self.unequal, state.slack, 1.0),
        ]
        fastest = np.max([fall.reshape(N, -1).max(axis=-1) for fall in falls], axis=0)
        length = 1 / np.maximum(0.1, fastest)
        return length, length

    def _solve(self, target: Pair, row_target: RowVector) -> LpIterate:
        """Return the step for which the products in (1) and (2) change by these amounts."""
        rows, state, curve, system = self.rows, self.state, self.curve, self.system
        push = target / self.state.bounds
        load = push[:, 0] + push[:, 1] - curve.shift
        # (3): A'Δλ + force = Θ Δw
        force = self.residuals.dual - (push[:, 0] - push[:, 1]) + self.skew * curve.change(load)
        rest = self._resist(force)
        # (4): A Δw − Δs = −primal
        lacking = row_target / self.divisor - self.residuals.primal
        multipliers = system.solve(lacking - rows.apply(rest))
        w = self._resist(rows.adjoint(multipliers)) + rest
        for _ in range(self.refinements):
            # w is corrected directly: a small correction first added to the multipliers would be rounded away
            correction = system.solve(lacking - self.ratio * multipliers - rows.apply(w))
            multipliers = multipliers + correction
            w = w + self._resist(rows.adjoint(correction))
        u = curve.change(self.skew * w + load)
        slack = (row_target - state.slack * multipliers) / self.divisor
        bounds = _bounds(w, u)
        return LpIterate(w, u, bounds, push - self.stiff * bounds, multipliers, slack)

    def _resist(self, x: Vector) -> Vector:
        """Multiply x by Θ⁻¹."""
        return np.asarray(x / self.curve.theta - self.drop * self.tilt * _dot(self.tilt, x))


def _dot(a: np.ndarray, b: np.ndarray) -> Column:
    return np.asarray(np.vecdot(a, b)[:, None])


def _bounds(w: Vector, u: Vector) -> Pair:
    bounds = np.empty((len(w), 2, w.shape[1]))
    np.subtract(u, w, out=bounds[:, 0])
    np.add(u, w, out=bounds[:, 1])
    return bounds


def _axes(values: Values, like: np.ndarray) -> np.ndarray:
    return values.reshape(-1, *[1] * (like.ndim - 1))
