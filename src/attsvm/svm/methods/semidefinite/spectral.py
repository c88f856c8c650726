"""The least spectral norm, to which spectral descent and Muon are conjectured to converge."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from attsvm._utils.linear_algebra import diagonal_of
from attsvm.norms import Norm, Spectral
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.pair_rows import Block, PairRows
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Point
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.generic.solve_generic import SPLITTING, solve_generic
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.cone import (
    Lengths,
    Matrix,
    Problems,
    RowEquations,
    Scaling,
    State,
    Step,
    Values,
    lift,
    start_slack,
)
from attsvm.svm.methods.semidefinite.face import Face, Singular
from attsvm.svm.methods.semidefinite.solve_semidefinite import METHODS, solve_semidefinite

COLUMNS = 1_000_000
"""Numbers in the factors that are multiplied at a time."""


class SpectralFace:
    """The face on which W has r singular values t and A*(λ) has rank r and trace norm 1.

    tr S = 1 and U₂'A*(λ)V₂ = 0, with the unknowns t and U₂'WV₂.
    """

    mix: ClassVar[float] = 3.0
    ridge: ClassVar[float] = 1.0

    def mixed(self, weights: Block, pull: Block) -> Block:
        """Return W, which is X."""
        return np.asarray(weights + self.mix * pull)

    def first_size(self, value: Values) -> Values:
        return value

    def sizes(self, core: Singular, rest: Singular) -> tuple[Singular, Singular]:
        """A*(λ) is U₁SV₁' on a face of the spectral norm."""
        return rest, core

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """U₂'WV₂; and t, in the first place."""
        free = ~(inside[:, None] | inside[: sums.shape[1]])
        free[0, 0] = True
        return np.asarray(free)

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """The first r singular values of W are t."""
        c = diagonal.shape[1]
        diagonal[:, 0] = np.einsum("nc...,nc->n...", diagonal, inside[:, :c])
        if pull is not None:
            diagonal[:, 0] += pull.sum(axis=-1) - 1

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """Repeat t r times."""
        diagonal[:, 1:] += inside[:, 1 : diagonal.shape[-1]] * diagonal[:, :1]

    def size(self, before: Values, weights: Block) -> Values:
        """The first singular value."""
        return weights[:, 0, 0].copy()

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        """The largest and their sum."""
        return weights[:, 0], pull.sum(axis=-1)


@dataclass(frozen=True)
class SpectralCone:
    """P = tI + 2 lift(W) is tied to W and t; D is free, with −½A*(λ) in its corner and trace 1."""

    split: int  # d_k
    primal_is_free: ClassVar[bool] = False
    face: ClassVar[Face] = SpectralFace()

    def start(self, problems: Problems, multipliers: RowVector) -> State:
        """W along A*(λ), and D with the singular vectors of its corner and eigenvalues above 0."""
        image = problems.rows.adjoint(multipliers)
        U, sigma, Vt = np.linalg.svd(image)
        weights = image / sigma[:, :1, None]
        tied = 2 * lift(weights)
        diagonal = np.arange(tied.shape[-1])
        tied[:, diagonal, diagonal] = 1 / 0.9
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
        return State(free, tied, multipliers, start_slack(problems, weights, multipliers, mu))

    def weights(self, state: State) -> Block:
        return state.tied[:, : self.split, self.split :]

    def value(self, state: State) -> Values:
        """Return the bound t."""
        return state.tied[:, 0, 0]

    def move(self, problems: Problems, state: State, change: State, lengths: Lengths) -> State:
        """The corner of D from λ, and a trace of 1."""
        primal_length, dual_length = lengths
        multipliers = state.multipliers + dual_length[:, None] * change.multipliers
        free = state.free + dual_length[:, None, None] * change.free
        corner = -0.5 * problems.rows.adjoint(multipliers)
        free[:, : self.split, self.split :] = corner
        free[:, self.split :, : self.split] = corner.mT
        tied = state.tied + primal_length[:, None, None] * change.tied
        return State(free, tied, multipliers, state.slack + primal_length[:, None] * change.slack)

    def newton(self, problems: Problems, state: State, scaling: Scaling) -> "_Equations":
        return _Equations(problems, state, scaling, self.split)

    def cleaned(self, problems: Problems, found: Point, target: float) -> Point:
        return found


