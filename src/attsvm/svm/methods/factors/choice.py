"""The least γ2, ν and fused norms: their values and dual norms are programs, so problems are solved one by one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms import JointNorm, Norm, Wrapper
from attsvm.norms.factors import (
    Densities,
    Diagonal,
    FusedHeads,
    FusedKeysQueries,
    Gamma2,
    KeyQueryFactors,
    Nu,
    SymmetricBlocks,
    bound_by_atoms,
    largest_in_dual_ball,
    largest_margin,
    nearest_multiple,
    spans,
)
from attsvm.svm.constraints.attention_heads import split_heads
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.rows import reduced_rows
from attsvm.svm.loop import Point
from attsvm.svm.methods.factors.problems import PairMargins
from attsvm.svm.methods.from_frobenius import Solved, Unsolved, from_frobenius
from attsvm.svm.methods.predictor_corrector import raised
from attsvm.svm.methods.registry import CACHED, Candidate, SolverSettings, solver
from attsvm.svm.tolerances import EPS

Proof = Callable[[np.ndarray], float | None]
"""A bound on a norm from above; None for a matrix that it says nothing about."""


@dataclass(frozen=True)
class Proved(Wrapper):
    """A norm whose value is a program, with bounds from above that are known for some matrices."""

    # proofs, dual_proofs: of the norm and of its dual norm
    proofs: tuple[Proof, ...] = field(compare=False, repr=False)
    dual_proofs: tuple[Proof, ...] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        """Allow a joint norm: it is the same norm, and not a part."""

    @property
    def head_axes(self) -> int:
        return self.of.head_axes

    @property
    def dual(self) -> Norm:
        """Return the dual norm with the bounds that are known of it."""
        return Proved(self.of.dual, self.dual_proofs, self.proofs)

    def value(self, x: Any, axes: int = 2) -> float:
        """Return the least bound that is known; otherwise that of the norm."""
        known = [bound for bound in (proof(np.asarray(x)) for proof in self.proofs) if bound is not None]
        return min(known) if known else float(self.of.value(x, axes))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return self.of.frobenius_factor(shape)


TARGET = 1e-3
"""The part of the tolerance at which a program ends. The bounds that certify its answer are a little larger."""

EARLY = 1e-10
"""With a larger gap at its end, the elliptope method says why."""


class Answer(NamedTuple):
    """What was found for one problem."""

    weights: Float[np.ndarray, "d_k d_q"]
    multipliers: TokenValues
    steps: int  # 0 if there is only a starting point. The answer is then that of the Frobenius norm.
    of_value: Proof | None = None  # of_value, of_dual: bounds on the norm of the weights and on the dual norm of A*(λ)
    of_dual: Proof | None = None
    why: str = ""  # it has this gap, if it is not small


def one_by_one(
    constraints: Constraints,
    norm: Norm,
    settings: SolverSettings,
    solve: Callable[[Constraints, TokenValues, SolverSettings], Answer],
    method: str,
    why: str,
) -> Candidate:
    """Solve the problems of a batch one after the other.

    ``solve``: called with a batch axis of length 1, the multipliers in the Frobenius norm, and the settings.

    Raises ProblemError if the weights have two blocks, so that rows have rank two.
    """
    if constraints.blocks is not None:
        raise ProblemError(
            f"norm: expected an entrywise norm, nuclear or spectral for a problem with bias_index, got {norm.name}"
        )
    answers: list[Answer] = []

    def solve_one(given: Unsolved) -> Solved:
        found = solve(given.constraints, given.multipliers, replace(given.settings, report=given.watch))
        if found.steps == 0:
            return Point.unsolved(given.weights, given.multipliers), "", ""
        answers.append(found)
        point = Point(found.weights[None], found.multipliers[None], np.zeros(1), np.array([found.steps]))
        return point, method, why + next((each.why for each in answers if each.why), "")

    candidate = from_frobenius(constraints, settings, solve_one, method, CACHED, alone=True)
    proved = Proved(
        norm,
        tuple(found.of_value for found in answers if found.of_value is not None),
        tuple(found.of_dual for found in answers if found.of_dual is not None),
    )
    return candidate._replace(norm=proved) if answers else candidate


WHY = "the norm is a semidefinite program with rows of rank one"

ELLIPTOPE = "elliptope"


@solver(Gamma2, methods=(ELLIPTOPE,))
def solve_gamma2(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Find the least γ2 norm by the largest margin over its unit ball."""
    return one_by_one(constraints, norm, settings, _solve_elliptope, ELLIPTOPE, WHY)


def _solve_elliptope(constraints: Constraints, multipliers: TokenValues, settings: SolverSettings) -> Answer:
    # the norm is that of these coordinates, so the weights are not restricted to the span of the data
    reduced = reduced_rows(constraints, left=False, right=False)
    unit, split = reduced.unit, constraints.weights_shape[0]
    rows, balance = PairMargins([reduced.rows], [unit]), Diagonal(sum(constraints.weights_shape))
    start = raised(unit.gather(multipliers)[0], rows.equality)
    found = largest_margin(rows, balance, start, split, max_steps=settings.max_steps, report=settings.report)
    spread = unit.spread(found.multipliers[None], constraints.inequality.shape[1:])[0]
    factors = np.linalg.cholesky(found.matrices[0])
    factors /= np.sqrt(np.vecdot(factors, factors))[:, None]  # the diagonal of X is 1 but for rounding errors
    left, right = factors[:split], factors[split:]
    weights, asked = left @ right.T, rows.right > 0
    gap = 1 - float((rows.apply(weights[None])[asked] / rows.right[asked]).min() / found.free.sum())
    why = f"; rounding ended it at a gap of {gap:.1e}" if gap > EARLY and not found.limited else ""
    return Answer(weights, spread, found.steps, partial(_bound_by_rows, left, right), why=why)


