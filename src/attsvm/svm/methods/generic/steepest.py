r"""Norms of which only the steepest directions are known.

The dual is to minimise F(λ) = ½N*(A*(λ))² − b'λ under the signs of the multipliers. With D = steepest(A*(λ)) and
s = ⟨A*(λ), D⟩ = N*(A*(λ)), its gradient is A(sD) − b where N is strictly convex, and sD is optimal at the minimum. So
L-BFGS solves such norms. It compares values of F, which hardly differ where the gap is below the root of the rounding
error. The last digits come from the gradient, which vanishes on the rows that hold with equality.

Other norms have no such gradient. Their proximal points are sums of steepest directions, with which the splitting
solves them.
"""

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, root

from attsvm.norms import Norm, Wrapper
from attsvm.svm.constraints.constraints import MOST_UNKNOWNS
from attsvm.svm.loop import Report, Stop, Watch
from attsvm.svm.methods.frobenius.pivoting import least_quadratic
from attsvm.svm.methods.generic.problems import Bounds, Improvement, Program, Vector

ROUND = 100
"""Evaluations of F between two evaluations of the gap; L-BFGS starts again with each round."""

STOP = Stop(target=0.0, max_steps=3000, patience=3, small=math.inf)

FAR = 0.1
"""A larger gap after a round shows that N is not strictly convex."""

EQUATIONS = {"fatol": 1e-13, "maxiter": 10, "jac_options": {"inner_maxiter": 30}}
"""The Newton-Krylov method solves them to rounding in few steps, as they are well conditioned as a rule."""


def quasi_newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``, and return the number of evaluations of ``steepest``.

    Where N is not strictly convex the method stalls, and ends.

    ``bounds``: their multipliers are the initial point. ``report``: called as ``report(step, gap)``; a true return
    value ends the iteration.
    """
    watch, limit = Watch(report), min(max_steps, STOP.max_steps)
    dual = _Dual(program, bounds, target, limit)
    steps = dual.run(STOP._replace(target=target, max_steps=limit), watch)
    if target < bounds.gap <= 1e-3 and not watch.stopped and limit - steps >= STOP.patience * ROUND:
        steps += dual.solve_equations()
        watch(steps, bounds.gap)
    return steps


class _Dual(Improvement):
    """F, minimised by L-BFGS."""

    def __init__(self, program: Program, bounds: Bounds, target: float, limit: int) -> None:
        self.program, self.bounds, self.left, self.is_start = program, bounds, limit, True
        self.signs = [(None, None) if free else (0.0, None) for free in program.equality]
        # the margins lack as much as the gradient, relative to b; from there the equations find the last digits sooner
        self.options = {"maxcor": 30, "ftol": 0.0, "gtol": 4 * target * program.right.max()}

    def steepest(self, multipliers: Vector) -> tuple[np.ndarray, float, Vector]:
        """Return D, s and the gradient A(sD) − b at the multipliers."""
        pulled = self.program.adjoint(multipliers)
        direction = np.asarray(self.program.norm.steepest(pulled))
        size = float((pulled * direction).sum())
        return direction, size, size * self.program.apply(direction) - self.program.right

    def value(self, multipliers: Vector) -> tuple[float, Vector]:
        """Return F and its gradient."""
        _, size, slope = self.steepest(multipliers)
        return 0.5 * size * size - float(self.program.right @ multipliers), slope

    @property
    def scaled(self) -> Vector:
        """The multiple of the best multipliers with the least F: F(sλ) = ½s² − s b'λ for N*(A*(λ)) = 1."""
        return self.bounds.multipliers * self.bounds.lower

    def see(self) -> bool:
        """Return whether F may have a gradient."""
        return self.is_start or self.bounds.gap <= FAR

    def advance(self) -> int:
        """Make one round of L-BFGS from the best multipliers, and return the number of evaluations."""
        options = {**self.options, "maxfun": min(ROUND, self.left)}
        found = minimize(self.value, self.scaled, jac=True, method="L-BFGS-B", bounds=self.signs, options=options)
        self.bounds.see(self.steepest(found.x)[0], found.x)
        self.left, self.is_start = self.left - found.nfev, False
        return int(found.nfev)

    def solve_equations(self) -> int:
        """Improve the bounds by the multipliers for which the gradient vanishes on the active rows."""
        whole = self.scaled
        slope = self.steepest(whole)[2]
        active = np.flatnonzero(self.program.equality | (whole > slope * whole.max()))
        start, whole, steps = whole[active], np.zeros(len(whole)), 1

        def slope_at(own: Vector) -> Vector:
            nonlocal steps
            steps += 1
            whole[active] = own
            return self.steepest(whole)[2][active]

        if len(active):
            with contextlib.suppress(ValueError):  # the Krylov method has found no direction
                whole[active] = root(slope_at, start, method="krylov", options=EQUATIONS).x
                self.bounds.see(self.steepest(whole)[0], whole)
        return steps


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
