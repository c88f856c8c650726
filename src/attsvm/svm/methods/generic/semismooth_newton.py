r"""Proximal points, each by a semismooth Newton method on its dual.

The proximal point of a center V minimises N(W) + ‖W − V‖²/(2σ) under the constraints. Its dual is to maximise

    θ(λ) = b'λ + N(W) + ‖W − V‖²/(2σ) − ⟨A*(λ), W⟩,   W = prox of σN at V + σA*(λ),

over multipliers that are not negative where they belong to inequalities. θ is smooth with the gradient b − A(W), and
the Jacobian of the gradient is −σ A J A*, with the derivative J of the prox. Differences of the prox along the rows
give it, all of them in one call. A step maximises the quadratic model of θ under the signs of the multipliers.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.loop import Report
from attsvm.svm.methods.generic.polish import polish
from attsvm.svm.methods.generic.program import Bounds, Matrix, Program, Vector
from attsvm.svm.methods.generic.quadratic import least_quadratic

CENTERS = 60
"""Largest number of proximal points."""

MAX_STEPS = 400
"""Largest number of Newton steps in all of them."""

MOST_PROXES = 30_000
"""Largest number of proxes for the matrices of the Newton steps."""

PATIENCE = 8
"""Proximal points in which the gap has to halve."""

STEPS_PER_CENTER = 60
HALVINGS = 20
FAILURES = 6

MOST_FREE = 1500
"""Largest number of multipliers that a step changes by Newton's equations."""

BLOCK = 200_000
"""Numbers in the matrices whose prox is computed in one call: they fit in a cache."""

DIFFERENCE = 1e-7
"""Length of a difference, relative to the argument of the prox."""

EPS = float(np.finfo(float).eps)

ACCEPTED = 1e-4
"""A step has to increase θ by this part of what the gradient promises."""


