r"""Interior point for the norm of rotations, a sum of nuclear norms of complex matrices M_j, for one problem.

With Hermitian matrices of size K = d + d_q for each j, of M_j and of the blocks G_j of A*(λ),

    ½ Σ tr P_j least, P_j = [[·, M_j], [M_j*, ·]] ⪰ 0;    D_j = ½ [[I, −G_j], [−G_j*, I]] ⪰ 0

are each other's duals under A(W) − s = b, s ≥ 0, λ ≥ 0. The steps are those of the real nuclear norm in
``semidefinite/interior_point.py``: with P = R diag(d) R* and R* D R = diag(d), Nesterov and Todd's scaling, the
linearised PD = μI reads R⁻¹ ΔP R⁻* + R* ΔD R = T. All unknowns except λ are eliminated, and the rows, of which each has
rank one in every block, make the matrix of the equations cheap.
"""

import math
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Complex, Float
from attsvm.norms import Rotary
from attsvm.svm.loop import Report, Stop
from attsvm.svm.methods.generic.problems import Bounds, Improvement, Matrix, Program, Vector
from attsvm.svm.methods.predictor_corrector import Lengths, RowSystem, Values, predictor_corrector, raised

Blocks = Complex[np.ndarray, "J K K"]

STOP = Stop(target=0.0, max_steps=60, patience=4, small=math.inf)

NEGLIGIBLE = 1e-6
"""Singular values below this, relative to the largest, are removed if the gap stays small enough."""


