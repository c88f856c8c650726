r"""Douglas-Rachford splitting in graph form: one prox and one product with (I + AA*)⁻¹ a step.

With y for A(W), the problem is to minimise N(W) + [y ≥ b] over the graph y = A(W). One step is

    Ŵ = prox of N at z_W, ŷ = the nearest point to z_y that is at least b,
    (W, y) = the projection of (2Ŵ − z_W, 2ŷ − z_y) on the graph,  z ← z + α ((W, y) − (Ŵ, ŷ)),

and λ = ρ (ŷ − z_y) are multipliers, where 1/ρ is the step of the prox. The steps are accelerated by Anderson's method.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dposv, dpotrf, dpotri

from attsvm._utils.shapes import Float
from attsvm.svm.loop import Report, Stop
from attsvm.svm.methods.generic.problems import Bounds, Improvement, Matrix, Program, Vector

STOP = Stop(target=0.0, max_steps=20_000, patience=150, small=math.inf, stride=10)

MEMORY = 10
"""Differences that the acceleration uses."""

ADAPT, ADAPTED_UNTIL = 40, 2000
"""Steps between two changes of ρ, and after which it is kept, so that the iteration converges."""


def douglas_rachford(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``, and return the number of steps.

    ``program``: with a value of about 1. ``bounds``: their weights and multipliers are the initial point. ``report``:
    called as ``report(step, gap)``; a true return value ends the iteration.

    References: Parikh and Boyd (2014), *Block splitting for distributed optimization*, for the graph form. Zhang,
    O'Donoghue and Boyd (2020), *Globally convergent type-I Anderson acceleration for nonsmooth fixed-point iterations*,
    for the safeguard.
    """
    splitting = _Splitting(program, bounds)
    steps = splitting.run(STOP._replace(target=target, max_steps=min(max_steps, STOP.max_steps)), report)
    bounds.see_multipliers(splitting.multipliers)
    return steps


class _SplittingPoint(NamedTuple):
    """z, and what one step computes from it: Ŵ and ŷ, their projection on the graph, and the difference of the two."""

    z: Float[np.ndarray, " size"]
    shrunk: Matrix
    raised: Vector
    weights: Matrix
    residual: Float[np.ndarray, " size"]
    length: float


