r"""Interior point for the least nuclear or spectral norm under rank-one rows, many problems together.

Both norms are semidefinite: with symmetric matrices of size K = d_k + d_q, of W and of A*(λ),

    nuclear:  ½ tr P least, P = [[·, W], [W', ·]] ⪰ 0;       D = ½ [[I, −A*(λ)], [−A*(λ)', I]] ⪰ 0
    spectral: t least,      P = [[tI, W], [W', tI]] ⪰ 0;     D = ½ [[·, −A*(λ)], [−A*(λ)', ·]] ⪰ 0, tr D = 1

are each other's duals under A(W) − s = b, s ≥ 0, λ ≥ 0, and ½ tr P or t exceeds b'λ by ⟨P, D⟩ + ⟨λ, s⟩. In each, one of
the two matrices has *free* diagonal blocks and the other is *tied* to a vector (λ, or W and t). With Nesterov and
Todd's scaling, R⁻¹ (free) R⁻' = R' (tied) R = diag(d), the linearised PD = μI reads

    R⁻¹ Δfree R⁻' + R' Δtied R = T,

and eliminating all unknowns except λ leaves one m × m matrix per step, which is cheap because the rows have rank one.
The elimination depends on the cone (``cone.py``).

References
----------
Nesterov and Todd (1997), *Self-scaled barriers and interior-point methods for convex programming*. Liu and Vandenberghe
(2009), *Interior-point method for nuclear norm approximation with application to system identification*.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf

from attsvm._utils.linear_algebra import diagonal_of, eigh, eigvalsh
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.constraints.rows import RowVector
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.methods.predictor_corrector import Lengths, Values, predictor_corrector
from attsvm.svm.methods.semidefinite.cone import Cone, ConeIterate, ConeStep, Scaling
from attsvm.svm.methods.semidefinite.face import solve_on_face
from attsvm.svm.methods.semidefinite.problems import Matrix, MatrixProblems

DIVERGED = 1e4
"""If the lower bound exceeds the guess of the value by this factor, the selection is infeasible or the guess is bad."""

MAX_REFINEMENTS = 6

REFINED = 1e-11
"""Largest residual of the equations of the rows after a step, relative to the smallest right side."""

FINISH = 0.1
"""The gap at which the face method is tried for the first time, and the factor by which it falls between trials."""


def interior_point(
    cone: Cone, problems: MatrixProblems, multipliers: RowVector, stop: Stop, report: Report | None = None
) -> Point:
    """Least N(W) for N problems together.

    ``problems``: with at least one positive right side each, and a value between about 1e-3 and 1e3. ``multipliers``:
    the initial multipliers at any scale; not negative, except for equalities. The iteration of a problem also ends when
    the lower bound shows that the value is far from 1.
    """
    state = cone.start(problems, multipliers)
    path = _ConeCentralPath(cone, problems, state, stop.target)
    return iterate(path, Point.unsolved(cone.weights(state), state.multipliers), stop, report)


class _ConeCentralPath(Iteration):
    """The problems that still run, and their iterates."""

    def __init__(self, cone: Cone, problems: MatrixProblems, state: ConeIterate, target: float) -> None:
        self.cone, self.problems, self.state, self.target = cone, problems, state, target
        self.next_finish = np.full(len(state.multipliers), FINISH)

    def evaluate(self) -> Iterates:
        """Return the iterates; near the optimum those of the face method, where they are precise enough."""
        cone, problems, state, target = self.cone, self.problems, self.state, self.target
        point, multipliers = cone.weights(state), state.multipliers
        self.image = problems.rows.apply(point)
        error, bound = problems.measure(point, self.image, cone.value(state), multipliers, target)
        # each trial on the face needs a gap that has fallen by another factor
        near = np.flatnonzero(error < self.next_finish)
        if len(near):
            self.next_finish[near] = FINISH * error[near]
            found = self._on_face(near)
            done = found.gap <= target
            near = near[done]
            point, multipliers, error = point.copy(), multipliers.copy(), error.copy()
            point[near], multipliers[near], error[near] = found.weights[done], found.multipliers[done], found.gap[done]
        return Iterates(point, multipliers, error, bound <= DIVERGED)

    def _on_face(self, some: Int[np.ndarray, " some"]) -> Point:
        """Solve some of the problems by the face method, with the rows that probably hold with equality."""
        cone, state = self.cone, self.state
        own = self.problems if len(some) == len(self.problems.right) else self.problems.select(some)
        weights, multipliers, slack = cone.weights(state)[some], state.multipliers[some], state.slack[some]
        # λ/max λ > s/max s
        held = multipliers * slack.max(axis=-1, keepdims=True) > slack * multipliers.max(axis=-1, keepdims=True)
        held = (held & own.there) | own.equality
        return solve_on_face(cone.face, own, weights, multipliers, held, cone.value(state)[some], self.target)

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.problems, self.image = self.problems.select(going), self.image[going]
        self.state = ConeIterate(*(part[going] for part in self.state))
        self.next_finish = self.next_finish[going]

    def advance(self) -> None:
        lacking = self.problems.right + self.state.slack - self.image
        step, lengths = predictor_corrector(_ConeEquations(self.cone, self.problems, self.state, lacking))
        self.state = self.cone.move(self.problems, self.state, step.change.state, lengths)


class _ConeMove(NamedTuple):
    """A change of the iterate, and how fast the free and the tied matrix approach the boundary, as 1/length."""

    change: ConeStep
    falls: Float[np.ndarray, "2 N"]


class _ConeEquations:
    """The equations of a step at one iterate: T, sΔλ + λΔs and A(ΔW) − Δs = ``lacking`` are given."""

    def __init__(self, cone: Cone, problems: MatrixProblems, state: ConeIterate, lacking: RowVector) -> None:
        self.cone, self.problems, self.state, self.lacking = cone, problems, state, lacking
        self.scaling, lost = _scaling(state)
        self.d = d = self.scaling.d
        self.newton = cone.newton(problems, state, self.scaling)
        self.failed = lost | self.newton.failed
        self.unequal = (~problems.equality).astype(np.float64)
        self.products = state.multipliers * state.slack
        self.count = d.shape[1] + self.unequal.sum(axis=-1)
        self.mu = (np.vecdot(d, d) + self.products.sum(axis=-1)) / self.count
        root = 1 / np.sqrt(d)
        self.scale = root[:, :, None] * root[:, None, :]

    def predictor(self) -> _ConeMove:
        # T for PD = 0, where P = D = diag(d) in the scaled coordinates
        target = np.zeros_like(self.scaling.R)
        diagonal_of(target)[:] = -self.d
        change = self.newton.solve(target, -self.products, self.lacking)
        # with T = −diag(d), the scaled changes of the two matrices are −I together
        values = eigvalsh(change.scaled_free * self.scale)
        return _ConeMove(change, np.stack([-values[:, 0], 1 + values[:, -1]]))

    def corrector(self, aim: Values, predictor: _ConeMove) -> _ConeMove:
        guess, d = predictor.change, self.d
        # T solves d_i T_ij + T_ij d_j = 2 (μI − d² − ΔPΔD)_ij, symmetrised
        product = guess.scaled_free @ guess.scaled_tied
        target = -0.5 * (product + product.mT)
        diagonal_of(target)[:] += aim[:, None] - d**2
        target *= 2 / (d[:, :, None] + d[:, None, :])
        row_target = aim[:, None] - self.products - guess.state.multipliers * guess.state.slack
        change = self._refined(self.newton.solve(target, self.unequal * row_target, self.lacking))
        both = (change.scaled_free, change.scaled_tied)
        return _ConeMove(change, np.stack([-eigvalsh(part * self.scale)[:, 0] for part in both]))

    def longest(self, step: _ConeMove) -> Lengths:
        """Return the primal and dual step lengths to the first bound, at most 10."""
        falls = step.falls if self.cone.primal_is_free else step.falls[::-1]
        # on equalities, positive numbers to divide by, and no decrease
        fixed, state, change = 1 - self.unequal, self.state, step.change.state
        slack = self.unequal * change.slack / (state.slack + fixed)
        multipliers = self.unequal * change.multipliers / (self.unequal * state.multipliers + fixed)
        rows = -np.stack([slack, multipliers]).min(axis=-1)
        primal, dual = 1 / np.maximum(np.maximum(falls, rows), 0.1)
        return primal, dual

    def mu_after(self, step: _ConeMove, lengths: Lengths) -> Values:
        """Return μ from ⟨P, D⟩ + ⟨λ, s⟩, with the matrices in the scaled coordinates."""
        (primal, dual), d = lengths, self.d
        free_length, tied_length = (primal, dual) if self.cone.primal_is_free else (dual, primal)
        change, free, tied = step.change.state, step.change.scaled_free, step.change.scaled_tied
        matrices = np.vecdot(d, d + free_length[:, None] * diagonal_of(free) + tied_length[:, None] * diagonal_of(tied))
        matrices += np.vecdot(free.reshape(len(d), -1), tied.reshape(len(d), -1)) * (free_length * tied_length)
        multipliers = self.state.multipliers + dual[:, None] * change.multipliers
        slack = self.state.slack + primal[:, None] * change.slack
        return np.asarray((matrices + np.vecdot(multipliers, slack)) / self.count)

    def _refined(self, change: ConeStep) -> ConeStep:
        """Refine A(ΔW) − Δs = ``lacking`` iteratively.

        Near infeasibility rows nearly cancel each other. At a value of V the matrix of the equations then has errors of
        eps·V², while its products with a step have errors of eps·V only, compared with right sides of 1/V.
        """
        allowed = REFINED * np.where(self.problems.asked, self.problems.right, np.inf).min(axis=-1)
        rest, size = self._lacks(change)
        for _ in range(MAX_REFINEMENTS):
            if np.all(size <= allowed):
                break
            more = self.newton.solve(np.zeros_like(change.scaled_free), np.zeros_like(rest), rest)
            rest, rest_size = self._lacks(change.plus(more, np.ones(len(size))))
            better = rest_size <= 0.5 * size
            if not better.any():
                break
            change = change.plus(more, better.astype(np.float64))
            size = np.where(better, rest_size, 0.0)  # the others do not improve any more
        return change

    def _lacks(self, change: ConeStep) -> tuple[RowVector, Values]:
        rest = self.lacking + change.state.slack - self.problems.rows.apply(self.cone.weights(change.state))
        return rest, np.abs(rest).max(axis=-1)


def _scaling(state: ConeIterate) -> tuple[Scaling, Bool[np.ndarray, " N"]]:
    """Return R and d, and where the matrices are no longer positive definite."""
    free: Matrix = state.free
    try:
        factor = np.linalg.cholesky(free)
        lost = np.zeros(len(factor), bool)
    except np.linalg.LinAlgError:
        answers = [dpotrf(matrix, lower=True, clean=True) for matrix in free]
        lost = np.array([failed != 0 for _, failed in answers])
        factor = np.stack([np.eye(len(part)) if failed else part for part, failed in answers])
    # near the central path every squared d is about μ: this loses fewer digits than the usual square would
    squares, vectors = eigh(factor.mT @ state.tied @ factor)
    lost |= squares[:, 0] <= 0
    d = np.sqrt(np.where(squares > 0, squares, 1.0))
    return Scaling(factor @ (vectors / np.sqrt(d)[:, None, :]), d), lost
