"""Minimise a smooth function over a ball, and inside a cone: a trust-region Newton method on the sphere.

The function is a log-sum-exp of margins times the radius, so it is badly scaled but smooth: a Hessian costs little at
the sizes where paths are followed, and nothing of first order gets to eight digits at a radius of 1e4 margins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from attsvm.norms import Lp
from attsvm.regularization.excess import Curvature, Expansion

# where |w|^(p−2) vanishes (p > 2) the metric of the trust region is held above this share of its mean
_LEAST_METRIC = 1e-3
_ON_SPHERE = 1e-12
_ROUNDING = 1e-13
_VERTEX = 1e-6
# relative damping that keeps rounding from moving along directions in which the function is constant
_GAUGE = 1e-11


class Objective(Protocol):
    """A function of d numbers to be minimised."""

    def value(self, x: np.ndarray) -> float:
        """Its value; −∞ where only a rebased function can tell how low it is."""
        ...

    def expand(self, x: np.ndarray) -> Expansion:
        """Value and derivatives, where the value is finite."""
        ...

    def rebased(self, x: np.ndarray) -> Self:
        """The same function up to a monotone transformation, with the most digits around x."""
        ...


class Minimum(NamedTuple):
    """Where a minimisation ended."""

    x: np.ndarray
    residual: float
    steps: int
    pull: float = 0.0  # multiplier of the cone


class Cone(Protocol):
    """A smooth scale-free constraint k(x) ≤ 0."""

    def slack(self, x: np.ndarray) -> float:
        """How far x is inside, negative outside; the same for every multiple of x."""
        ...

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Of k, orthogonal to x."""
        ...

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Of k."""
        ...

    def restore(self, x: np.ndarray) -> np.ndarray:
        """A point near x, which is outside, with k = 0; zero where that is the vertex."""
        ...


@dataclass(frozen=True)
class CircularCone:
    """correlation(W, D) ≥ c, as c ‖W‖ − ⟨W, D⟩ ≤ 0 for ‖D‖ = 1."""

    axis: np.ndarray  # D, flat
    correlation: float

    def slack(self, x: np.ndarray) -> float:
        """Correlation with the axis, less c; 0 at the vertex."""
        if not x.any():
            return 0.0
        return float(x @ self.axis / np.linalg.norm(x)) - self.correlation

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Of c ‖x‖ − ⟨x, D⟩."""
        return self.correlation * x / np.linalg.norm(x) - self.axis

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Of c ‖x‖ − ⟨x, D⟩."""
        length = np.linalg.norm(x)
        unit = x / length
        return self.correlation / length * (np.eye(len(x)) - np.outer(unit, unit))

    def restore(self, x: np.ndarray) -> np.ndarray:
        """The nearest point of the cone to one outside; zero where that is the vertex."""
        along = x @ self.axis
        across = x - along * self.axis
        length, c = np.linalg.norm(across), self.correlation
        s = np.sqrt(1 - c * c)
        reach = along * c + length * s
        return max(reach, 0.0) * (c * self.axis + s * across / length)

    def steepest(self, gradient: np.ndarray) -> float:
        """How fast a function of that gradient falls from the vertex, at most, for each unit of Frobenius length."""
        along = -gradient @ self.axis
        across = np.sqrt(max(gradient @ gradient - along * along, 0.0))
        angle = np.arctan2(across, along) - np.arccos(self.correlation)
        return float(np.hypot(along, across) * np.cos(min(max(angle, 0.0), np.pi)))


def minimise(
    objective: Objective,
    start: np.ndarray,
    radius: float,
    p: float = 2.0,
    cone: Cone | None = None,
    symmetries: Callable[[np.ndarray], np.ndarray] | None = None,
    tol: float = 1e-15,
    max_steps: int = 200,
) -> Minimum:
    """A local minimum of a function over ‖x‖_p ≤ radius, inside the cone where one is given.

    Parameters
    ----------
    objective : Objective
    start : ndarray, shape (d,)
        Brought into the ball and the cone first.
    radius : float
    p : float
        1 < p < ∞.
    cone : Cone, optional
    symmetries : callable, optional
        From x to directions (k, d) along which function, norm and cone are constant: no step goes there.
    tol : float
        On the residual: 1 − ⟨−g, x⟩/(radius ‖g‖_q) on the sphere, ‖x‖ ‖g‖_q inside the ball.
    max_steps : int

    Returns
    -------
    Minimum
        Its residual says how stationary it is.
    """
    norm = Lp(p)
    x = _into(start, radius, norm, cone)
    objective = objective.rebased(x)
    here = objective.expand(x)
    trust = 10.0
    best = Minimum(x, np.inf, 0)
    if not here.gradient.any():  # flat to the last digit: nothing says where to go
        return best
    for step in range(max_steps + 1):
        model = _Model.at(x, here, radius, norm, cone, None if symmetries is None else symmetries(x))
        best = Minimum(x, model.residual, step, model.pull)
        if step == max_steps or trust < 1e-12 or (model.residual <= tol and not model.descends):
            break
        move = model.step(trust)
        trial = model.retract(move)
        value = objective.value(trial)
        if cone is not None and np.linalg.norm(trial) <= _VERTEX * np.linalg.norm(start):
            # steps that shrink towards the vertex would go on for ever
            if objective.value(np.zeros_like(x)) <= here.value:
                return Minimum(np.zeros_like(x), 0.0, step)
            value = np.inf if not trial.any() else value
        rounding = _ROUNDING * (1 + abs(here.value))
        gain = here.value - value
        within = abs(gain) <= rounding and move.predicted <= 10 * rounding
        ratio = 1.0 if within else gain / max(move.predicted, 1e-300)
        if within and model.residual <= 1e-10 and not model.descends:
            following = _Model.at(trial, objective.expand(trial), radius, norm, cone)
            if following.residual >= model.residual:
                break
        if ratio < 0.25:
            trust = min(trust, move.length) / 4
        elif ratio > 0.75:
            trust = max(trust, 3 * move.length)
        if ratio > 1e-4:
            x = trial
            objective = objective.rebased(x)
            here = objective.expand(x)
    return best


class _Move(NamedTuple):
    dx: np.ndarray
    damping: float
    predicted: float
    length: float


@dataclass(frozen=True)
class _Model:
    """The quadratic model around x, on the sphere or inside the ball, on the cone or inside it."""

    x: np.ndarray
    gradient: np.ndarray
    curvature: Curvature  # with the cone's
    scales: np.ndarray  # x moves by scales times the trust region's variable
    normals: np.ndarray  # (k, d), of the constraints that press
    basis: np.ndarray  # (k, d), orthonormal, of the scaled normals
    triangle: np.ndarray  # (k, k) with scaled normals = triangle' basis
    values: np.ndarray  # (r,), eigenvalues of the Lagrangian's Hessian between the normals
    vectors: np.ndarray  # (d, r)
    radius: float
    norm: Lp
    cone: Cone | None
    on_sphere: bool
    pressure: float  # of the sphere's constraint
    pull: float  # of the cone's
    residual: float

    @classmethod
    def at(
        cls,
        x: np.ndarray,
        here: Expansion,
        radius: float,
        norm: Lp,
        cone: Cone | None,
        symmetries: np.ndarray | None = None,
    ) -> "_Model":
        gradient, curvature, p = here.gradient, here.curvature, norm.p
        pull = 0.0
        if cone is not None and cone.slack(x) <= _ON_SPHERE:
            pull = _pull(x, gradient, cone, norm, radius)
            if pull > 0:
                gradient = gradient + pull * cone.gradient(x)
                curvature = Curvature(np.eye(len(x)), curvature.dense() + pull * cone.hessian(x))
        pressure = float(-gradient @ x) / radius
        dual = float(norm.dual.values(gradient, 1))
        size = float(norm.values(x, 1))
        on_sphere = size >= radius * (1 - _ON_SPHERE) and pressure > 0
        normals = []
        if on_sphere:
            residual = _misalignment(x, gradient, radius, pressure / dual, p)
            share = np.abs(x / radius)
            with np.errstate(divide="ignore"):
                bend = pressure * (p - 1) / radius * share ** (p - 2)
            metric = np.maximum(bend, _LEAST_METRIC * np.mean(bend)) if p > 2 else bend
            scales, own = 1 / np.sqrt(metric), (bend / metric if p > 2 else np.ones(len(x)))
            normals.append(_mirror(x / radius, p))
        else:
            residual = dual * size
            scales, own = np.full(len(x), (size or radius) / 10), np.zeros(len(x))
        if cone is not None and pull > 0:
            normals.append(cone.gradient(x))
        if symmetries is not None:
            normals.extend(symmetries)
        raw = np.array(normals).reshape(-1, len(x))
        columns, triangle = np.linalg.qr((raw * scales).T)
        scaled = curvature.rows * scales
        if len(scaled) + len(raw) < len(x) and p <= 2:
            # across the rows and the normals the function is constant, the sphere round, and there is no slope
            frame = np.linalg.qr(np.concatenate([columns, scaled.T], axis=1))[0]
        else:
            frame = np.eye(len(x))
        scaled, basis = scaled @ frame, columns.T @ frame
        curved = scaled.T @ curvature.core @ scaled + (frame.T * own) @ frame
        curved = curved - basis.T @ (basis @ curved)
        curved = curved - (curved @ basis.T) @ basis
        # the normals' own directions get a large curvature, and no step goes along them
        top = float(np.abs(curved).sum(axis=1).max()) + 1.0
        values, vectors = np.linalg.eigh((curved + curved.T) / 2 + top * basis.T @ basis)
        vectors, basis = frame @ vectors, columns.T
        return cls(
            x,
            gradient,
            curvature,
            scales,
            raw,
            basis,
            triangle,
            values,
            vectors,
            radius,
            norm,
            cone,
            on_sphere,
            pressure,
            pull,
            residual,
        )

    @property
    def descends(self) -> bool:
        """Whether the function falls along a direction of negative curvature."""
        return bool(self.values[0] < -1e-9 * max(self.values[-1], 1.0))

    def step(self, trust: float) -> _Move:
        """The minimiser of the model in the trust region."""
        slope = self.gradient * self.scales
        slope = slope - self.basis.T @ (self.basis @ slope)
        slope = self.vectors.T @ slope
        floor = _GAUGE * max(float(np.abs(self.values).max()), _GAUGE)
        low = max(0.0, -float(self.values[0])) + floor

        def length(damping: float) -> float:
            return float(np.linalg.norm(slope / (self.values + damping)))

        damping = floor if self.values[0] > 0 else low
        if length(damping) > trust:
            left, right = np.log(damping), np.log(low + np.linalg.norm(slope) / trust + floor)
            for _ in range(60):
                middle = (left + right) / 2
                left, right = (middle, right) if length(np.exp(middle)) > trust else (left, middle)
            damping = float(np.exp(right))
        inner = -slope / (self.values + damping)
        if self.descends and np.linalg.norm(inner) < trust * 0.99:
            # no slope along the direction of negative curvature: go along it to the edge
            side = 1.0 if slope[0] <= 0 else -1.0
            rest = inner.copy()
            rest[0] = 0.0
            inner = rest
            inner[0] = side * np.sqrt(max(trust**2 - float(rest @ rest), 0.0))
        predicted = -float(slope @ inner + 0.5 * inner @ (self.values * inner))
        return _Move(self.scales * (self.vectors @ inner), damping, predicted, float(np.linalg.norm(inner)))

    def retract(self, move: _Move) -> np.ndarray:
        """The point that the step leads to, on the sphere where x is, and in the cone."""
        x, norm, p = self.x, self.norm, self.norm.p
        if not self.on_sphere or p >= 2:
            return _into(x + move.dx, self.radius, norm, self.cone, self.on_sphere)
        # Below 2 the mirror variable sign(w)|w|^(p−1) moves smoothly through zero, where w itself crawls. Its step
        # solves the same system, read without the division by the scales, which vanish there.
        force = self.curvature.times(move.dx) + self.gradient
        multipliers = np.linalg.solve(self.triangle, self.basis @ (force * self.scales))
        mirror = _mirror(x / self.radius, p) - (force - multipliers @ self.normals) / (
            self.pressure * (1 + move.damping)
        )
        return _into(_mirror(mirror, 1 + 1 / (p - 1)), self.radius, norm, self.cone, sphere=True)


def _misalignment(x: np.ndarray, gradient: np.ndarray, radius: float, correlation: float, p: float) -> float:
    if p != 2:
        return max(1 - correlation, 0.0)
    # half the squared distance of the unit vectors keeps the digits that 1 − correlation loses
    difference = x / radius + gradient / np.linalg.norm(gradient)
    return float(difference @ difference) / 2


def _mirror(x: np.ndarray, p: float) -> np.ndarray:
    """sign(x)|x|^(p−1)."""
    return np.sign(x) * np.abs(x) ** (p - 1)


def _pull(x: np.ndarray, gradient: np.ndarray, cone: Cone, norm: Lp, radius: float) -> float:
    """The multiplier of the cone beside that of the sphere; not positive where the function falls into the cone."""
    normals = np.stack([_mirror(x / radius, norm.p), cone.gradient(x)], axis=1)
    return float(np.linalg.lstsq(normals, -gradient, rcond=None)[0][1])


def _into(x: np.ndarray, radius: float, norm: Lp, cone: Cone | None, sphere: bool = False) -> np.ndarray:
    if cone is not None and cone.slack(x) < 0:
        x = cone.restore(x)
        if not x.any():  # the vertex
            return x
    return _onto(x, radius, norm) if sphere or norm.values(x, 1) > radius else x


def _onto(x: np.ndarray, radius: float, norm: Lp) -> np.ndarray:
    return x * (radius / float(norm.values(x, 1)))