class _Splitting(Improvement):
    """The iteration: z and what belongs to it."""

    def __init__(self, program: Program, bounds: Bounds) -> None:
        self.program, self.bounds = program, bounds
        self.split = math.prod(program.shape)
        # (I + AA*)⁻¹, for the projection on the graph y = A(W)
        matrix = program.gram.copy()
        matrix[np.diag_indices(len(matrix))] += 1.0
        factor, _ = dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
        self.inverse, _ = dpotri(factor, lower=True, overwrite_c=True)  # its lower triangle
        pulled = program.adjoint(bounds.multipliers)
        self.rho = float(np.linalg.norm(pulled) / np.linalg.norm(bounds.weights)) or 1.0
        self.point = self.at(self.start(bounds.weights, bounds.multipliers))
        self.anderson = Anderson(len(self.point.z), MEMORY)
        self.steps = 0

    @property
    def multipliers(self) -> Vector:
        return np.asarray(self.rho * (self.point.raised - self.point.z[self.split :]))

    def see(self) -> bool:
        self.bounds.see(self.point.shrunk, self.multipliers)
        return math.isfinite(self.point.length)  # the prox may be that of a user

    def advance(self) -> None:
        """Make the accelerated step, or the plain one if the residual would grow."""
        if self.steps and self.steps % ADAPT == 0 and self.steps < ADAPTED_UNTIL:
            self.adapt()
        point, move = self.point, 1.6 * self.point.residual  # α
        further = self.anderson.extrapolated(point.z, move)
        tried = None if further is None else self.at(further)
        # the residual of the plain iteration never grows
        self.point = self.at(point.z + move) if tried is None or tried.length > point.length else tried
        self.steps += 1

    def start(self, weights: Matrix, multipliers: Vector) -> np.ndarray:
        """Return the z at which these weights and multipliers would be a fixed point, if they were optimal."""
        # z_W − Ŵ = A*(λ)/ρ is a subgradient of N over ρ, and ŷ − z_y = λ/ρ
        image = self._raised(self.program.apply(weights))
        moved = weights + self.program.adjoint(multipliers) / self.rho
        return np.concatenate([moved.ravel(), image - multipliers / self.rho])

    def at(self, z: np.ndarray) -> _SplittingPoint:
        """Make one step from z."""
        program = self.program
        moved, image = z[: self.split].reshape(program.shape), z[self.split :]
        shrunk, raised = program.norm.prox(moved, 1 / self.rho), self._raised(image)
        # the projection of the reflections: W = mirrored + A*(change) with (I + AA*) change = goal − A(mirrored)
        mirrored, goal = 2 * shrunk - moved, 2 * raised - image
        change = dsymv(1.0, self.inverse, goal - program.apply(mirrored), lower=True)
        weights = mirrored + program.adjoint(change)
        residual = np.concatenate([(weights - shrunk).ravel(), goal - change - raised])
        return _SplittingPoint(z, shrunk, raised, weights, residual, float(np.linalg.norm(residual)))

    def adapt(self) -> None:
        """Change ρ if the primal and the dual residual differ five times or more."""
        point, pulled = self.point, self.program.adjoint(self.multipliers)
        # a subgradient at Ŵ; at the optimum it is A*(λ)
        subgradient = self.rho * (point.z[: self.split].reshape(pulled.shape) - point.shrunk)
        primal = np.linalg.norm(point.weights - point.shrunk) * np.linalg.norm(pulled)
        dual = np.linalg.norm(subgradient - pulled) * np.linalg.norm(point.shrunk)
        if primal > 5 * dual or dual > 5 * primal:
            former = self.rho
            with np.errstate(divide="ignore"):
                self.rho *= float(np.clip(np.sqrt(primal / dual), 1 / 5, 5))
            self.anderson.forget()
            # z − (Ŵ, ŷ) are multipliers over ρ: the z with the same weights and multipliers
            hat = np.concatenate([point.shrunk.ravel(), point.raised])
            self.point = self.at(hat + (point.z - hat) * (former / self.rho))

    def _raised(self, image: Vector) -> Vector:
        return np.where(self.program.equality, 0.0, np.maximum(image, self.program.right))


class Anderson:
    """Anderson acceleration of z ← z + f(z): the last differences of z and f, and the point they extrapolate to.

    ``size``: length of z. ``memory``: how many differences are kept.

    References: Walker and Ni (2011), *Anderson acceleration for fixed-point iterations*, type II.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._points, self._steps = np.empty((2, memory, size))
        self._count = 0
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def forget(self) -> None:
        """Drop all differences: f has changed."""
        self._count, self._last = 0, None

    def extrapolated(
        self, point: Float[np.ndarray, " size"], step: Float[np.ndarray, " size"]
    ) -> Float[np.ndarray, " size"] | None:
        """Remember z and f(z), and return the extrapolated point; None while there are too few differences."""
        if self._last is not None:
            place = self._count % len(self._points)
            np.subtract(point, self._last[0], out=self._points[place])
            np.subtract(step, self._last[1], out=self._steps[place])
            self._count += 1
        self._last = point, step
        kept = min(self._count, len(self._points))
        if kept < 2:
            return None
        points, steps = self._points[:kept], self._steps[:kept]
        # the w with the least ‖f − Σ w_j Δf_j‖ extrapolate to z + f − Σ w_j (Δz_j + Δf_j)
        products = steps @ steps.T
        products[np.diag_indices(kept)] += 1e-12 * np.trace(products)
        _, weights, failed = dposv(products, steps @ step)
        if failed:
            return None
        return np.asarray(point + step - weights @ points - weights @ steps)
