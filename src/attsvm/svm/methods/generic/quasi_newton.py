"""A quasi-Newton method on the dual ½N*(A*(λ))² − b'λ, for strictly convex norms: their dual norms are smooth."""

import numpy as np
from scipy.optimize import minimize

from attsvm.svm.methods.candidate import Report
from attsvm.svm.methods.generic.program import Bounds, Program, Vector

MAX_STEPS = 3000
LOOK = 10
"""Evaluations between two evaluations of the gap."""

CORRECTIONS = 30
RESTARTS = 3

PATIENCE = 60
"""Evaluations in which the gap has to halve."""


def quasi_newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``; the number of evaluations of ``steepest``.

    With D = steepest(A*(λ)) and s = ⟨A*(λ), D⟩ = N*(A*(λ)), the gradient is A(sD) − b. At the minimum sD is optimal.
    Where N is not strictly convex the method stalls, and ends.

    Parameters
    ----------
    program : Program
    bounds : Bounds
        Their multipliers are the initial point.
    target : float
    max_steps : int
    report : callable
        Called as ``report(step, gap)``; a true return value ends the iteration.
    """
    limit = min(max_steps, MAX_STEPS)
    watch = _Watch(program, bounds, target, limit, report)
    signs = [(None, None) if free else (0.0, None) for free in program.equality]
    options = {"maxiter": limit, "maxfun": limit, "maxcor": CORRECTIONS, "ftol": 0.0, "gtol": 0.0}
    for _ in range(RESTARTS):
        start = bounds.multipliers * bounds.lower  # the best multiple
        try:
            found = minimize(watch.evaluate, start, jac=True, method="L-BFGS-B", bounds=signs, options=options)
            watch.look(np.asarray(program.norm.steepest(program.adjoint(found.x))), found.x)
        except _Done:
            break
        if bounds.gap <= target:
            break
    return watch.steps


class _Done(Exception):
    """Ends the method of SciPy from inside the function that it minimises."""


class _Watch:
    """The function and its gradient; it keeps the bounds, and ends the method."""

    def __init__(self, program: Program, bounds: Bounds, target: float, limit: int, report: Report) -> None:
        self.program, self.bounds, self.target, self.limit, self.report = program, bounds, target, limit, report
        self.steps = self.halved_at = 0
        self.halved = bounds.gap

    def evaluate(self, multipliers: Vector) -> tuple[float, Vector]:
        """The function and its gradient."""
        program = self.program
        pulled = program.adjoint(multipliers)
        direction = np.asarray(program.norm.steepest(pulled))
        size = float((pulled * direction).sum())
        if self.steps % LOOK == 0 or self.steps >= self.limit:
            self.look(direction, multipliers)
        self.steps += 1
        value = 0.5 * size * size - float(program.right @ multipliers)
        return value, size * program.apply(direction) - program.right

    def look(self, direction: np.ndarray, multipliers: Vector) -> None:
        """Evaluate the gap, and end if it is small enough."""
        gap = self.bounds.see(direction, multipliers)
        if gap <= 0.5 * self.halved:
            self.halved_at, self.halved = self.steps, gap
        stopped = self.report(self.steps, gap)
        if stopped or gap <= self.target or self.steps >= self.limit or self.steps - self.halved_at >= PATIENCE:
            raise _Done
