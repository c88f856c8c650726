"""Minimise a smooth function over an ℓp ball, and inside a cone: a trust-region Newton method on the sphere.

The function is a log-sum-exp of margins times the radius, so it is badly scaled but smooth. A Hessian is cheap at the
sizes for which paths are computed, and no first-order method reaches eight digits at a radius of 1e4 margins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from attsvm._utils.threads import threads_for
from attsvm.norms import Lp
from attsvm.svm import PrimalIteration


class Curvature(NamedTuple):
    """A Hessian as J' C J."""

    rows: np.ndarray  # J, shape (m, d)
    core: np.ndarray  # C, shape (m, m)

    def dense(self) -> np.ndarray:
        return np.asarray(self.rows.T @ self.core @ self.rows)

    def times(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows.T @ (self.core @ (self.rows @ x)))


class Expansion(NamedTuple):
    """Value, gradient and Hessian of a function of d numbers."""

    value: float
    gradient: np.ndarray  # (d,)
    curvature: Curvature


class SmoothFunction(Protocol):
    """A function of d numbers to be minimised."""

    def value(self, x: np.ndarray) -> float:
        """The value; −∞ where it can only be computed after rebasing."""

    def expand(self, x: np.ndarray) -> Expansion:
        """Value and derivatives, where the value is finite."""

    def rebased(self, x: np.ndarray) -> Self:
        """Transform the function monotonically, for the most accurate digits around x."""


