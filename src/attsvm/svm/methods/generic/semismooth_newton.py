r"""Proximal points, each by a semismooth Newton method on its dual.

The proximal point of a center V minimises N(W) + ‖W − V‖²/(2σ) under the constraints. Its dual is to maximise

    θ(λ) = b'λ + N(W) + ‖W − V‖²/(2σ) − ⟨A*(λ), W⟩,   W = prox of σN at V + σA*(λ),

over multipliers that are not negative where they belong to inequalities. θ is smooth with the gradient b − A(W), and
the Jacobian of the gradient is −σ A J A*, with the derivative J of the prox. Differences of the prox along the rows
give it, all of them in one call. A step maximises the quadratic model of θ under the signs of the multipliers.

At the optimum W = prox of σN at W + σA*(λ) for every σ, A(W) = b where λ > 0, and λ = 0 elsewhere. Proximal points
approach it slowly where N(W) hardly grows, and their weights have the rounding errors of σA*(λ), which grow with σ.
Newton steps solve these equations in W and λ together, which have neither fault, but an unknown for each entry of W.
"""

import math
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.constraints.constraints import MOST_UNKNOWNS
from attsvm.svm.loop import Report, Stop, Watch
from attsvm.svm.methods.frobenius.pivoting import least_quadratic
from attsvm.svm.methods.generic.problems import (
    DIFFERENCE,
    Bounds,
    Improvement,
    Matrix,
    Program,
    Vector,
    slope_of_prox,
)
from attsvm.svm.methods.registry import CACHED

STOP = Stop(target=0.0, max_steps=400, patience=60, small=math.inf)

POLISH = Stop(target=0.0, max_steps=12, patience=3, small=math.inf)

MOST_PROXES = 30_000
"""Largest number of proxes for the matrices of the Newton steps."""

MOST_STEPS = 30
"""Newton steps for one proximal point. With a smaller σ, which is better conditioned, fewer are needed."""


