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
from jaxtyping import Bool, Float
from scipy.linalg.lapack import dposv

from attsvm.svm.constraints.row_products import DenseRows, Selection, Vector
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Iterates, Iteration, Point, Stop, iterate
from attsvm.svm.methods.lp.point import dual_exponent, lp_norm, relative_gap

Column = Float[np.ndarray, "N 1"]

MAX_EXCHANGES = 12
"""Largest number of exchanges of active rows in one step; a problem that needs more is solved by another method."""

BROKEN = -1e-12
"""A condition is violated if it is below this, relative to the largest right side."""

FLAT = 1e-10
"""The smallest curvature used. Entries of smaller curvature add nothing to the norm, but would dominate the others."""


def newton(
    rows: Selection[DenseRows],
    p: float,
    start: Vector,
    multipliers: RowVector,
    target: float = 1e-13,
    max_steps: int = 20,
) -> Point:
    """Least ‖w‖_p under some rows, for N problems together.

    ``rows``: at least one positive right side in each problem; no equality. ``p``: 1 < p < ∞; made for 1.2 ≤ p ≤ 4.
    ``start``, ``multipliers``: shapes (N, D), (N, m), feasible w, and λ ≥ 0, not 0: the Frobenius solution. ``target``:
    relative gap at which the iteration of a problem ends. It also ends when the gap has stopped falling.

    Returns the best iterate of each problem; the start, with gap ∞, where no step could be computed.

    References: Júdice and Pires (1994), *A block principal pivoting algorithm for large-scale strictly monotone linear
    complementarity problems*.
    """
    newton = _Newton(rows.products, rows.unit.right, p, start, multipliers)
    return iterate(newton, Point.unsolved(start, multipliers), Stop(target, max_steps, patience=2, small=1e-6))


class _Newton(Iteration):
    """The points at which the model is made, and the minimum of the last model, which is evaluated."""

    def __init__(self, rows: DenseRows, right: RowVector, p: float, weights: Vector, multipliers: RowVector) -> None:
        self.rows, self.right, self.p = rows, right, p
        self.weights, self.multipliers, self.active = weights, multipliers, multipliers > 0
        self.model: _Model | None = None
        self.point, self.found, self.gap = weights, multipliers, np.full(len(weights), np.inf)

    def evaluate(self) -> Iterates:
        return Iterates(self.point, self.found, self.gap, np.isfinite(self.gap) | (self.model is None))

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.rows = self.rows.keep(going)
        self.model = None if self.model is None else _Model(*(part[going] for part in self.model))
        for name in ("right", "weights", "multipliers", "active", "found", "point", "gradient"):
            setattr(self, name, getattr(self, name)[going])

    def advance(self) -> None:
        """Step towards the minimum of the model, and minimise the model there."""
        with np.errstate(all="ignore"):  # a problem that breaks down gives NaN and is dropped
            if self.model is not None:
                self._search(self.model)
            self.model, self.multipliers = _model(self.rows, self.right, self.p, self.weights, self.multipliers)
            self.found, self.active = _minimise(self.rows, self.model, self.active)
            spread = self.model.spread
            self.point = self.model.centre + spread * spread * self.rows.adjoint(self.found)
        image, self.gradient = self.rows.apply(self.point), self.rows.adjoint(self.found)
        no_equality = np.zeros(self.right.shape, bool)
        self.gap = relative_gap(self.right, no_equality, self.p, self.point, self.found, image, self.gradient)

    def _search(self, model: "_Model") -> None:
        """Step towards the minimum of the model as long as the objective decreases."""
        if self.p >= 2:
            change = self.point - model.origin
            self.weights = model.origin + change * _decrease(model.origin, change, self.p, 0.0)
        else:
            turn = self.found - self.multipliers
            along = self.gradient - model.origin
            linear = np.vecdot(model.right, turn)[:, None]
            length = _decrease(model.origin, along, dual_exponent(self.p), linear)
            self.multipliers = self.multipliers + turn * length


class _Model(NamedTuple):
    """Newton's model: Σ ((w − centre)/spread)² under rows·w ≥ right, at ``origin`` (w or g)."""

    origin: Vector
    centre: Vector
    spread: Vector
    right: RowVector


