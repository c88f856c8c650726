"""Minima far along the path where some query keeps several tokens.

There the gradient is a difference of large terms: the kept tokens balance, and what is left is as small as the
attention of the dropped ones. The weights therefore split in two. The part along the differences of kept tokens is
finite and minimises the loss of the kept tokens alone. The other part changes only the attention of the dropped
tokens. To first order in that attention, the log of the excess is a log-sum-exp with fixed coefficients: convex, and
without cancellation.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from attsvm.regularization.excess import Excess
from attsvm.regularization.flat_excess import KEPT, FlatExcess
from attsvm.regularization.gaps import Flat, LogSum
from attsvm.regularization.trust_region import minimise

FAR = 1e-10
"""Largest attention of dropped tokens for which the loss is linear in it, to the accuracy of a path."""
_RANK = 1e-9
"""Singular values and costs below this part of the largest are rounding of differences of tokens."""
_MOST_STEPS = 100
"""The kept tokens balance at a finite point; where Newton steps do not reach it, there is no tail."""


class Tail(NamedTuple):
    """The dropped tokens' part of the loss, and the part of the weights that is fixed."""

    dropped: Flat[LogSum]  # over the dropped tokens, in the k coordinates of ``across``
    fixed: np.ndarray  # shape (d_k d_q,), the part of the weights that distributes the attention among the kept tokens
    across: np.ndarray  # shape (d_k d_q, k), orthonormal columns, orthogonal to the differences of kept tokens
    # how far the fixed part is from stationary, including the largest attention that is neglected to second order
    residual: float


def tail_of(excess: FlatExcess, weights: np.ndarray) -> Tail | None:
    """The convex problem of the dropped tokens around weights that keep several tokens in some query.

    None if the head is linear, if no query keeps several tokens, if no token is dropped or one is neither kept nor
    dropped, or if the loss of the kept tokens has no minimum nearby or decreases with the attention of a dropped token.
    """
    if excess.is_linear:
        return None
    attention = excess.attention(weights)
    kept = attention > KEPT
    dropped = excess.stack.allowed[0] & ~kept
    largest = attention[dropped].max(initial=0.0)
    if not (kept.sum(axis=1) > 1).any() or not dropped.any() or largest > FAR:
        return None
    inside = excess.restricted(kept)
    along = _basis(inside.rows)
    found = minimise(
        Flat[Excess](inside.stack.spanned(along.T.reshape(-1, *inside.matrix(weights).shape[1:]))),
        along.T @ weights,
        max(10.0 * float(np.linalg.norm(along.T @ weights)), 100.0 / float(np.linalg.norm(inside.rows, axis=1).min())),
        max_steps=_MOST_STEPS,
    )
    fixed = along @ found.x
    if not found.residual <= FAR:
        return None
    return _dropped_tokens(inside, dropped, fixed, along, found.residual, float(largest))


def _dropped_tokens(
    inside: FlatExcess, dropped: np.ndarray, fixed: np.ndarray, along: np.ndarray, residual: float, neglected: float
) -> Tail | None:
    """The tail, given the loss of the kept tokens alone and the weights that minimise it."""
    logits, stack, outputs = inside.logits(fixed), inside.stack, inside.outputs
    pooled = (inside.attention(fixed)[:, None] @ outputs.tokens)[:, 0]
    margins = outputs.labels * outputs.head.values(pooled)
    slope = outputs.slopes(pooled)
    # c_t = y ∇h(o)'(o − x_t): by how much the margin falls with the attention of a dropped token t
    cost = ((pooled[:, None] - outputs.tokens) @ slope[:, :, None])[..., 0]
    scale = np.linalg.norm(pooled[:, None] - outputs.tokens, axis=2) * np.linalg.norm(slope, axis=1)[:, None]
    query, token = np.nonzero(dropped)
    # at zero the second order decides, and below zero the token is better than what is kept
    if (cost[query, token] <= _RANK * scale[query, token]).any():
        return None
    rows = -(stack.left[0, query, token, :, None] * stack.queries[0, query, None]).reshape(len(query), len(fixed))
    # to first order the excess is Σ c_t |ℓ'(m_i)| a_t/n with a_t = m_t exp(s_t)/Σ_kept exp(s), s = fixed part + rest
    offsets = np.log(cost[query, token]) + stack.loss.log_slope(margins)[query] - logsumexp(logits, axis=1)[query]
    offsets = offsets + stack.offsets[0, query, token] + rows @ fixed - np.log(len(margins))
    rows = rows - (rows @ along) @ along.T
    across = _basis(rows)
    return Tail(LogSum.from_rows(-rows @ across, offsets), fixed, across, max(residual, neglected))


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows."""
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(right[singular > _RANK * singular.max(initial=0.0)].T)