def semismooth_newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``; the number of Newton steps.

    ``program``: with a value of about 1. ``bounds``: their weights and multipliers are the initial point. ``report``:
    called as ``report(step, gap)``; a true return value ends the iteration.

    References: Rockafellar (1976), *Augmented Lagrangians and applications of the proximal point algorithm in convex
    programming*. Li, Sun and Toh (2018), *A highly efficient semismooth Newton augmented Lagrangian method for solving
    lasso problems*.
    """
    limit = min(max_steps, MAX_STEPS)
    pulled = program.adjoint(bounds.multipliers)
    first = sigma = 2 * float(np.linalg.norm(bounds.weights) / (np.linalg.norm(pulled) or 1.0))
    center, multipliers, accuracy, steps = bounds.weights, bounds.multipliers, 1e-2, 0
    halved, waited = bounds.gap, 0
    if report(0, bounds.gap):
        return 0
    proximal = _ProximalPoint(program)

    def spent() -> bool:
        return steps >= limit or proximal.proxes >= MOST_PROXES

    for _ in range(CENTERS):
        proximal.center, proximal.sigma = center, sigma
        point = proximal.at(multipliers)
        damping, failures = 1.0, 0
        for _ in range(STEPS_PER_CENTER):
            if proximal.error(point) <= max(accuracy, proximal.rounding(point)) or spent():
                break
            better, length = proximal.step(point, damping)
            steps += 1
            if better is None:
                damping, failures = 100 * damping, failures + 1
                if failures > FAILURES:
                    break
                continue
            damping = max(damping / 10, 1e-6) if length == 1 else damping * (10 if length < 0.1 else 1)
            point = better
            if report(steps, bounds.gap):
                bounds.see(point.weights, point.multipliers)
                return steps
        gap = bounds.see(point.weights, point.multipliers)
        waited = 0 if gap <= 0.5 * halved else waited + 1
        halved = gap if waited == 0 else halved
        if gap <= target or spent() or waited == PATIENCE:
            break
        center, multipliers = point.weights, point.multipliers
        if proximal.error(point) <= accuracy:
            sigma = min(3 * sigma, 1e6 * first)
            accuracy = max(min(0.1 * accuracy, 0.05 * gap), 0.02 * target)
        elif sigma > 1e-8 * first:
            sigma /= 3 if proximal.error(point) <= proximal.rounding(point) else 10
    return steps + polish(program, bounds, target, limit - steps, lambda step, gap: report(steps + step, gap))


class _Point(NamedTuple):
    """Multipliers, θ and its gradient, the prox and its argument."""

    multipliers: Vector
    value: float
    gradient: Vector
    weights: Matrix
    argument: Matrix


class _ProximalPoint:
    """The dual of one proximal point.

    ``proxes``: those that were computed for the matrices of the steps.
    """

    center: Matrix  # V
    sigma: float

    def __init__(self, program: Program) -> None:
        self.program, self.proxes = program, 0
        self.largest = float(program.right.max())

    def at(self, multipliers: Vector) -> _Point:
        """Compute θ and its gradient."""
        program, sigma = self.program, self.sigma
        pulled = program.adjoint(multipliers)
        argument = self.center + sigma * pulled
        weights = program.norm.prox(argument, sigma)
        away = weights - self.center
        value = program.right @ multipliers + program.value(weights)
        value += float((away * away).sum()) / (2 * sigma) - float((pulled * weights).sum())
        return _Point(multipliers, float(value), program.right - program.apply(weights), weights, argument)

    def error(self, point: _Point) -> float:
        """The largest part of the gradient that the signs of the multipliers allow to follow."""
        return float(np.abs(np.where(self._held(point), 0.0, point.gradient)).max()) / self.largest

    def rounding(self, point: _Point) -> float:
        """How far rounding may change the error: the argument of the prox is a sum of σλ times unit rows."""
        return 8 * EPS * self.sigma * float(np.abs(point.multipliers).sum()) / self.largest

    def _held(self, point: _Point) -> Bool[np.ndarray, " m"]:
        """Multipliers that are 0 and stay there."""
        return ~self.program.equality & (point.multipliers <= 0) & (point.gradient <= 0)

    def step(self, point: _Point, damping: float) -> tuple[_Point | None, float]:
        """The point after a damped Newton step and the length of the step; None if no length was acceptable."""
        program, gradient, multipliers = self.program, point.gradient, point.multipliers
        free = np.flatnonzero(~self._held(point))
        if len(free) > MOST_FREE:
            free = free[np.argsort(-np.abs(gradient[free]) - 10 * np.abs(multipliers[free]))[:MOST_FREE]]
        matrix = self._jacobian(point, free)
        ridge = 1e-3 * min(1e-3, self.error(point)) * damping + 1e-10
        matrix[np.diag_indices(len(free))] += ridge * self.sigma
        if not np.isfinite(matrix).all():  # the prox may be that of a user
            return None, 0.0
        solved = least_quadratic(matrix, gradient[free] + matrix @ multipliers[free], program.equality[free])
        if solved is None:
            return None, 0.0
        step = np.zeros(len(multipliers))
        step[free] = solved - multipliers[free]
        error, length = self.error(point), 1.0
        for _ in range(HALVINGS):
            found = self.at(program.feasible(multipliers + length * step))
            promised = ACCEPTED * (gradient @ (found.multipliers - multipliers)) - 1e-14 * abs(point.value)
            if found.value >= point.value + promised or self.error(found) < 0.9 * error:
                return found, length
            length *= 0.5
        return None, 0.0

    def _jacobian(self, point: _Point, free: Int[np.ndarray, " free"]) -> Float[np.ndarray, "free free"]:
        """σ A J A* among the free rows."""
        program = self.program
        length = DIFFERENCE * float(np.linalg.norm(point.argument))
        matrix = np.empty((len(free), len(free)))
        block = max(1, BLOCK // point.argument.size)
        for first in range(0, len(free), block):
            moved = program.row_matrices(free[first : first + block])
            moved *= length
            moved += point.argument
            moved = program.norm.proxes(moved, self.sigma)
            moved -= point.weights
            matrix[first : first + block] = program.apply_to_each(moved)[:, free]
        matrix /= length
        self.proxes += len(free)
        return np.asarray((0.5 * self.sigma) * (matrix + matrix.T))