@solver(Spectral, methods=METHODS)
def solve_spectral(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least spectral norm; see :func:`solve_semidefinite`."""
    if method == SPLITTING:
        return solve_generic(constraints, norm, settings, method)
    return solve_semidefinite(constraints, norm, SpectralCone, settings, method)


class _Equations:
    """ΔP = (Δt/t) P + 2 lift(B) and ΔD = R T R' − G ΔP G, G = RR', in trace and corner of D and in A(ΔW) − Δs = primal.

    With H(B) = G₁₁ B G₂₂ + G₁₂ B' G₁₂ and g the corner of GPG/t, the equations of trace and corner are

        2⟨g, B⟩ + Δt ‖d‖²/t² = ⟨d, T⟩/t + tr D − 1 + ⟨A(W), Δλ⟩/t,    H(B) + Δt g = (R T R')₁₂ + ½A*(Δλ).

    P is used in place of I, because GPG = D, while products of G with I would be very large. All computations are in
    :class:`_Principal` coordinates.
    """

    def __init__(self, problems: Problems, state: State, scaling: Scaling, split: int) -> None:
        self.rows, self.R = problems.rows, scaling.R
        size = state.tied[:, 0, 0]
        self.along = scaling.d / size[:, None]  # R'(P/t)R
        self.weights = state.tied[:, :split, split:] / size[:, None, None]
        self.principal = _Principal(self.R, split)
        self.turned = self.principal.solve(self.principal.corner(self.along[:, :, None] * np.eye(self.along.shape[-1])))
        self.tilt = self.rows.apply(self.weights - self.principal.block(self.turned))
        # ‖d‖²/t² − 2⟨g, H⁻¹g⟩, as a square: it must not become negative
        left_over = -self.principal.lifted(self.turned)
        diagonal = np.arange(left_over.shape[-1])
        left_over[:, diagonal, diagonal] += self.along
        self.stiff = np.square(left_over).sum(axis=(-2, -1))
        self.off_trace = np.trace(state.free, axis1=-2, axis2=-1) - 1
        matrix = self.principal.gram(self.rows)
        matrix *= 0.5
        matrix += self.tilt[:, :, None] * (self.tilt / self.stiff[:, None])[:, None, :]
        self.equations = RowEquations(matrix, state, problems.equality)
        self.failed = self.equations.failed

    def solve(self, target: Matrix, row_target: RowVector, primal: RowVector) -> Step:
        principal = self.principal
        pushed = principal.corner(target)
        rest = principal.solve(pushed)
        diagonal = np.arange(target.shape[-1])
        load = np.vecdot(self.along, target[:, diagonal, diagonal]) + self.off_trace
        load -= 2 * (self.turned * pushed).sum(axis=(-2, -1))
        right = primal - self.rows.apply(principal.block(rest)) - self.tilt * (load / self.stiff)[:, None]
        multipliers, slack = self.equations.solve(right, row_target)
        grown = ((load + np.vecdot(self.tilt, multipliers)) / self.stiff)[:, None, None]
        pulled = principal.solve(0.5 * principal.dual(self.rows.adjoint(multipliers)))
        turned = rest + pulled - grown * self.turned
        scaled_tied = principal.lifted(turned)
        scaled_tied[:, diagonal, diagonal] += grown[:, 0] * self.along
        scaled_free = target - scaled_tied
        tied = 2 * lift(principal.block(turned) + grown * self.weights)
        tied[:, diagonal, diagonal] = grown[:, 0]
        return Step(State(self.R @ scaled_free @ self.R.mT, tied, multipliers, slack), scaled_free, scaled_tied)


class _Principal:
    """Coordinates Y of B = E₁ Y E₂' in which H couples the entries (i, j) and (j, i) only.

    With R' = (Q₁C₁', Q₂C₂') by columns and Q₁'Q₂ = U diag(k) V', E₁ = C₁⁻'U and E₂ = C₂⁻'V make H map Y_ij to
    Y_ij + k_i k_j Y_ji. The k are the cosines of the angles between the row spaces of the two parts of R. Near the
    solution many are 1 up to μ, and 1 − k_i k_j has to be accurate. It is computed from the sines, without G.

    References: Björck and Golub (1973), *Numerical methods for computing angles between linear subspaces*.
    """

    def __init__(self, R: Matrix, split: int) -> None:
        self.E1, self.E2, self.first, self.second, cosine, sine = _principal_vectors(R[:, :split], R[:, split:])
        self.short = cosine.shape[-1]
        products = cosine[:, :, None] * cosine[:, None, :]
        gaps = (sine[:, None, :] ** 2 + (sine[:, :, None] * cosine[:, None, :]) ** 2) / (1 + products)
        self.even, self.odd = 0.5 / (1 + products), 0.5 / gaps

    def block(self, turned: Block) -> Block:
        """Return B from its coordinates."""
        return np.asarray(self.E1 @ turned @ self.E2.mT)

    def dual(self, block: Block) -> Block:
        """E₁' B E₂, the coordinates of a linear form."""
        return np.asarray(self.E1.mT @ block @ self.E2)

    def corner(self, scaled: Matrix) -> Block:
        """The same of the corner of R X R'."""
        return np.asarray(self.first.mT @ scaled @ self.second)

    def lifted(self, turned: Block) -> Matrix:
        """Compute R' 2 lift(B) R."""
        half = self.first @ turned @ self.second.mT
        return np.asarray(half + half.mT)

    def solve(self, form: Block) -> Block:
        """Apply H⁻¹ to a linear form."""
        turned = form.copy()
        corner = form[:, : self.short, : self.short]
        even, odd = self.even * (corner + corner.mT), self.odd * (corner - corner.mT)
        turned[:, : self.short, : self.short] = even + odd
        return turned

    def gram(self, rows: PairRows) -> Float[np.ndarray, "N m m"]:
        """A H⁻¹ A* as a sum of products F F', some columns at a time: F has as many columns as W has entries."""
        left, queries = rows.left @ self.E1, (rows.queries @ self.E2)[:, rows.query_of]
        size, count, key_dim = left.shape
        # above the diagonal the sum of a pair, below it the difference, each with the root of its weight
        sign = np.where(np.triu(np.ones(self.even.shape[1:], bool)), 1.0, -1.0)
        weight = np.sqrt(np.where(sign > 0, self.even, self.odd))
        diagonal_of(weight)[:] *= np.sqrt(0.5)
        matrix = np.zeros((size, count, count))
        step = max(1, COLUMNS // (size * count * queries.shape[-1]))
        for first in range(0, key_dim, step):
            factors = left[:, :, first : first + step, None] * queries[:, :, None, :]
            own = slice(first, min(first + step, self.short))
            if first < self.short:
                pairs = queries[:, :, own, None] * left[:, :, None, : self.short]
                corner = factors[:, :, : pairs.shape[2], : self.short]
                corner[:] = weight[:, None, own] * (pairs + sign[own] * corner)
            factors = factors.reshape(size, count, -1)
            matrix += factors @ factors.mT
        return matrix


def _principal_vectors(
    upper: Float[np.ndarray, "N d_k K"], lower: Float[np.ndarray, "N d_q K"]
) -> tuple[np.ndarray, ...]:
    """E₁, E₂, the principal vectors Q₁U, Q₂V of the row spaces, and cosines and sines of the angles between them."""
    Q1, C1 = np.linalg.qr(upper.mT)
    Q2, C2 = np.linalg.qr(lower.mT)
    both = Q1.mT @ Q2
    U, cosine, Vt = np.linalg.svd(both)
    V = Vt.mT
    sine = np.sqrt((1 - cosine) * (1 + cosine))
    number = np.count_nonzero(cosine > 0.7, axis=-1)
    for near in np.unique(number[number > 0]).tolist():
        # cosines do not distinguish small angles
        some = np.flatnonzero(number == near)
        vectors = V[some, :, :near]
        off = (Q2[some] - Q1[some] @ both[some]) @ vectors
        _, sines, turn = np.linalg.svd(off, full_matrices=False)
        vectors = vectors @ turn.mT
        cosines = np.sqrt((1 - sines) * (1 + sines))
        V[some, :, :near], sine[some, :near], cosine[some, :near] = vectors, sines, cosines
        U[some, :, :near] = both[some] @ vectors / cosines[:, None]
    return np.linalg.solve(C1, U), np.linalg.solve(C2, V), Q1 @ U, Q2 @ V, cosine, sine