def complex_interior_point(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``, and return the number of steps.

    ``program``: in the norm :class:`attsvm.norms.Rotary`, with a value of about 1. ``bounds``: their multipliers are
    the initial ones. ``report``: called as ``report(step, gap)``; a true return value ends the iteration.
    """
    path = _ComplexCentralPath(program, bounds)
    steps = path.run(STOP._replace(target=target, max_steps=min(max_steps, STOP.max_steps)), report)
    path.clean(target)
    return steps


class _ComplexState(NamedTuple):
    """An iterate, or a change of one without D, which follows from λ."""

    primal: Blocks  # P_j
    multipliers: Vector
    slack: Vector


class _ComplexStep(NamedTuple):
    """A change of the iterate, and those of P and D in the scaled coordinates."""

    state: _ComplexState
    primal: Blocks
    dual: Blocks


class _ComplexCentralPath(Improvement):
    """The iterate of one problem."""

    def __init__(self, program: Program, bounds: Bounds) -> None:
        assert isinstance(program.norm, Rotary)  # what the method is registered for
        self.program, self.bounds, self.norm = program, bounds, program.norm
        self.state = self.start(raised(bounds.multipliers, program.equality))

    def start(self, multipliers: Vector) -> _ComplexState:
        """Return a point on the central path, P = μ D⁻¹, except that A(W) − s = b may not hold."""
        # A*(λ) inside the dual ball, and a μ that gives W the size of the value
        multipliers = multipliers * (0.9 / float(self.norm.dual.values(self.program.adjoint(multipliers))))
        inverse = np.linalg.inv(self.dual(multipliers))
        mu = 0.4 / float(self.norm.values(self.weights(inverse)))
        apart = self.program.apply(self.weights(mu * inverse)) - self.program.right
        equality = self.program.equality
        slack = np.where(equality, 0.0, np.maximum(apart, 0.1 * mu / np.where(equality, 1.0, multipliers)))
        return _ComplexState(mu * inverse, multipliers, slack)

    def weights(self, primal: Blocks) -> Matrix:
        return np.asarray(self.norm.stacked(primal[:, : -self.program.shape[1], -self.program.shape[1] :]))

    def dual(self, multipliers: Vector) -> Blocks:
        """Return D of the multipliers."""
        pull = self.norm.blocks(self.program.adjoint(multipliers))
        whole = np.zeros((len(pull), sum(pull.shape[1:]), sum(pull.shape[1:])), complex)
        whole[:, : pull.shape[1], pull.shape[1] :] = -0.5 * pull
        whole += whole.conj().mT
        return np.asarray(whole + 0.5 * np.eye(whole.shape[-1]))

    def see(self) -> bool:
        self.bounds.see(self.weights(self.state.primal), self.state.multipliers)
        return True

    def advance(self) -> None:
        step, (primal, dual) = predictor_corrector(_ComplexEquations(self))
        before, change = self.state, step.state
        self.state = _ComplexState(
            before.primal + primal * change.primal,
            before.multipliers + dual * change.multipliers,
            before.slack + primal * change.slack,
        )
        if not np.isfinite(self.state.multipliers).all():
            raise np.linalg.LinAlgError("a factorisation failed")

    def clean(self, target: float) -> None:
        """Remove singular values that an interior point has and the optimum has not, as long as the gap is small."""
        bounds, blocks = self.bounds, self.norm.blocks(self.bounds.weights)
        U, sigma, Vh = np.linalg.svd(blocks, full_matrices=False)
        kept = np.where(sigma > NEGLIGIBLE * sigma.max(), sigma, 0.0)
        weights = self.program.repaired(self.norm.stacked((U * kept[:, None, :]) @ Vh))
        margin = self.program.margin(weights)
        if margin > 0 and 1 - bounds.lower * margin / self.program.value(weights) <= max(target, bounds.gap):
            bounds.weights, bounds.upper = weights / margin, self.program.value(weights) / margin


class _ComplexEquations:
    """The equations of a step at one iterate; numbers of the problem are arrays of length 1."""

    def __init__(self, path: _ComplexCentralPath) -> None:
        self.path, self.program, self.state = path, path.program, path.state
        self.unequal = ~self.program.equality
        factor = np.linalg.cholesky(self.state.primal)
        squares, vectors = np.linalg.eigh(factor.conj().mT @ path.dual(self.state.multipliers) @ factor)
        if not (squares > 0).all():
            raise np.linalg.LinAlgError("a matrix is not positive definite")
        self.d: Float[np.ndarray, "J K"] = np.sqrt(squares)
        self.R = factor @ (vectors / np.sqrt(self.d)[:, None, :])
        split = self.R.shape[-1] - self.program.shape[1]
        self.upper, self.lower = self.R[:, :split], self.R[:, split:]
        self.products = self.state.multipliers * self.state.slack
        self.count = self.d.size + self.unequal.sum()
        self.mu: Values = np.array([(np.vdot(self.d, self.d) + self.products.sum()) / self.count])
        root = 1 / np.sqrt(self.d)
        self.scale = root[:, :, None] * root[:, None, :]
        self.divisor = np.where(self.unequal, self.state.multipliers, 1.0)
        self.system = RowSystem(self._matrix()[None], (self.state.slack / self.divisor)[None])
        self.failed = self.system.failed

    def _matrix(self) -> Float[np.ndarray, "m m"]:
        """The entries ½ Σ_j Re(l_a*G₁₁l_b · z_b*G₂₂z_a + l_a*G₁₂z_b · l_b*G₁₂z_a) with G = RR* and rows l_a z_a'."""
        rows = self.program.rows
        of, left = rows.query_of, np.moveaxis(self.path.norm.blocks(rows.left[0, :, :, None])[..., 0], 1, 0)
        of_left, of_queries = left @ self.upper.conj(), rows.queries[0] @ self.lower.conj()
        total = np.zeros((len(of), len(of)))
        for k, z in zip(of_left, of_queries, strict=True):  # one block at a time: a matrix of rows may be large
            crossed = (k.conj() @ z.T).take(of, axis=1)
            squared = (z @ z.conj().T).take(of, axis=0).take(of, axis=1)
            total += 0.5 * ((k.conj() @ k.T) * squared + crossed * crossed.T).real
        return np.asarray(0.5 * (total + total.T))

    def _solve(self, target: Blocks, row_target: Vector, lacking: Vector) -> _ComplexStep:
        """Return the step for T = ``target``, sΔλ + λΔs = ``row_target`` and A(ΔW) − Δs = ``lacking``."""
        program, norm = self.program, self.path.norm
        # A([G lift(A*(Δλ)) G]₁₂) − Δs = lacking − A([R T R*]₁₂)
        pushed = program.apply(norm.stacked(self.upper @ target @ self.lower.conj().mT))
        multipliers = self.system.solve((lacking - pushed + row_target / self.divisor)[None])[0]
        slack = np.where(self.unequal, (row_target - self.state.slack * multipliers) / self.divisor, 0.0)
        # R*ΔD R, and what is left of T for R⁻¹ΔP R⁻*
        half = -0.5 * self.upper.conj().mT @ norm.blocks(program.adjoint(multipliers)) @ self.lower
        dual = half + half.conj().mT
        primal = target - dual
        return _ComplexStep(_ComplexState(self.R @ primal @ self.R.conj().mT, multipliers, slack), primal, dual)

    def _lacking(self, change: _ComplexState | None = None) -> Vector:
        """Return b + s − A(W) after a change of the iterate."""
        primal, slack = self.state.primal, self.state.slack
        if change is not None:
            primal, slack = primal + change.primal, slack + change.slack
        return np.asarray(self.program.right + slack - self.program.apply(self.path.weights(primal)))

    def predictor(self) -> _ComplexStep:
        return self._solve(-self.d[:, :, None] * np.eye(self.d.shape[1]), -self.products, self._lacking())

    def corrector(self, aim: Values, predictor: _ComplexStep) -> _ComplexStep:
        # T solves d_i T_ij + T_ij d_j = 2 (μI − d² − ΔPΔD)_ij, made Hermitian
        product = predictor.primal @ predictor.dual
        target = (aim[0] - self.d**2)[:, :, None] * np.eye(self.d.shape[1]) - 0.5 * (product + product.conj().mT)
        target *= 2 / (self.d[:, :, None] + self.d[:, None, :])
        row_target = aim[0] - self.products - predictor.state.multipliers * predictor.state.slack
        step = self._solve(target, np.where(self.unequal, row_target, 0.0), self._lacking())
        # one refinement of the equations of the rows, whose matrix loses digits near the optimum
        rest = self._lacking(step.state)
        more = self._solve(np.zeros_like(target), np.zeros_like(rest), rest)
        return _ComplexStep(_ComplexState(*map(np.add, step.state, more.state)), *map(np.add, step[1:], more[1:]))

    def longest(self, step: _ComplexStep) -> Lengths:
        """Return the primal and dual step lengths to the first bound, at most 10."""
        falls = [-np.linalg.eigvalsh(part * self.scale).min() for part in step[1:]]
        inside, state, change = self.unequal, self.state, step.state
        rows = [
            (-change.slack[inside] / state.slack[inside]).max(initial=0.1),
            (-change.multipliers[inside] / state.multipliers[inside]).max(initial=0.1),
        ]
        primal, dual = (np.array([1 / max(fall, row, 0.1)]) for fall, row in zip(falls, rows, strict=True))
        return primal, dual

    def mu_after(self, step: _ComplexStep, lengths: Lengths) -> Values:
        """Return μ from ⟨P, D⟩ + ⟨λ, s⟩, with the matrices in the scaled coordinates."""
        (primal, dual), state, change = lengths, self.state, step.state
        whole = self.d[:, :, None] * np.eye(self.d.shape[1])
        matrices = np.vdot(whole + primal * step.primal, whole + dual * step.dual).real
        rows = np.vdot(state.multipliers + dual * change.multipliers, state.slack + primal * change.slack)
        return np.array([(matrices + rows) / self.count])