def _bound_by_rows(left: np.ndarray, right: np.ndarray, x: np.ndarray) -> float:
    """Bound γ2(x) by the rows of two factors of a multiple near to x and a bound on the rest, if that is less."""
    nearest, own = nearest_multiple(left @ right.T, x), float(Gamma2().value(x))
    if nearest is None:
        return own
    factor, rest = nearest
    size = float(np.sqrt(np.vecdot(left, left).max() * np.vecdot(right, right).max()))
    rounding = EPS * (4 + left.shape[1]) * np.sqrt(min(x.shape))
    return min(own, float(abs(factor) * size * (1 + rounding) + np.linalg.norm(rest, 2)))


SIGN_CUTS = "sign-cuts"


@solver(Nu, methods=(SIGN_CUTS, ELLIPTOPE))
def solve_nu(constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None) -> Candidate:
    """Find the least ν by linear programs; for large matrices the least γ2, which brackets it."""
    if method == ELLIPTOPE or not Nu.is_exact(constraints.weights_shape):
        found = solve_gamma2(constraints, norm, settings)
        why = "too many signs to enumerate: the least gamma2 norm is within 1.783 of the least nu"
        return found._replace(why=why, norm=None)  # the bounds that were found are on gamma2, not on nu
    why = "the norm is a linear program over vectors of signs"
    return one_by_one(constraints, norm, settings, _solve_by_cuts, SIGN_CUTS, why)


def _solve_by_cuts(constraints: Constraints, multipliers: TokenValues, settings: SolverSettings) -> Answer:
    reduced = reduced_rows(constraints, left=False, right=False)
    rows, unit = reduced.rows, reduced.unit
    left, queries = rows.left[0], rows.queries[0][rows.query_of]
    found = largest_in_dual_ball(
        unit.right[0],
        left[:, :, None] * queries[:, None, :],
        unit.equality[0],
        unit.gather(multipliers)[0],
        good_gap=TARGET * settings.tol,
        max_steps=settings.max_steps,
        report=settings.report,
    )
    spread = unit.spread(found.multipliers[None], constraints.inequality.shape[1:])[0]
    return Answer(found.atoms.sum, spread, found.rounds, partial(bound_by_atoms, found.atoms))


BLOCKS = "fused-blocks"


@solver(FusedKeysQueries, methods=(BLOCKS,))
def solve_fused_keys_queries(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Find the least ‖[K, Q]‖² over W = KQ'."""
    _ = norm.values(np.zeros(constraints.weights_shape))  # raises where keys and queries differ in dimension
    return one_by_one(constraints, norm, settings, partial(_solve_fused, 1, True), BLOCKS, WHY)


@solver(FusedHeads, methods=(BLOCKS,))
def solve_fused_heads(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Find the least ‖[K_1 … K_H]‖ ‖[Q_1 … Q_H]‖ over W_h = K_h Q_h'."""
    assert isinstance(norm, JointNorm)
    assert norm.num_heads is not None
    return one_by_one(constraints, norm, settings, partial(_solve_fused, norm.num_heads, False), BLOCKS, WHY)


def _solve_fused(
    num_heads: int, tied: bool, constraints: Constraints, multipliers: TokenValues, settings: SolverSettings
) -> Answer:
    heads = split_heads(constraints, num_heads)[0]
    each = [reduced_rows(heads[h : h + 1], left=False, right=False) for h in range(num_heads)]
    bases = spans(
        np.concatenate([one.rows.left[0] for one in each]).T,
        np.concatenate([one.rows.queries[0] for one in each]).T,
        tied,
    )
    rows = PairMargins(
        [one.rows._replace(left=one.rows.left @ bases[0], queries=one.rows.queries @ bases[1]) for one in each],
        [one.unit for one in each],
    )
    own = multipliers.reshape(num_heads, *heads.inequality.shape[1:])
    start = np.concatenate([one.unit.gather(part[None])[0] for one, part in zip(each, own, strict=True)])
    split = bases[0].shape[1]
    balance = SymmetricBlocks((split, bases[1].shape[1]), tied)
    # one step more is expensive in large problems
    good_gap, limit = TARGET * settings.tol, settings.max_steps
    found = largest_margin(rows, balance, raised(start, rows.equality), split, good_gap, limit, settings.report)
    # back from the span of the data
    corners = bases[0] @ found.matrices[:, :split, split:] @ bases[1].T
    parts = np.split(found.multipliers, np.cumsum([len(one.unit.position) for one in each])[:-1])
    spread = np.concatenate(
        [one.unit.spread(part[None], heads.inequality.shape[1:]) for one, part in zip(each, parts, strict=True)]
    )
    return Answer(
        corners.reshape(constraints.weights_shape),
        spread.reshape(constraints.inequality.shape[1:]),
        found.steps,
        KeyQueryFactors.of(found, bases, tied),
        Densities.of(found, balance, bases, tied),
    )