class SmoothCone(Protocol):
    """A smooth scale-free constraint k(x) ≤ 0."""

    def slack(self, x: np.ndarray) -> float:
        """How far x is inside; negative outside. Equal for all multiples of x."""

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient of k; orthogonal to x."""

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """The Hessian of k."""

    def restore(self, x: np.ndarray) -> np.ndarray:
        """A point with k = 0 near an x outside the cone; zero where it is the vertex."""


@dataclass(frozen=True)
class CircularCone:
    """correlation(W, D) ≥ c, as c ‖W‖ − ⟨W, D⟩ ≤ 0 for ‖D‖ = 1."""

    axis: np.ndarray  # D, flat
    correlation: float

    def slack(self, x: np.ndarray) -> float:
        """The correlation with the axis minus c; 0 at the vertex."""
        if not x.any():
            return 0.0
        return float(x @ self.axis / np.linalg.norm(x)) - self.correlation

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.correlation * x / np.linalg.norm(x) - self.axis)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(x)
        unit = x / length
        return self.correlation / length * (np.eye(len(x)) - np.outer(unit, unit))

    def restore(self, x: np.ndarray) -> np.ndarray:
        """The point of the cone that is nearest to an x outside; zero where it is the vertex."""
        along = x @ self.axis
        across = x - along * self.axis
        length, c = np.linalg.norm(across), self.correlation
        s = np.sqrt(1 - c * c)
        reach = along * c + length * s
        return np.asarray(max(reach, 0.0) * (c * self.axis + s * across / length))

    def steepest(self, gradient: np.ndarray) -> float:
        """The fastest decrease from the vertex into the cone, per unit of length, for this gradient."""
        along = -gradient @ self.axis
        across = np.sqrt(max(gradient @ gradient - along * along, 0.0))
        angle = np.arctan2(across, along) - np.arccos(self.correlation)
        return float(np.hypot(along, across) * np.cos(min(max(angle, 0.0), np.pi)))


# where |w|^(p−2) vanishes (p > 2), the metric of the trust region is at least this part of its mean
_LEAST_METRIC = 1e-3
_ON_SPHERE = 1e-12  # part of the radius within which x is on the sphere, and slack within which it is on the cone
_ROUNDING = 1e-13  # a difference of values below this part of them is rounding
_VERTEX = 1e-6  # part of the start's length below which the vertex of the cone is tried
_SHORTEST = 1e-12  # a smaller trust region moves nothing beyond rounding
# relative damping, so that rounding does not move x along directions in which the function is constant
_GAUGE = 1e-11


class Minimum(NamedTuple):
    """Where a minimisation ended."""

    x: np.ndarray  # shape (d,)
    residual: float  # how far x is from stationary
    pull: float = 0.0  # the multiplier of the cone


def minimise(
    objective: SmoothFunction,
    start: np.ndarray,
    radius: float,
    p: float = 2.0,
    *,
    cone: SmoothCone | None = None,
    symmetries: Callable[[np.ndarray], np.ndarray] | None = None,
    tol: float = 1e-15,
    max_steps: int = 200,
) -> Minimum:
    """Find a local minimum of a function over ‖x‖_p ≤ radius, and inside a cone if one is given.

    ``start``: shape (d,), it is first moved into the ball and the cone. ``p``: 1 < p < ∞. ``symmetries``: maps x to
    directions (k, d) along which the function, the norm and the cone are constant. No step is made along them. ``tol``:
    tolerance of the residual: 1 − ⟨−g, x⟩/(radius ‖g‖_q) on the sphere, ‖x‖ ‖g‖_q inside the ball.
    """
    with threads_for(start.size**3):  # eigenvectors
        search = _TrustRegion(objective, start, _Region(radius, Lp(p), cone), symmetries)
        # the last iterate is the lowest one, so that it is the result whatever its residual
        search.run(search.x[None], tol, max_steps)
        return search.minimum


class _TrustRegion(PrimalIteration):
    """Steps on or inside the sphere, and the radius of the trust region for the next one."""

    def __init__(
        self,
        objective: SmoothFunction,
        start: np.ndarray,
        region: "_Region",
        symmetries: Callable[[np.ndarray], np.ndarray] | None,
    ) -> None:
        self.region, self.symmetries, self.trust = region, symmetries, 10.0
        self.vertex = _VERTEX * float(np.linalg.norm(start))
        self.x = region.project(start)
        self.objective = objective.rebased(self.x)
        self.here = self.objective.expand(self.x)
        # if the gradient or its length underflows to zero, there is no direction of descent
        self.minimum, self.ended = Minimum(self.x, np.inf), not np.linalg.norm(self.here.gradient) > 0
        if not self.ended:
            self._expand_model()

    def _expand_model(self) -> None:
        symmetries = None if self.symmetries is None else self.symmetries(self.x)
        self.model = _SphereModel.at(self.x, self.here, self.region, symmetries)
        self.minimum = Minimum(self.x, self.model.residual, self.model.lagrangian.pull)

    def measure(self) -> tuple[np.ndarray, np.ndarray, bool]:
        # at a saddle the search goes on
        gap = np.inf if self.ended or self.model.descends else self.minimum.residual
        return self.x[None], np.array([gap]), not self.ended and self.trust >= _SHORTEST

    def advance(self) -> None:
        model, objective, value_here = self.model, self.objective, self.here.value
        move = model.step(self.trust)
        trial = model.retract(move)
        value = objective.value(trial)
        if self.region.cone is not None and np.linalg.norm(trial) <= self.vertex:
            # without this test the steps would shrink towards the vertex without end
            if objective.value(np.zeros_like(trial)) <= value_here:
                self.minimum, self.ended = Minimum(np.zeros_like(trial), 0.0), True
                return
            value = np.inf if not trial.any() else value
        # actual over predicted decrease, which is 1 where both are rounding
        rounding, gain = _ROUNDING * (1 + abs(value_here)), value_here - value
        within = abs(gain) <= rounding and move.predicted <= 10 * rounding
        ratio = 1.0 if within else gain / max(move.predicted, 1e-300)
        if within and model.residual <= 1e-10 and not model.descends:
            following = _SphereModel.at(trial, objective.expand(trial), self.region)
            if following.residual >= model.residual:
                self.ended = True
                return
        if ratio < 0.25:
            self.trust = min(self.trust, move.length) / 4
        elif ratio > 0.75:
            self.trust = max(self.trust, 3 * move.length)
        if ratio > 1e-4:
            self.x, self.objective = trial, objective.rebased(trial)
            self.here = self.objective.expand(trial)
            self._expand_model()


@dataclass(frozen=True)
class _Region:
    """‖x‖_p ≤ radius, inside a cone if there is one."""

    radius: float
    norm: Lp
    cone: SmoothCone | None

    def project(self, x: np.ndarray, to_sphere: bool = False) -> np.ndarray:
        """A point of the region near x, on the sphere if asked for; zero where it is the vertex of the cone."""
        if self.cone is not None and self.cone.slack(x) < 0:
            x = self.cone.restore(x)
            if not x.any():
                return x
        outside = to_sphere or self.norm.values(x, 1) > self.radius
        return x * (self.radius / float(self.norm.values(x, 1))) if outside else x


@dataclass(frozen=True)
class _Lagrangian:
    """The function with the cone's multiplier, and how far x is from stationary."""

    gradient: np.ndarray
    curvature: Curvature
    pressure: float  # multiplier of the sphere
    pull: float  # multiplier of the cone
    on_sphere: bool
    residual: float

    @classmethod
    def at(cls, x: np.ndarray, here: Expansion, region: _Region) -> "_Lagrangian":
        radius, norm, cone = region.radius, region.norm, region.cone
        gradient, curvature = here.gradient, here.curvature
        pull = 0.0
        if cone is not None and cone.slack(x) <= _ON_SPHERE:
            pull = _pull(x, gradient, cone, norm, radius)
            if pull > 0:
                gradient = gradient + pull * cone.gradient(x)
                curvature = Curvature(np.eye(len(x)), curvature.dense() + pull * cone.hessian(x))
        # ∇F + pull ∇k + pressure · normal = 0, the normal of the sphere of length 1 in the dual norm
        pressure = float(-gradient @ x) / radius
        dual = float(norm.dual.values(gradient, 1))
        size = float(norm.values(x, 1))
        on_sphere = size >= radius * (1 - _ON_SPHERE) and pressure > 0
        residual = _misalignment(x, gradient, radius, pressure / dual, norm.p) if on_sphere else dual * size
        return cls(gradient, curvature, pressure, pull, on_sphere, residual)

    def metric(self, x: np.ndarray, region: _Region) -> tuple[np.ndarray, np.ndarray]:
        """Scales of the trust region, and the diagonal that the sphere adds to the Hessian in these scales."""
        if not self.on_sphere:
            size = float(region.norm.values(x, 1))
            return np.full(len(x), (size or region.radius) / 10), np.zeros(len(x))
        p = region.norm.p
        share = np.abs(x / region.radius)
        with np.errstate(divide="ignore"):
            bend = self.pressure * (p - 1) / region.radius * share ** (p - 2)
        metric = np.maximum(bend, _LEAST_METRIC * np.mean(bend)) if p > 2 else bend
        return 1 / np.sqrt(metric), (bend / metric if p > 2 else np.ones(len(x)))

    def normals(self, x: np.ndarray, region: _Region, symmetries: np.ndarray | None) -> np.ndarray:
        """Normals of the active constraints and the symmetries, shape (k, d)."""
        normals = [_mirror(x / region.radius, region.norm.p)] if self.on_sphere else []
        if region.cone is not None and self.pull > 0:
            normals.append(region.cone.gradient(x))
        if symmetries is not None:
            normals.extend(symmetries)
        return np.array(normals).reshape(-1, len(x))