def _model(
    rows: DenseRows, right: RowVector, p: float, weights: Vector, multipliers: RowVector
) -> tuple[_Model, RowVector]:
    """The model, and the multipliers at its scale.

    Both models are homogeneous. They are scaled to ‖w‖_p = 1 or ‖g‖_q = 1, so that powers do not over- or underflow.
    """
    if p >= 2:
        weights = weights / lp_norm(weights, p)
        margin = np.min(np.where(right > 0, rows.apply(weights) / right, np.inf), axis=-1, keepdims=True)
        goal = np.where(right >= 0, right * margin, -1.0)
        spread = np.maximum(np.abs(weights) ** (p - 2), FLAT) ** -0.5
        return _Model(weights, (p - 2) / (p - 1) * weights, spread, goal), multipliers
    q = dual_exponent(p)
    gradient = rows.adjoint(multipliers)
    size = lp_norm(gradient, q)
    multipliers, gradient = multipliers / size, gradient / size
    total = np.vecdot(np.maximum(right, 0), multipliers)[:, None]
    goal = np.where(right >= 0, right / total, -1.0)
    power = np.abs(gradient) ** (q - 2)
    spread = np.sqrt(np.maximum((q - 1) * power, FLAT))
    return _Model(gradient, power * gradient - spread * spread * gradient, spread, goal), multipliers


def _minimise(
    rows: DenseRows, model: _Model, active: Bool[np.ndarray, "N m"]
) -> tuple[RowVector, Bool[np.ndarray, "N m"]]:
    """Multipliers of the model's minimum, from a guess of the active rows, and these rows; NaN where not found."""
    scaled = rows.scaled(model.spread)
    gram = np.matmul(scaled, scaled.mT)
    short = model.right - rows.apply(model.centre)
    allowed = BROKEN * np.max(np.abs(short), axis=-1, keepdims=True)
    multipliers = np.full(short.shape, np.nan)
    active = active.copy()
    left = np.arange(len(short))
    for _ in range(MAX_EXCHANGES):
        own, guess = gram[left], active[left]
        solved = _solve_active(own, short[left], guess)
        condition = np.where(guess, solved, np.matmul(own, solved[..., None])[..., 0] - short[left])
        broken = ~(condition >= allowed[left])
        settled = ~broken.any(axis=-1)
        multipliers[left[settled]] = np.maximum(solved[settled], 0.0)
        alive = ~settled & np.isfinite(solved).all(axis=-1)
        left = left[alive]
        if len(left) == 0:
            break
        active[left] ^= broken[alive]
    return multipliers, active


def _solve_active(gram: np.ndarray, right: RowVector, active: Bool[np.ndarray, "N m"]) -> RowVector:
    """Multipliers that make the active rows equalities, 0 elsewhere; NaN where those rows are dependent."""
    solved = np.zeros(right.shape)
    for k, chosen in enumerate(active):
        inside = chosen.nonzero()[0]
        if len(inside) == 0:  # which LAPACK's interface refuses
            continue
        # the submatrix is symmetric: its transpose is the layout that LAPACK takes without a copy
        _, values, failed = dposv(gram[k][inside[:, None], inside].T, right[k, inside], overwrite_a=True)
        solved[k, inside] = np.nan if failed else values
    return solved


def _decrease(x: Vector, change: Vector, exponent: float, linear: Column | float) -> Column:
    """Steps t ≤ 1 along which (1/r)‖x + t·change‖_r^r − t·linear falls as it should."""
    size = np.abs(x)
    power = size ** (exponent - 1)
    value = np.vecdot(size, power)[:, None] / exponent
    slope = np.vecdot(np.copysign(power, x), change)[:, None] - linear
    length = np.ones((len(x), 1))
    for _ in range(20):
        new = np.sum(np.abs(x + length * change) ** exponent, axis=-1, keepdims=True) / exponent - length * linear
        short = ~(new <= value + 1e-4 * length * slope + 1e-15)
        if not short.any():
            break
        length = np.where(short, length / 2, length)
    return length
