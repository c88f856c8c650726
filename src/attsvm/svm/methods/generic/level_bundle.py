r"""A level bundle method on the dual norm, for norms of which only the steepest directions are known.

The dual is to minimise N*(A*(λ)) over multipliers with b'λ = 1. Each D = steepest(A*(λ)) is a lower bound on this
function, ⟨A(D), ·⟩ ≤ N*(A*(·)). The linear program over all bounds so far is the dual of the least Σ w_j for which
W = Σ w_j D_j, w ≥ 0, has all margins, so both sides improve together. The next λ is the nearest one to the best λ at
which the bounds are at a level between the best value and that of the linear program, because the solutions of the
linear program itself jump.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog, nnls

from attsvm.svm.loop import Report
from attsvm.svm.methods.generic.program import Bounds, Program, Vector

MAX_STEPS = 500

LEVEL = 0.3
"""The level, from the value of the linear program (0) to the best value (1)."""

PRECISE = 1e-6
"""The smallest gap that is aimed at: the tolerance of the linear programs."""

PATIENCE = 80
"""Steps in which the gap has to halve."""


def level_bundle(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target`` or 1e-6; the number of evaluations of ``steepest``.

    ``bounds``: their weights and multipliers are the initial point. ``report``: called as ``report(step, gap)``; a true
    return value ends the iteration.

    References: Lemaréchal, Nemirovskii and Nesterov (1995), *New variants of bundle methods*.
    """
    limit = min(max_steps, MAX_STEPS)
    plane = _Plane(program)
    directions, images = [bounds.weights / bounds.upper], [program.apply(bounds.weights) / bounds.upper]
    multipliers = bounds.multipliers / (program.right @ bounds.multipliers)
    halved_at, halved = 0, bounds.gap
    for step in range(limit + 1):
        if bounds.gap <= 0.5 * halved:
            halved_at, halved = step, bounds.gap
        stopped = report(step, bounds.gap)
        if stopped or bounds.gap <= max(target, PRECISE) or step == limit or step - halved_at >= PATIENCE:
            return step
        direction = np.asarray(program.norm.steepest(program.adjoint(multipliers)))
        directions.append(direction)
        images.append(program.apply(direction))
        bounds.see(direction, multipliers)
        found = _least_total(program, np.array(images))
        if found is None:
            return step + 1
        weights, corner = found
        bounds.see(np.tensordot(weights, np.array(directions), 1), corner)
        least, best = 1 / weights.sum(), 1 / bounds.lower
        center = bounds.multipliers / (program.right @ bounds.multipliers)
        nearest = plane.nearest(center, np.array(images), least + LEVEL * (best - least))
        multipliers = corner / (program.right @ corner) if nearest is None else nearest
    return limit


def _least_total(program: Program, images: Float[np.ndarray, "J m"]) -> tuple[Float[np.ndarray, " J"], Vector] | None:
    """The w ≥ 0 of least sum with Σ w_j A(D_j) ≥ b, and its multipliers; None if the linear program fails."""
    equal = program.equality
    found = linprog(
        np.ones(len(images)),
        A_ub=-images[:, ~equal].T,
        b_ub=-program.right[~equal],
        A_eq=images[:, equal].T if equal.any() else None,
        b_eq=program.right[equal] if equal.any() else None,
    )
    if found.status != 0:
        return None
    multipliers = np.empty(len(equal))
    multipliers[~equal] = np.maximum(-found.ineqlin.marginals, 0.0)
    if equal.any():
        multipliers[equal] = found.eqlin.marginals
    if not (found.x.sum() > 0 and program.right @ multipliers > 0):
        return None
    return found.x, multipliers


class _Plane:
    """Coordinates of the plane b'λ = 1."""

    def __init__(self, program: Program) -> None:
        self.signed = ~program.equality
        _, _, turned = np.linalg.svd(program.right[None])
        self.basis = turned[1:].T

    def nearest(self, center: Vector, images: Float[np.ndarray, "J m"], level: float) -> Vector | None:
        """The point of the plane nearest to ``center`` with no wrong sign and ⟨A(D_j), λ⟩ ≤ level; None if not found.

        References: Lawson and Hanson (1974), *Solving Least Squares Problems*, chapter 23, algorithm LDP.
        """
        rows = np.concatenate([-images @ self.basis, self.basis[self.signed]])
        right = np.concatenate([images @ center - level, -center[self.signed]])
        last = np.zeros(rows.shape[1] + 1)
        last[-1] = 1.0
        try:
            solution, _ = nnls(np.vstack([rows.T, right]), last, maxiter=10 * len(right))
        except RuntimeError:
            return None
        rest = 1.0 - right @ solution
        if not rest > 1e-12:
            return None
        multipliers: Vector = center + self.basis @ (solution @ rows) / rest
        multipliers[self.signed] = np.maximum(multipliers[self.signed], 0.0)
        return multipliers