def semismooth_newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``, and return the number of Newton steps.

    ``program``: with a value of about 1. ``bounds``: their weights and multipliers are the initial point. ``report``:
    called as ``report(step, gap)``; a true return value ends the iteration.

    References: Rockafellar (1976), *Augmented Lagrangians and applications of the proximal point algorithm in convex
    programming*. Li, Sun and Toh (2018), *A highly efficient semismooth Newton augmented Lagrangian method for solving
    lasso problems*.
    """
    watch = Watch(report)
    limit = min(max_steps, STOP.max_steps)
    proximal = _ProximalPoints(program, bounds, target)
    steps = proximal.run(STOP._replace(target=target, max_steps=limit), watch)
    proximal.see_point()
    if watch.stopped or bounds.gap <= target or sum(map(np.size, (bounds.weights, bounds.multipliers))) > MOST_UNKNOWNS:
        return steps
    most = min(limit - steps, POLISH.max_steps)
    return steps + _ProxEquations(program, bounds).run(POLISH._replace(target=target, max_steps=most), watch)


class _DualPoint(NamedTuple):
    """Multipliers, θ and its gradient, the prox and its argument."""

    multipliers: Vector
    value: float
    gradient: Vector
    weights: Matrix
    argument: Matrix


class _ProximalPoints(Improvement):
    """Proximal points one after the other, each approached by Newton steps on its dual."""

    def __init__(self, program: Program, bounds: Bounds, target: float) -> None:
        self.program, self.bounds, self.target, self.proxes = program, bounds, target, 0
        self.largest = float(program.right.max())
        # V and λ of one size: an argument V + σA*(λ) whose parts are comparable
        pulled = program.adjoint(bounds.multipliers)
        self.first = self.sigma = 2 * float(np.linalg.norm(bounds.weights) / (np.linalg.norm(pulled) or 1.0))
        self.center = bounds.weights  # V
        self.accuracy, self.damping, self.failures, self.steps = 1e-2, 1.0, 0, 0
        self.point = self.at(bounds.multipliers)

    def see(self) -> bool:
        """Improve the bounds by an inexact proximal point, and go on to the next one."""
        if self._finished():
            gap = self.see_point()
            if gap > self.target:
                self._recenter(gap)
        return self.proxes < MOST_PROXES

    def see_point(self) -> float:
        """Improve the bounds by the current point, and return their gap."""
        return self.bounds.see(self.point.weights, self.point.multipliers)

    def advance(self) -> None:
        """Make one Newton step, or none if the point is a proximal point already."""
        if self._finished():
            return
        self.steps += 1
        better, length = self.step(self.point, self.damping)
        if better is None:
            self.damping, self.failures = 100 * self.damping, self.failures + 1
        else:
            growth = 10 if length < 0.1 else 1
            self.damping = max(self.damping / 10, 1e-6) if length == 1 else self.damping * growth
            self.point = better

    def _finished(self) -> bool:
        """Return whether the gradient of θ is small, or steps do not make it small."""
        small = max(self.accuracy, self.rounding(self.point))
        return not self.error(self.point) > small or self.failures > 6 or self.steps >= MOST_STEPS

    def _recenter(self, gap: float) -> None:
        """Make the prox the next center. A larger σ converges faster, a smaller one is better conditioned."""
        point, error = self.point, self.error(self.point)
        if error <= self.accuracy:
            self.sigma = min(3 * self.sigma, 1e6 * self.first)
            self.accuracy = max(min(0.1 * self.accuracy, 0.05 * gap), 0.02 * self.target)
        elif self.sigma > 1e-8 * self.first:
            self.sigma /= 3 if error <= self.rounding(point) else 10
        self.center, self.damping, self.failures, self.steps = point.weights, 1.0, 0, 0
        self.point = self.at(point.multipliers)

    def at(self, multipliers: Vector) -> _DualPoint:
        program, sigma = self.program, self.sigma
        pulled = program.adjoint(multipliers)
        argument = self.center + sigma * pulled
        weights = program.norm.prox(argument, sigma)
        away = weights - self.center
        value = program.right @ multipliers + program.value(weights)
        value += float((away * away).sum()) / (2 * sigma) - float((pulled * weights).sum())
        return _DualPoint(multipliers, float(value), program.right - program.apply(weights), weights, argument)

    def error(self, point: _DualPoint) -> float:
        """Return the largest part of the gradient that the signs of the multipliers allow to follow."""
        return float(np.abs(np.where(self._held(point), 0.0, point.gradient)).max()) / self.largest

    def rounding(self, point: _DualPoint) -> float:
        """Return how far rounding may change the error: the argument of the prox is a sum of σλ times unit rows."""
        return 8 * np.finfo(float).eps * self.sigma * float(np.abs(point.multipliers).sum()) / self.largest

    def _held(self, point: _DualPoint) -> Bool[np.ndarray, " m"]:
        """Return where multipliers are 0 and stay there."""
        return ~self.program.equality & (point.multipliers <= 0) & (point.gradient <= 0)

    def step(self, point: _DualPoint, damping: float) -> tuple[_DualPoint | None, float]:
        """Return the point after a damped Newton step and its length; None if no length was acceptable."""
        program, gradient, multipliers = self.program, point.gradient, point.multipliers
        free = np.flatnonzero(~self._held(point))
        # the Jacobian is singular where the prox is constant; the ridge vanishes with the error
        matrix = self._jacobian(point, free)
        ridge = 1e-3 * min(1e-3, self.error(point)) * damping + 1e-10
        matrix[np.diag_indices(len(free))] += ridge * self.sigma
        if not np.isfinite(matrix).all():  # the prox may be that of a user
            return None, 0.0
        # the model gradient'Δ − ½Δ'(σ A J A*)Δ of θ is largest at this λ + Δ
        solved = least_quadratic(matrix, gradient[free] + matrix @ multipliers[free], program.equality[free])
        if solved is None:
            return None, 0.0
        step = np.zeros(len(multipliers))
        step[free] = solved - multipliers[free]
        error, length = self.error(point), 1.0
        for _ in range(20):  # Armijo's rule, up to the rounding error of θ
            found = self.at(program.feasible(multipliers + length * step))
            promised = 1e-4 * (gradient @ (found.multipliers - multipliers)) - 1e-14 * abs(point.value)
            if found.value >= point.value + promised or self.error(found) < 0.9 * error:
                return found, length
            length *= 0.5
        return None, 0.0

    def _jacobian(self, point: _DualPoint, free: Int[np.ndarray, " free"]) -> Float[np.ndarray, "free free"]:
        """Compute σ A J A* among the free rows."""
        program = self.program
        # row a of J A*: (prox(argument + h row a) − prox(argument))/h
        length = DIFFERENCE * float(np.max(np.abs(point.argument)))
        matrix = np.empty((len(free), len(free)))
        block = max(1, CACHED // point.argument.size)
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


class _ProxEquations(Improvement):
    """Newton's method on W = prox of σN at W + σA*(λ) and A(W) = b on the active rows, from close to the optimum."""

    def __init__(self, program: Program, bounds: Bounds) -> None:
        self.program, self.bounds, self.weights, self.multipliers = program, bounds, bounds.weights, bounds.multipliers
        pulled = np.linalg.norm(program.adjoint(bounds.multipliers)) or 1.0
        self.sigma = float(np.linalg.norm(bounds.weights) / pulled)

    def see(self) -> bool:
        self.bounds.see(self.weights, self.multipliers)
        return True

    def advance(self) -> None:
        """Solve the equations, linearised at W and λ."""
        program, sigma, weights, multipliers = self.program, self.sigma, self.weights, self.multipliers
        short = program.right - program.apply(weights)
        ratio = multipliers.max() / program.right.max()
        active = np.flatnonzero(program.equality | (multipliers + ratio * short > 0))
        argument = weights + sigma * program.adjoint(multipliers)
        # J is the slope; ΔW − J(ΔW + σA*(Δλ)) = prox − W and A(ΔW) = b − A(W) on the active rows
        slope, _ = slope_of_prox(program.norm, argument, sigma)
        rows = program.row_matrices(active).reshape(len(active), weights.size)  # possibly no row
        matrix = np.block(
            [[np.eye(weights.size) - slope, -sigma * slope @ rows.T], [rows, np.zeros((len(active),) * 2)]]
        )
        # the multipliers of rows that are not active become 0, which changes the argument
        dropped = np.zeros(len(multipliers))
        dropped[active] = multipliers[active]
        change = sigma * program.adjoint(dropped - multipliers).ravel()
        away = (program.norm.prox(argument, sigma) - weights).ravel() + slope @ change
        # by least squares: there may be several optima
        found = np.linalg.lstsq(matrix, np.concatenate([away, short[active]]), rcond=1e-9)[0]
        self.weights = weights + found[: weights.size].reshape(weights.shape)
        dropped[active] += found[weights.size :]
        self.multipliers = dropped
