"""The least norm of fused keys and queries, by the largest margin over its unit ball."""

from functools import partial

import numpy as np

from attsvm.norms import FusedHeads, FusedKeysQueries, Norm
from attsvm.norms.blocks import SymmetricBlocks
from attsvm.norms.elliptope import GOOD_GAP, MAX_STEPS, largest_margin
from attsvm.norms.fused_bounds import Densities, Factors, spans
from attsvm.norms.heads import JointNorm
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.heads import split_heads
from attsvm.svm.constraints.pair_rows import reduced_rows
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.one_by_one import TARGET, Answer, one_by_one
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.pair_margins import WHY, PairMargins

BLOCKS = "fused-blocks"


@solver(FusedKeysQueries, methods=(BLOCKS,))
def solve_fused_keys_queries(
    constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None
) -> Candidate:
    """Least ‖[K, Q]‖² over W = KQ'."""
    _ = norm.values(np.zeros(constraints.weights_shape))  # raises where keys and queries differ in dimension
    return one_by_one(constraints, norm, settings, partial(_solve, 1, True), BLOCKS, WHY)


@solver(FusedHeads, methods=(BLOCKS,))
def solve_fused_heads(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least ‖[K_1 … K_H]‖ ‖[Q_1 … Q_H]‖ over W_h = K_h Q_h'."""
    assert isinstance(norm, JointNorm)
    assert norm.num_heads is not None
    return one_by_one(constraints, norm, settings, partial(_solve, norm.num_heads, False), BLOCKS, WHY)


def _solve(
    num_heads: int, tied: bool, constraints: Constraints, multipliers: TokenValues, settings: Settings
) -> Answer:
    """One problem, given its multipliers in the Frobenius norm."""
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
    good_gap = max(GOOD_GAP, TARGET * settings.tol)
    limit = settings.max_steps or MAX_STEPS
    found = largest_margin(rows, balance, rows.inside(start), split, good_gap, limit, settings.report)
    corners = bases[0] @ found.matrices[:, :split, split:] @ bases[1].T
    parts = np.split(found.multipliers, np.cumsum([len(one.unit.position) for one in each])[:-1])
    spread = np.concatenate(
        [one.unit.spread(part[None], heads.inequality.shape[1:]) for one, part in zip(each, parts, strict=True)]
    )
    return Answer(
        corners.reshape(constraints.weights_shape),
        spread.reshape(constraints.inequality.shape[1:]),
        found.steps,
        Factors.of(found, bases, tied),
        Densities.of(found, balance, bases, tied),
    )
