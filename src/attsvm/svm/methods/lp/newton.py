r"""Newton's method on small ℓp Att-SVMs of moderate p, many together: every step is a least-distance problem.

Newton's model of (1/p)‖w‖_p^p at w_k, minimised under the same constraints, is the Frobenius Att-SVM in other
coordinates,

    minimise Σ_j ((w_j − c_j)/d_j)²  subject to  Aw ≥ b,

whose solution w = c + D² A'μ has multipliers μ ≥ 0 with A D² A' μ ≥ b − Ac. The active rows change little between
steps, so block pivoting finds them in one or two solves. The steps end on the exact active set, and the last step
doubles the number of correct digits. For p ≥ 2 the objective is linearised in w: d = |w_k|^{1−p/2},
c = (p−2)/(p−1) w_k. For p < 2 this model has a pole at 0, and Newton's method oscillates around it. There the model is
made in g = A'λ, of which w = ψ(g) = sign(g)|g|^{q−1} is a smooth function: d² = (q−1)|g_k|^{q−2}, c = (2−q) ψ(g_k).
Both are safeguarded by a line search, on the primal or on the dual objective.
"""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.svm.constraints.rows import DenseRows, RowVector, Vector
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.methods.frobenius.pivoting import exchange
from attsvm.svm.methods.lp.problems import LpProblems, dual_exponent, lp_norm

Column = Float[np.ndarray, "N 1"]

FLAT = 1e-10
"""The smallest curvature used. Entries of smaller curvature add nothing to the norm, but would dominate the others."""


def newton(
    problems: LpProblems[DenseRows],
    weights: Vector,
    multipliers: RowVector,
    stop: Stop,
    report: Report | None = None,
) -> Point:
    """Least ‖w‖_p under some rows without equalities, for N problems together.

    ``weights``, ``multipliers``: feasible w, and λ ≥ 0, not 0: the Frobenius solution. Made for 1.2 ≤ p ≤ 4.
    """
    # the convergence is quadratic: two steps without progress are enough
    stop = stop._replace(patience=2)
    return iterate(_ModelIteration(problems, weights, multipliers), Point.unsolved(weights, multipliers), stop, report)


class _ModelIteration(Iteration):
    """The points at which the model is made, and the minimum of the last model, which is evaluated."""

    def __init__(self, problems: LpProblems[DenseRows], weights: Vector, multipliers: RowVector) -> None:
        self.problems = problems
        self.weights, self.multipliers, self.active = weights, multipliers, multipliers > 0
        self.model: _QuadraticModel | None = None
        self.point, self.found, self.gradient = weights, multipliers, problems.rows.adjoint(multipliers)

    def evaluate(self) -> Iterates:
        problems, point = self.problems, self.point
        gap = problems.gap(point, self.found, problems.rows.apply(point), self.gradient)
        return Iterates(point, self.found, gap, np.isfinite(point).all(axis=-1))

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.problems = self.problems.select(going)
        self.model = None if self.model is None else _QuadraticModel(*(part[going] for part in self.model))
        for name in ("weights", "multipliers", "active", "found", "point", "gradient"):
            setattr(self, name, getattr(self, name)[going])

    def advance(self) -> None:
        """Step towards the minimum of the model, and minimise the model there."""
        problems = self.problems
        with np.errstate(all="ignore"):  # a problem that breaks down gives NaN and is dropped
            if self.model is not None:
                self._search(self.model)
            self.model, self.multipliers = _model(problems, self.weights, self.multipliers)
            # the multipliers of its minimum: (A D² A')μ ≥ b − Ac, μ ≥ 0, from a guess of the active rows
            model, scaled = self.model, problems.rows.scaled(self.model.spread)
            short = model.right - problems.rows.apply(model.centre)
            self.found, self.active, _ = exchange(scaled @ scaled.mT, short, self.active)
            # w = c + D² A'μ
            self.gradient = problems.rows.adjoint(self.found)
            self.point = model.centre + model.spread**2 * self.gradient

    def _search(self, model: "_QuadraticModel") -> None:
        """Step towards the minimum of the model as long as the objective decreases."""
        if self.problems.p >= 2:
            # (1/p)‖w‖_p^p falls along the change of w
            change = self.point - model.origin
            self.weights = model.origin + change * _decrease(model.origin, change, self.problems.p, 0.0)
        else:
            # (1/q)‖A'λ‖_q^q − b'λ falls along the change of λ
            turn = self.found - self.multipliers
            along = self.gradient - model.origin
            linear = np.vecdot(model.right, turn)[:, None]
            length = _decrease(model.origin, along, dual_exponent(self.problems.p), linear)
            self.multipliers = self.multipliers + turn * length


class _QuadraticModel(NamedTuple):
    """Newton's model: Σ ((w − centre)/spread)² under rows·w ≥ right, at ``origin`` (w or g)."""

    origin: Vector
    centre: Vector
    spread: Vector
    right: RowVector


def _model(
    problems: LpProblems[DenseRows], weights: Vector, multipliers: RowVector
) -> tuple[_QuadraticModel, RowVector]:
    """The model, and the multipliers at its scale.

    Both models are homogeneous. They are scaled to ‖w‖_p = 1 or ‖g‖_q = 1, so that powers do not over- or underflow.
    """
    rows, right, gain, _, p = problems
    if p >= 2:
        weights = weights / lp_norm(weights, p)
        margin = np.min(np.where(right > 0, rows.apply(weights) / right, np.inf), axis=-1, keepdims=True)
        goal = right * margin
        # d = |w|^{1−p/2}, c = (p−2)/(p−1) w
        spread = np.maximum(np.abs(weights) ** (p - 2), FLAT) ** -0.5
        return _QuadraticModel(weights, (p - 2) / (p - 1) * weights, spread, goal), multipliers
    q = dual_exponent(p)
    gradient = rows.adjoint(multipliers)
    size = lp_norm(gradient, q)
    multipliers, gradient = multipliers / size, gradient / size
    goal = right / np.vecdot(gain, multipliers)[:, None]
    # d² = (q−1)|g|^{q−2}, c = ψ(g) − d² g = (2−q) ψ(g)
    power = np.abs(gradient) ** (q - 2)
    spread = np.sqrt(np.maximum((q - 1) * power, FLAT))
    return _QuadraticModel(gradient, power * gradient - spread * spread * gradient, spread, goal), multipliers


def _decrease(x: Vector, change: Vector, exponent: float, linear: Column | float) -> Column:
    """Steps t ≤ 1 along which (1/r)‖x + t·change‖_r^r − t·linear falls as it should."""
    # the gradient of the norm is sign(x)|x|^{r−1}
    size = np.abs(x)
    power = size ** (exponent - 1)
    value = np.vecdot(size, power)[:, None] / exponent
    slope = np.vecdot(np.copysign(power, x), change)[:, None] - linear
    length = np.ones((len(x), 1))
    for _ in range(20):
        # Armijo's condition, up to rounding
        new = np.sum(np.abs(x + length * change) ** exponent, axis=-1, keepdims=True) / exponent - length * linear
        short = ~(new <= value + 1e-4 * length * slope + 1e-15)
        if not short.any():
            break
        length = np.where(short, length / 2, length)
    return length
