"""A quasi-Newton method on the dual ½N*(A*(λ))² − b'λ, for strictly convex norms: their dual norms are smooth.

Line searches compare values of the function, which hardly differ where the gap is below the root of the rounding error.
So the last digits come from the gradient: it vanishes on the rows that hold with equality, whose multipliers solve as
many equations. Powell's hybrid method solves few equations, with one difference for each of them and few evaluations
more. Many equations are well conditioned as a rule, so that a Newton-Krylov method needs far fewer evaluations.
"""

import numpy as np
from scipy.optimize import minimize, root

from attsvm.svm.loop import Report
from attsvm.svm.methods.generic.program import Bounds, Program, Vector

MAX_STEPS = 3000
LOOK = 10
"""Evaluations between two evaluations of the gap."""

CORRECTIONS = 30
RESTARTS = 3

PATIENCE, LONG_PATIENCE = 60, 300
"""Evaluations in which the gap has to halve: above :data:`FAR`, where the method stalls in norms that are not strictly
convex, and below, where badly conditioned problems progress slowly."""

FAR = 0.1

CLOSE = 1e-3
"""The gap from which on the equations are tried."""

SOLVED, MOST_EVALUATIONS = 1e-14, 300
"""The relative change of the multipliers at which few equations count as solved, and the evaluations for them."""

FEW = 100
"""Up to so many equations the hybrid method is used."""

RESIDUAL, NEWTON_STEPS, INNER_STEPS = 1e-11, 6, 30
"""The residual at which many equations count as solved, and the limits of the Newton-Krylov method."""

HYBRID = {"xtol": SOLVED, "maxfev": MOST_EVALUATIONS}
KRYLOV = {"fatol": RESIDUAL, "maxiter": NEWTON_STEPS, "jac_options": {"inner_maxiter": INNER_STEPS}}


def quasi_newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``; the number of evaluations of ``steepest``.

    With D = steepest(A*(λ)) and s = ⟨A*(λ), D⟩ = N*(A*(λ)), the gradient is A(sD) − b. At the minimum sD is optimal.
    Where N is not strictly convex the method stalls, and ends.

    ``bounds``: their multipliers are the initial point. ``report``: called as ``report(step, gap)``; a true return
    value ends the iteration.
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
    if target < bounds.gap <= CLOSE and not watch.stopped:
        watch.solve_equations()
    return watch.steps


class _Done(Exception):
    """Ends the method of SciPy from inside the function that it minimises."""


class _Watch:
    """The function and its gradient; it keeps the bounds, and ends the method."""

    def __init__(self, program: Program, bounds: Bounds, target: float, limit: int, report: Report) -> None:
        self.program, self.bounds, self.target, self.limit, self.report = program, bounds, target, limit, report
        self.steps = self.halved_at = 0
        self.halved = bounds.gap
        self.stopped = False

    def evaluate(self, multipliers: Vector) -> tuple[float, Vector]:
        program = self.program
        direction, size = self._steepest(multipliers)
        if self.steps % LOOK == 0 or self.steps >= self.limit:
            self.look(direction, multipliers)
        self.steps += 1
        value = 0.5 * size * size - float(program.right @ multipliers)
        return value, size * program.apply(direction) - program.right

    def _steepest(self, multipliers: Vector) -> tuple[np.ndarray, float]:
        """Return D and s at the multipliers."""
        pulled = self.program.adjoint(multipliers)
        direction = np.asarray(self.program.norm.steepest(pulled))
        return direction, float((pulled * direction).sum())

    def solve_equations(self) -> None:
        """Improve the bounds by the multipliers for which the gradient vanishes on the active rows."""
        program, bounds = self.program, self.bounds
        multipliers = bounds.multipliers * bounds.lower
        direction, size = self._steepest(multipliers)
        slope = size * program.apply(direction) - program.right
        active = np.flatnonzero(program.equality | (multipliers > slope * multipliers.max()))
        whole = np.zeros(len(multipliers))

        def slope_at(own: Vector) -> Vector:
            self.steps += 1
            whole[active] = own
            direction, size = self._steepest(whole)
            return np.asarray((size * program.apply(direction) - program.right)[active])

        if len(active) == 0 or self.limit - self.steps < MOST_EVALUATIONS:
            return
        few = len(active) <= FEW
        try:
            found = root(
                slope_at, multipliers[active], method="hybr" if few else "krylov", options=HYBRID if few else KRYLOV
            )
        except ValueError:  # the Krylov method has found no direction
            return
        whole[active] = found.x
        self.report(self.steps, bounds.see(self._steepest(whole)[0], whole))

    def look(self, direction: np.ndarray, multipliers: Vector) -> None:
        """Evaluate the gap, and end if it is small enough."""
        gap = self.bounds.see(direction, multipliers)
        if gap <= 0.5 * self.halved:
            self.halved_at, self.halved = self.steps, gap
        self.stopped = self.report(self.steps, gap)
        patience = PATIENCE if gap > FAR else LONG_PATIENCE
        if self.stopped or gap <= self.target or self.steps >= self.limit or self.steps - self.halved_at >= patience:
            raise _Done
