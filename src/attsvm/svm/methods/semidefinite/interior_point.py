r"""Interior point for the least nuclear or spectral norm under rank-one rows, many problems together.

Both norms are semidefinite: with symmetric matrices of size K = d_k + d_q, of W and of A*(λ),

    nuclear:  ½ tr P least, P = [[·, W], [W', ·]] ⪰ 0;       D = ½ [[I, −A*(λ)], [−A*(λ)', I]] ⪰ 0
    spectral: t least,      P = [[tI, W], [W', tI]] ⪰ 0;     D = ½ [[·, −A*(λ)], [−A*(λ)', ·]] ⪰ 0, tr D = 1

are each other's duals under A(W) − s = b, s ≥ 0, λ ≥ 0, and ½ tr P or t exceeds b'λ by ⟨P, D⟩ + ⟨λ, s⟩. In each, one of
the two matrices has *free* diagonal blocks and the other is *tied* to a vector (λ, or W and t). With Nesterov and
Todd's scaling, R⁻¹ (free) R⁻' = R' (tied) R = diag(d), the linearised PD = μI reads

    R⁻¹ Δfree R⁻' + R' Δtied R = T,

and eliminating all unknowns except λ leaves one m × m matrix per step, which is cheap because the rows have rank one.
The elimination depends on the cone (``nuclear.py``, ``spectral.py``).
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg.lapack import dpotrf

from attsvm._utils.linear_algebra import diagonal_of, eigh, eigvalsh
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.methods.semidefinite.cone import (
    Cone,
    Lengths,
    Newton,
    Problems,
    Scaling,
    State,
    Step,
    Values,
    measure,
)
from attsvm.svm.methods.semidefinite.directly import solve_directly

Falls = Float[np.ndarray, "2 N"]

DIVERGED = 1e4
"""If the lower bound exceeds the guess of the value by this factor, the selection is infeasible or the guess is bad."""

MAX_REFINEMENTS = 6

REFINED = 1e-11
"""Largest residual of the equations of the rows after a step, relative to the smallest right side."""

FINISH_FROM, FINISH_AGAIN = 0.1, 0.1
"""The gap at which the direct method is tried for the first time, and the factor by which it falls between trials."""


def interior_point(
    cone: Cone,
    problems: Problems,
    multipliers: RowVector,
    target: float,
    max_steps: int,
    report: Report | None = None,
) -> Point:
    """Least N(W) for N problems together.

    ``cone``: the norm. ``problems``: with at least one positive right side each, and a value between about 1e-3 and
    1e3. ``multipliers``: shape (N, m), the initial multipliers at any scale; not negative, except for equalities.
    ``target``: relative gap at which the iteration of a problem ends. It also ends when the gap has stopped falling, or
    when the lower bound shows that the value is far from 1. ``report``: called as ``report(step, gap)``; a true return
    value ends the iteration.

    References: Nesterov and Todd (1997), *Self-scaled barriers and interior-point methods for convex programming*. Toh,
    Todd and Tütüncü (1999), *SDPT3*, for predictor, corrector and step lengths. Liu and Vandenberghe (2009),
    *Interior-point method for nuclear norm approximation with application to system identification*.
    """
    state = cone.start(problems, multipliers)
    path = _CentralPath(cone, problems, state, target)
    start = Point.unsolved(cone.weights(state), state.multipliers)
    return iterate(path, start, Stop(target, max_steps, patience=3), report)


class _CentralPath(Iteration):
    """The problems that still run, and their iterates."""

    def __init__(self, cone: Cone, problems: Problems, state: State, target: float) -> None:
        self.cone, self.problems, self.state, self.target = cone, problems, state, target
        self.next_finish = np.full(len(state.multipliers), FINISH_FROM)

    def evaluate(self) -> Iterates:
        """The iterates; near the optimum the results of the direct method, where they are precise enough."""
        cone, problems, state, target = self.cone, self.problems, self.state, self.target
        point = cone.weights(state)
        self.image = problems.rows.apply(point)
        error, bound = measure(problems, point, self.image, cone.value(state), state.multipliers, target)
        multipliers = state.multipliers
        near = np.flatnonzero(error < self.next_finish)
        if len(near):
            self.next_finish[near] = FINISH_AGAIN * error[near]
            found = _finished(cone, problems, state, near, target)
            done = found.gap <= target
            near = near[done]
            point, multipliers, error = point.copy(), multipliers.copy(), error.copy()
            point[near], multipliers[near], error[near] = found.weights[done], found.multipliers[done], found.gap[done]
        diverged = bound > DIVERGED
        return Iterates(point, multipliers, error, ~diverged & np.isfinite(bound), diverged)

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.problems, self.image = self.problems.keep(going), self.image[going]
        self.state = State(*(part[going] for part in self.state))
        self.next_finish = self.next_finish[going]

    def advance(self) -> None:
        """Make one predictor-corrector step."""
        primal = self.problems.right + self.state.slack - self.image
        self.state = _advance(self.cone, self.problems, self.state, primal)


def _finished(cone: Cone, problems: Problems, state: State, some: Int[np.ndarray, " some"], target: float) -> Point:
    """Some of the problems by the direct method, from a point near the optimum."""
    own = problems if len(some) == len(problems.right) else problems.keep(some)
    weights, multipliers, slack = cone.weights(state)[some], state.multipliers[some], state.slack[some]
    held = multipliers * slack.max(axis=-1, keepdims=True) > slack * multipliers.max(axis=-1, keepdims=True)
    held = (held & (own.right >= 0)) | own.equality
    return solve_directly(cone.face, own, weights, multipliers, held, cone.value(state)[some], target)


def _scaling(state: State) -> tuple[Scaling, Bool[np.ndarray, " N"]]:
    """And where the matrices are no longer positive definite."""
    try:
        factor = np.linalg.cholesky(state.free)
        lost = np.zeros(len(factor), bool)
    except np.linalg.LinAlgError:
        answers = [dpotrf(matrix, lower=True, clean=True) for matrix in state.free]
        lost = np.array([failed != 0 for _, failed in answers])
        factor = np.stack([np.eye(len(part)) if failed else part for part, failed in answers])
    # near the central path every squared d is about μ: this loses fewer digits than the usual square would
    squares, vectors = eigh(factor.mT @ state.tied @ factor)
    lost |= squares[:, 0] <= 0
    d = np.sqrt(np.where(squares > 0, squares, 1.0))
    return Scaling(factor @ (vectors / np.sqrt(d)[:, None, :]), d), lost


def _refined(cone: Cone, problems: Problems, newton: Newton, step: Step, primal: RowVector) -> Step:
    """The step, with iterative refinement of A(ΔW) − Δs = ``primal``.

    Near infeasibility rows nearly cancel each other. At a value of V the matrix of the equations then has errors of
    eps·V², while its products with a step have errors of eps·V only, compared with right sides of 1/V.
    """
    allowed = REFINED * problems.smallest

    def left_of(step: Step) -> tuple[RowVector, Values]:
        rest = primal + step.change.slack
        rest -= problems.rows.apply(cone.weights(step.change))
        return rest, np.abs(rest).max(axis=-1)

    rest, size = left_of(step)
    for _ in range(MAX_REFINEMENTS):
        if np.all(size <= allowed):
            break
        more = newton.solve(np.zeros_like(step.scaled_free), np.zeros_like(primal), rest)
        rest, rest_size = left_of(_plus(step, more, np.ones(len(size))))
        better = rest_size <= 0.5 * size
        if not better.any():
            break
        step = _plus(step, more, better.astype(np.float64))
        size = np.where(better, rest_size, 0.0)  # the others do not improve any more
    return step


def _plus(step: Step, more: Step, share: Values) -> Step:
    def sum_of(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
        return np.asarray(whole + share.reshape(-1, *[1] * (part.ndim - 1)) * part)

    return Step(State(*map(sum_of, step.change, more.change)), *map(sum_of, step[1:], more[1:]))


def _advance(cone: Cone, problems: Problems, state: State, primal: RowVector) -> State:
    """One predictor-corrector step; NaN for a problem that breaks down."""
    scaling, lost = _scaling(state)
    d = scaling.d
    size, K = d.shape
    unequal, count = problems.unequal, K + problems.num_unequal
    products = state.multipliers * state.slack
    mu = (np.vecdot(d, d) + products.sum(axis=-1)) / count
    newton = cone.newton(problems, state, scaling)
    lost |= newton.failed
    root = 1 / np.sqrt(d)
    scale = root[:, :, None] * root[:, None, :]
    # on equalities, positive numbers to divide by, and no decrease
    fixed = 1 - unequal
    row_scale = np.stack([unequal / (state.slack + fixed), unequal / (state.multipliers * unequal + fixed)])

    def longest(step: Step, falls: Falls) -> Lengths:
        """The primal and dual step lengths to the first bound, at most 10, from the decreases of both matrices."""
        if not cone.primal_is_free:
            falls = falls[::-1]
        rows = (np.stack([step.change.slack, step.change.multipliers]) * row_scale).min(axis=-1)
        primal_length, dual_length = 1 / np.maximum(np.maximum(falls, -rows), 0.1)
        return primal_length, dual_length

    target = np.zeros_like(scaling.R)
    diagonal_of(target)[:] = -d
    guess = newton.solve(target, -products, primal)
    free, tied = guess.scaled_free, guess.scaled_tied
    values = eigvalsh(free * scale)
    # in these coordinates the two changes are −I together
    lengths = longest(guess, np.stack([-values[:, 0], 1 + values[:, -1]]))
    primal_length, dual_length = (np.minimum(length, 1.0) for length in lengths)
    free_length, tied_length = (primal_length, dual_length) if cone.primal_is_free else (dual_length, primal_length)
    # ⟨P, D⟩ + ⟨λ, s⟩ ahead; the matrices in the scaled coordinates
    ahead = (
        np.vecdot(d, d + free_length[:, None] * diagonal_of(free))
        + np.vecdot(d, diagonal_of(tied)) * tied_length
        + np.vecdot(free.reshape(size, -1), tied.reshape(size, -1)) * (free_length * tied_length)
        + np.vecdot(
            state.multipliers + dual_length[:, None] * guess.change.multipliers,
            state.slack + primal_length[:, None] * guess.change.slack,
        )
    )
    # cautious where the predictor was cut short
    reached = np.minimum(primal_length, dual_length)
    aim = mu * np.clip(ahead / (count * mu), 1e-6, 1.0) ** np.maximum(1.0, 2 * reached**2)

    product = free @ tied
    target = product + product.mT
    target *= -0.5
    diagonal_of(target)[:] += aim[:, None] - d**2
    target *= 2 / (d[:, :, None] + d[:, None, :])
    row_target = aim[:, None] - products - guess.change.multipliers * guess.change.slack
    step = _refined(cone, problems, newton, newton.solve(target, unequal * row_target, primal), primal)
    falls = np.stack([-eigvalsh(part * scale)[:, 0] for part in (step.scaled_free, step.scaled_tied)])
    near = 0.9 + 0.095 * reached
    primal_length, dual_length = (np.minimum(1.0, near * length) for length in longest(step, falls))
    return cone.move(problems, state, step.change, (primal_length, np.where(lost, np.nan, dual_length)))
