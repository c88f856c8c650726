"""The cones of the nuclear and the spectral norm: a start inside, and the equations of a step without the matrices."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from attsvm._utils.linear_algebra import diagonal_of, lift
from attsvm._utils.shapes import Bool, Float
from attsvm.svm.constraints.rows import Block, RowVector
from attsvm.svm.loop import Point
from attsvm.svm.methods.predictor_corrector import Lengths, RowSystem, Values
from attsvm.svm.methods.semidefinite.face import Face, NuclearFace, SpectralFace
from attsvm.svm.methods.semidefinite.principal_angles import PrincipalCoordinates
from attsvm.svm.methods.semidefinite.problems import Matrix, MatrixProblems

NEGLIGIBLE = 1e-6
"""Singular values below this, relative to the first, are removed if the gap does not grow."""

LEFT_OUT = np.zeros((1, 1, 1))
"""Placeholder for the change of D in the nuclear norm, which follows from that of λ."""


class ConeIterate(NamedTuple):
    """An iterate with positive definite matrices; or a change of one, without the parts that the tie determines."""

    free: Matrix
    tied: Matrix
    multipliers: RowVector
    slack: RowVector


class Scaling(NamedTuple):
    """R with R⁻¹ (free) R⁻' = R' (tied) R = diag(d)."""

    R: Matrix
    d: Float[np.ndarray, "N K"]


class ConeStep(NamedTuple):
    """A change of the iterate, and that of its matrices in the scaled coordinates."""

    state: ConeIterate
    scaled_free: Matrix
    scaled_tied: Matrix

    def plus(self, more: "ConeStep", share: Values) -> "ConeStep":
        """Add a share of another change."""

        def sum_of(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
            return np.asarray(whole + share.reshape(-1, *[1] * (part.ndim - 1)) * part)

        return ConeStep(ConeIterate(*map(sum_of, self.state, more.state)), *map(sum_of, self[1:], more[1:]))


class NewtonEquations(Protocol):
    """The equations of one iterate, eliminated."""

    failed: Bool[np.ndarray, " N"]

    def solve(self, target: Matrix, row_target: RowVector, lacking: RowVector) -> ConeStep:
        """Return the step for T = ``target``, sΔλ + λΔs = ``row_target`` and A(ΔW) − Δs = ``lacking``."""


class Cone(Protocol):
    """The parts of the iteration that depend on the norm."""

    primal_is_free: ClassVar[bool]
    face: ClassVar[Face]

    def start(self, problems: MatrixProblems, multipliers: RowVector) -> ConeIterate:
        """Return a point well inside, with W and λ of size 1; multipliers of inequalities are positive."""

    def weights(self, state: ConeIterate) -> Block:
        """Return W of a state."""

    def value(self, state: ConeIterate) -> Values:
        """Return an upper bound on N(W)."""

    def move(self, problems: MatrixProblems, state: ConeIterate, change: ConeIterate, lengths: Lengths) -> ConeIterate:
        """Return the state after a step, its matrices consistent with λ to the last digit."""

    def newton(self, problems: MatrixProblems, state: ConeIterate, scaling: Scaling) -> NewtonEquations:
        """Return the equations of a step."""

    def cleaned(self, problems: MatrixProblems, found: Point, target: float) -> Point:
        """Remove the small parts that an interior point has and the optimum has not, if the gap allows."""


@dataclass(frozen=True)
class NuclearCone:
    """P is free, with W in its corner; D = ½I − lift(A*(λ)) is tied to λ."""

    split: int  # d_k
    primal_is_free: ClassVar[bool] = True
    face: ClassVar[Face] = NuclearFace()

    def start(self, problems: MatrixProblems, multipliers: RowVector) -> ConeIterate:
        """Return a point on the central path, P = μ D⁻¹, except that A(W) − s = b may not hold."""
        # ‖A*(λ)‖ = 0.9 is inside the dual ball, and μ makes the nuclear norm of W the size of the value
        image = problems.rows.adjoint(multipliers)
        shrink = 0.9 / np.linalg.svd(image, compute_uv=False)[:, :1]
        multipliers = multipliers * shrink
        tied = _half_minus(image * shrink[:, :, None])
        inverse = np.linalg.inv(tied)
        mu = 0.4 / np.linalg.svd(inverse[:, : self.split, self.split :], compute_uv=False).sum(axis=-1)
        free = inverse * mu[:, None, None]
        slack = _start_slack(problems, free[:, : self.split, self.split :], multipliers, mu)
        return ConeIterate(free, tied, multipliers, slack)

    def weights(self, state: ConeIterate) -> Block:
        return state.free[:, : self.split, self.split :]

    def value(self, state: ConeIterate) -> Values:
        """Return ½ tr P."""
        return np.asarray(0.5 * np.trace(state.free, axis1=-2, axis2=-1))

    def move(self, problems: MatrixProblems, state: ConeIterate, change: ConeIterate, lengths: Lengths) -> ConeIterate:
        """Compute D from λ."""
        primal, dual = lengths
        multipliers = state.multipliers + dual[:, None] * change.multipliers
        free = state.free + primal[:, None, None] * change.free
        tied = _half_minus(problems.rows.adjoint(multipliers))
        return ConeIterate(free, tied, multipliers, state.slack + primal[:, None] * change.slack)

    def newton(self, problems: MatrixProblems, state: ConeIterate, scaling: Scaling) -> "_NuclearNewton":
        return _NuclearNewton(problems, state, scaling, self.split)

    def cleaned(self, problems: MatrixProblems, found: Point, target: float) -> Point:
        """Remove the small singular values that an interior point keeps above 0, as long as the gap does not grow."""
        U, sigma, Vt = np.linalg.svd(found.weights, full_matrices=False)
        sigma = np.where(sigma > NEGLIGIBLE * sigma[:, :1], sigma, 0.0)
        weights, value = (U * sigma[:, None, :]) @ Vt, sigma.sum(axis=-1)
        gap, _ = problems.measure(weights, problems.rows.apply(weights), value, found.multipliers, target)
        fine = gap <= np.maximum(found.gap, target)
        weights = np.where(fine[:, None, None], weights, found.weights)
        return found._replace(weights=weights, gap=np.where(fine, gap, found.gap))


class _NuclearNewton:
    """ΔD = −lift(A*(Δλ)) and ΔP = R T R' − G ΔD G, G = RR', in A(ΔW) − Δs = lacking.

    The matrix A [G lift(A*(·)) G]₁₂ has the entries ½ (l_a'G₁₁l_b · z_a'G₂₂z_b + l_a'G₁₂z_b · l_b'G₁₂z_a).
    """

    def __init__(self, problems: MatrixProblems, state: ConeIterate, scaling: Scaling, split: int) -> None:
        self.rows, self.R = problems.rows, scaling.R
        self.upper, self.lower = self.R[:, :split], self.R[:, split:]
        self.equations = _RowEquations(self._matrix(), state, problems.equality)
        self.failed = self.equations.failed

    def _matrix(self) -> Float[np.ndarray, "N m m"]:
        rows, of = self.rows, self.rows.query_of
        left, queries = rows.left @ self.upper, rows.queries @ (0.5**0.5 * self.lower)
        # with G = RR', the products of rows of R are those with G; the root of ½ is in the queries
        crossed = (left @ queries.mT).take(of, axis=2)
        matrix = left @ left.mT
        matrix *= (queries @ queries.mT).take(of, axis=1).take(of, axis=2)
        matrix += crossed * crossed.mT
        return np.asarray(matrix)

    def solve(self, target: Matrix, row_target: RowVector, lacking: RowVector) -> ConeStep:
        # A([G lift(A*(Δλ)) G]₁₂) − Δs = lacking − A([R T R']₁₂)
        pushed = self.rows.apply(self.upper @ target @ self.lower.mT)
        multipliers, slack = self.equations.solve(lacking - pushed, row_target)
        # R'ΔD R, and what is left of T for R⁻¹ΔP R⁻'
        half = -0.5 * (self.upper.mT @ self.rows.adjoint(multipliers) @ self.lower)
        scaled_tied = half + half.mT
        scaled_free = target - scaled_tied
        return ConeStep(
            ConeIterate(self.R @ scaled_free @ self.R.mT, LEFT_OUT, multipliers, slack), scaled_free, scaled_tied
        )


@dataclass(frozen=True)
class SpectralCone:
    """P = tI + 2 lift(W) is tied to W and t; D is free, with −½A*(λ) in its corner and trace 1."""

    split: int  # d_k
    primal_is_free: ClassVar[bool] = False
    face: ClassVar[Face] = SpectralFace()

    def start(self, problems: MatrixProblems, multipliers: RowVector) -> ConeIterate:
        """Return W along A*(λ), and D with the singular vectors of its corner and eigenvalues above 0."""
        image = problems.rows.adjoint(multipliers)
        # W along A*(λ) with N(W) = 1, and t a little above
        U, sigma, Vt = np.linalg.svd(image)
        weights = image / sigma[:, :1, None]
        tied = 2 * lift(weights)
        diagonal_of(tied)[:] = 1 / 0.9
        # diagonal blocks UΣU' and VΣV' with Σ above ½σ make D positive definite; then its trace is scaled to 1
        floor = 0.1 * sigma.mean(axis=-1, keepdims=True)
        lifted = np.hypot(0.5 * sigma, floor)
        free = -lift(image)
        for own, basis in ((slice(self.split), U), (slice(self.split, None), Vt.mT)):
            spread = np.repeat(floor, basis.shape[-1], axis=1)
            spread[:, : sigma.shape[1]] = lifted
            free[:, own, own] = (basis * spread[:, None, :]) @ basis.mT
        shrink = 1 / np.trace(free, axis1=-2, axis2=-1)
        multipliers = multipliers * shrink[:, None]
        free *= shrink[:, None, None]
        mu = np.vecdot(free.reshape(len(free), -1), tied.reshape(len(tied), -1)) / tied.shape[-1]
        return ConeIterate(free, tied, multipliers, _start_slack(problems, weights, multipliers, mu))

    def weights(self, state: ConeIterate) -> Block:
        return state.tied[:, : self.split, self.split :]

    def value(self, state: ConeIterate) -> Values:
        """Return the bound t."""
        return state.tied[:, 0, 0]

    def move(self, problems: MatrixProblems, state: ConeIterate, change: ConeIterate, lengths: Lengths) -> ConeIterate:
        """Compute the corner of D from λ; its trace stays 1."""
        primal, dual = lengths
        multipliers = state.multipliers + dual[:, None] * change.multipliers
        free = state.free + dual[:, None, None] * change.free
        corner = -0.5 * problems.rows.adjoint(multipliers)
        free[:, : self.split, self.split :] = corner
        free[:, self.split :, : self.split] = corner.mT
        tied = state.tied + primal[:, None, None] * change.tied
        return ConeIterate(free, tied, multipliers, state.slack + primal[:, None] * change.slack)

    def newton(self, problems: MatrixProblems, state: ConeIterate, scaling: Scaling) -> "_SpectralNewton":
        return _SpectralNewton(problems, state, scaling, self.split)

    def cleaned(self, problems: MatrixProblems, found: Point, target: float) -> Point:
        return found


class _SpectralNewton:
    """ΔP = (Δt/t) P + 2 lift(B) and ΔD = R T R' − G ΔP G, G = RR', in tr D, the corner of D and A(ΔW) − Δs = lacking.

    With H(B) = G₁₁ B G₂₂ + G₁₂ B' G₁₂ and g the corner of GPG/t, the equations of trace and corner are

        2⟨g, B⟩ + Δt ‖d‖²/t² = ⟨d, T⟩/t + tr D − 1 + ⟨A(W), Δλ⟩/t,    H(B) + Δt g = (R T R')₁₂ + ½A*(Δλ).

    P is used in place of I, because GPG = D, while products of G with I would be very large. All computations are in
    :class:`PrincipalCoordinates`, in which H is nearly diagonal.
    """

    def __init__(self, problems: MatrixProblems, state: ConeIterate, scaling: Scaling, split: int) -> None:
        self.rows, self.R = problems.rows, scaling.R
        size = state.tied[:, 0, 0]
        self.along = scaling.d / size[:, None]  # R'(P/t)R
        self.weights = state.tied[:, :split, split:] / size[:, None, None]
        self.principal = PrincipalCoordinates(self.R, split)
        # H⁻¹g, and the part of A(W)/t that H⁻¹g does not explain
        self.turned = self.principal.solve(self.principal.corner(self.along[:, :, None] * np.eye(self.along.shape[-1])))
        self.tilt = self.rows.apply(self.weights - self.principal.block(self.turned))
        # ‖d‖²/t² − 2⟨g, H⁻¹g⟩, as a square: it must not become negative
        left_over = -self.principal.lifted(self.turned)
        diagonal_of(left_over)[:] += self.along
        self.stiff = np.square(left_over).sum(axis=(-2, -1))
        self.off_trace = np.trace(state.free, axis1=-2, axis2=-1) - 1
        # A(ΔW) from Δλ: ½ A H⁻¹ A*, plus the part of rank one through Δt
        matrix = self.principal.gram(self.rows)
        matrix *= 0.5
        matrix += self.tilt[:, :, None] * (self.tilt / self.stiff[:, None])[:, None, :]
        self.equations = _RowEquations(matrix, state, problems.equality)
        self.failed = self.equations.failed

    def solve(self, target: Matrix, row_target: RowVector, lacking: RowVector) -> ConeStep:
        principal = self.principal
        # B and Δt without Δλ: B = rest − Δt H⁻¹g, Δt = load/stiff
        pushed = principal.corner(target)
        rest = principal.solve(pushed)
        load = np.vecdot(self.along, diagonal_of(target)) + self.off_trace
        load -= 2 * (self.turned * pushed).sum(axis=(-2, -1))
        right = lacking - self.rows.apply(principal.block(rest)) - self.tilt * (load / self.stiff)[:, None]
        multipliers, slack = self.equations.solve(right, row_target)
        # Δt and B with Δλ, and the change of P in scaled and original coordinates
        grown = ((load + np.vecdot(self.tilt, multipliers)) / self.stiff)[:, None, None]
        pulled = principal.solve(0.5 * principal.dual(self.rows.adjoint(multipliers)))
        turned = rest + pulled - grown * self.turned
        scaled_tied = principal.lifted(turned)
        diagonal_of(scaled_tied)[:] += grown[:, 0] * self.along
        scaled_free = target - scaled_tied
        tied = 2 * lift(principal.block(turned) + grown * self.weights)
        diagonal_of(tied)[:] = grown[:, 0]
        return ConeStep(
            ConeIterate(self.R @ scaled_free @ self.R.mT, tied, multipliers, slack), scaled_free, scaled_tied
        )


class _RowEquations:
    """The system M Δλ = r − …, M = A(·)A* + diag(s/λ), that remains after the elimination in both norms."""

    def __init__(
        self, matrix: Float[np.ndarray, "N m m"], state: ConeIterate, equality: Bool[np.ndarray, "N m"]
    ) -> None:
        self.multipliers = np.where(equality, 1.0, state.multipliers)
        self.slack = state.slack  # 0 on equalities, like the target, so it stays 0
        self.system = RowSystem(matrix, self.slack / self.multipliers)
        self.failed = self.system.failed

    def solve(self, right: RowVector, row_target: RowVector) -> tuple[RowVector, RowVector]:
        """Solve for Δλ and Δs."""
        change = self.system.solve(right + row_target / self.multipliers)
        return change, (row_target - self.slack * change) / self.multipliers


def _half_minus(image: Block) -> Matrix:
    """½I − lift(image)."""
    tied = lift(-image)
    diagonal_of(tied)[:] = 0.5
    return tied


def _start_slack(problems: MatrixProblems, weights: Block, multipliers: RowVector, mu: Values) -> RowVector:
    """Slack near the central path, sλ = μ; none of equalities."""
    central = 0.1 * mu[:, None] / np.where(problems.equality, 1.0, multipliers)
    slack = np.maximum(problems.rows.apply(weights) - problems.right, central)
    return np.where(problems.equality, 0.0, slack)