class _Move(NamedTuple):
    dx: np.ndarray
    damping: float
    predicted: float
    length: float


@dataclass(frozen=True)
class _SphereModel:
    """The quadratic model around x, on the sphere or inside the ball, on the cone or inside it."""

    x: np.ndarray
    region: _Region
    lagrangian: _Lagrangian
    scales: np.ndarray  # x moves by scales times the variable of the trust region
    normals: np.ndarray  # (k, d), of the active constraints
    basis: np.ndarray  # (k, d), orthonormal, of the scaled normals
    triangle: np.ndarray  # (k, k) with scaled normals = triangle' basis
    values: np.ndarray  # (r,), eigenvalues of the Lagrangian's Hessian orthogonal to the normals
    vectors: np.ndarray  # (d, r)

    @classmethod
    def at(
        cls, x: np.ndarray, here: Expansion, region: _Region, symmetries: np.ndarray | None = None
    ) -> "_SphereModel":
        lagrangian = _Lagrangian.at(x, here, region)
        scales, own = lagrangian.metric(x, region)
        normals = lagrangian.normals(x, region, symmetries)
        columns, triangle = np.linalg.qr((normals * scales).T)
        curvature = lagrangian.curvature
        scaled = curvature.rows * scales
        if len(scaled) + len(normals) < len(x) and region.norm.p <= 2:
            # orthogonal to the rows and normals the function is constant, the sphere is round, and the slope is zero
            frame = np.linalg.qr(np.concatenate([columns, scaled.T], axis=1))[0]
        else:
            frame = np.eye(len(x))
        scaled, basis = scaled @ frame, columns.T @ frame
        curved = scaled.T @ curvature.core @ scaled + (frame.T * own) @ frame
        curved = curved - basis.T @ (basis @ curved)
        curved = curved - (curved @ basis.T) @ basis
        # a large curvature along the normals, so that no step goes along them
        top = float(np.abs(curved).sum(axis=1).max()) + 1.0
        values, vectors = np.linalg.eigh((curved + curved.T) / 2 + top * basis.T @ basis)
        return cls(x, region, lagrangian, scales, normals, columns.T, triangle, values, frame @ vectors)

    @property
    def residual(self) -> float:
        """How far x is from stationary."""
        return self.lagrangian.residual

    @property
    def descends(self) -> bool:
        """Whether there is a direction of negative curvature."""
        return bool(self.values[0] < -1e-9 * max(self.values[-1], 1.0))

    def step(self, trust: float) -> _Move:
        """The minimiser of the model in the trust region."""
        slope = self.lagrangian.gradient * self.scales
        slope = slope - self.basis.T @ (self.basis @ slope)
        slope = self.vectors.T @ slope
        floor = _GAUGE * max(float(np.abs(self.values).max()), _GAUGE)
        low = max(0.0, -float(self.values[0])) + floor

        def length(damping: float) -> float:
            return float(np.linalg.norm(slope / (self.values + damping)))

        # (H + damping) s = −g with ‖s‖ = trust, by bisection in the logarithm of the damping
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
        """The point after a step: on the sphere if x is, and in the cone."""
        x, region, p = self.x, self.region, self.region.norm.p
        own = self.lagrangian
        if not own.on_sphere or p >= 2:
            return region.project(x + move.dx, to_sphere=own.on_sphere)
        # Below 2 the mirror variable sign(w)|w|^(p−1) moves smoothly through zero, where w itself moves slowly. Its
        # step solves the same system, without the division by the scales, which vanish there.
        force = own.curvature.times(move.dx) + own.gradient
        multipliers = np.linalg.solve(self.triangle, self.basis @ (force * self.scales))
        mirror = _mirror(x / region.radius, p) - (force - multipliers @ self.normals) / (
            own.pressure * (1 + move.damping)
        )
        return region.project(_mirror(mirror, 1 + 1 / (p - 1)), to_sphere=True)


def _misalignment(x: np.ndarray, gradient: np.ndarray, radius: float, correlation: float, p: float) -> float:
    if p != 2:
        return max(1 - correlation, 0.0)
    # half the squared distance of the unit vectors keeps the digits that 1 − correlation loses
    difference = x / radius + gradient / np.linalg.norm(gradient)
    return float(difference @ difference) / 2


def _mirror(x: np.ndarray, p: float) -> np.ndarray:
    """Compute sign(x)|x|^(p−1) entry by entry."""
    return np.asarray(np.sign(x) * np.abs(x) ** (p - 1))


def _pull(x: np.ndarray, gradient: np.ndarray, cone: SmoothCone, norm: Lp, radius: float) -> float:
    """The multiplier of the cone beside that of the sphere; not positive where the function decreases into the cone."""
    normals = np.stack([_mirror(x / radius, norm.p), cone.gradient(x)], axis=1)
    return float(np.linalg.lstsq(normals, -gradient, rcond=None)[0][1])
