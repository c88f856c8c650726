r"""Norms of which only the steepest directions are known.

The dual is to minimise F(λ) = ½N*(A*(λ))² − b'λ under the signs of the multipliers. With D = steepest(A*(λ)) and
s = ⟨A*(λ), D⟩ = N*(A*(λ)), its gradient is A(sD) − b where N is strictly convex, and sD is optimal at the minimum. So
L-BFGS solves such norms. It compares values of F, which hardly differ where the gap is below the root of the rounding
error. The last digits come from the gradient, which vanishes on the rows that hold with equality.

Other norms have no such gradient. Their proximal points are sums of steepest directions, with which the splitting
solves them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, root

from attsvm.norms import Norm
from attsvm.norms.scaled import Wrapper
from attsvm.svm.frobenius.pivoting import least_quadratic
from attsvm.svm.loop import Report, Stop
from attsvm.svm.methods.generic.program import MOST_UNKNOWNS, Bounds, Program, Vector

STOP = Stop(target=0.0, max_steps=3000, patience=300, stride=10)
"""Counted in evaluations of F, because SciPy's method makes the steps."""

FAR = 0.1
"""Above this gap, where norms that are not strictly convex stall, the patience is a fifth."""

RESTARTS = 3

EQUATIONS = {"fatol": 1e-13, "maxiter": 10, "jac_options": {"inner_maxiter": 30}}
"""The Newton-Krylov method solves them to rounding in few steps, as they are well conditioned as a rule."""


def quasi_newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``, and return the number of evaluations of ``steepest``.

    Where N is not strictly convex the method stalls, and ends.

    ``bounds``: their multipliers are the initial point. ``report``: called as ``report(step, gap)``; a true return
    value ends the iteration.
    """
    dual = _Dual(program, bounds, target, min(max_steps, STOP.max_steps), report)
    signs = [(None, None) if free else (0.0, None) for free in program.equality]
    options = {"maxiter": dual.limit, "maxfun": dual.limit, "maxcor": 30, "ftol": 0.0, "gtol": 0.0}
    for _ in range(RESTARTS):
        # F(sλ) = ½s² − s b'λ for N*(A*(λ)) = 1 is least at s = b'λ
        start = bounds.multipliers * bounds.lower  # the multiple with the least F
        try:
            found = minimize(dual.evaluate, start, jac=True, method="L-BFGS-B", bounds=signs, options=options)
            dual.look(dual.steepest(found.x)[0], found.x)
        except _Done:
            break
        if bounds.gap <= target:
            break
    if target < bounds.gap <= 1e-3 and not dual.stopped:
        dual.solve_equations()
    return dual.steps


class _Done(Exception):
    """Ends the method of SciPy from inside the function that it minimises."""


class _Dual:
    """F and its gradient; improves the bounds, and ends the method."""

    def __init__(self, program: Program, bounds: Bounds, target: float, limit: int, report: Report) -> None:
        self.program, self.bounds, self.target, self.limit, self.report = program, bounds, target, limit, report
        self.steps = self.halved_at = 0
        self.halved = bounds.gap
        self.stopped = False

    def steepest(self, multipliers: Vector) -> tuple[np.ndarray, float, Vector]:
        """Return D, s and the gradient A(sD) − b at the multipliers."""
        pulled = self.program.adjoint(multipliers)
        direction = np.asarray(self.program.norm.steepest(pulled))
        size = float((pulled * direction).sum())
        return direction, size, size * self.program.apply(direction) - self.program.right

    def evaluate(self, multipliers: Vector) -> tuple[float, Vector]:
        direction, size, slope = self.steepest(multipliers)
        if self.steps % STOP.stride == 0 or self.steps >= self.limit:
            self.look(direction, multipliers)
        self.steps += 1
        return 0.5 * size * size - float(self.program.right @ multipliers), slope

    def look(self, direction: np.ndarray, multipliers: Vector) -> None:
        """Evaluate the gap, and end if it is small enough or does not fall."""
        gap = self.bounds.see(direction, multipliers)
        if gap <= 0.5 * self.halved:
            self.halved_at, self.halved = self.steps, gap
        self.stopped = self.report(self.steps, gap)
        patience = STOP.patience // 5 if gap > FAR else STOP.patience
        if self.stopped or gap <= self.target or self.steps >= self.limit or self.steps - self.halved_at >= patience:
            raise _Done

    def solve_equations(self) -> None:
        """Improve the bounds by the multipliers for which the gradient vanishes on the active rows."""
        whole = self.bounds.multipliers * self.bounds.lower
        slope = self.steepest(whole)[2]
        active = np.flatnonzero(self.program.equality | (whole > slope * whole.max()))

        def slope_at(own: Vector) -> Vector:
            self.steps += 1
            whole[active] = own
            return self.steepest(whole)[2][active]

        start = whole[active]
        whole = np.zeros(len(whole))
        if len(active) == 0 or self.limit - self.steps < STOP.patience:
            return
        try:
            found = root(slope_at, start, method="krylov", options=EQUATIONS)
        except ValueError:  # the Krylov method has found no direction
            return
        whole[active] = found.x
        self.report(self.steps, self.bounds.see(self.steepest(whole)[0], whole))


@dataclass(frozen=True)
class ByDirections(Wrapper):
    """A norm with ``steepest``, and a proximal map that uses nothing else.

    The proximal point of x is the sum Σ w_j D_j of directions with N(D_j) ≤ 1 and w ≥ 0 that minimises
    ½‖x − Σ w_j D_j‖² + step Σ w_j. A fully corrective conditional gradient method finds it: as long as the remainder
    x − Σ w_j D_j has a dual norm above the step, its steepest direction is added, and all w_j are computed again. In
    the nuclear norm or ℓ2,1 the directions are orthogonal, and their number is that of the singular values or rows
    that are left.
    """

    def value(self, x: Any, axes: int = 2) -> Any:
        return self.of.value(x, axes)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return self.of.values(x, axes)

    @property
    def dual(self) -> Norm:
        return self.of.dual

    def steepest(self, g: Any) -> Any:
        return self.of.steepest(g)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """Return the sum of at most :data:`MOST_UNKNOWNS` directions."""
        goal = x.reshape(-1)
        directions = np.empty((MOST_UNKNOWNS, goal.size))
        gram = np.empty((MOST_UNKNOWNS, MOST_UNKNOWNS))
        right = np.empty(MOST_UNKNOWNS)
        left = goal
        for k in range(MOST_UNKNOWNS):
            new = np.asarray(self.of.steepest(left.reshape(x.shape))).reshape(-1)
            if not new @ left > step * (1 + 1e-9):
                break
            directions[k], right[k] = new, new @ goal - step
            gram[k, : k + 1] = gram[: k + 1, k] = directions[: k + 1] @ new
            if np.abs(gram[k, :k]).max(initial=0.0) <= 1e-14:  # orthogonal: the other weights do not change
                left = left - right[k] / gram[k, k] * new
                continue
            matrix = gram[: k + 1, : k + 1] + 1e-14 * gram[: k + 1, : k + 1].max() * np.eye(k + 1)
            # all w again: min ½w'Gw − w'(D'x − step) over w ≥ 0
            weights = least_quadratic(matrix, right[: k + 1], np.zeros(k + 1, bool))
            if weights is None:
                break
            left = goal - weights @ directions[: k + 1]
        return np.asarray((goal - left).reshape(x.shape))
