"""Why a head selects its tokens: the reasons of its Att-SVM, and the smallest changes that alter a selection."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.inspect.robustness import distances
from attsvm.inspect.weights import Mask, Projections, Scores, Selected, Tokens
from attsvm.svm import HeadProblem


class SmallestChange(NamedTuple):
    """The smallest change of W that makes a query select another token."""

    # sequence, query: the query whose selection changes; ``query`` counts the inspected queries of the sequence
    sequence: int
    query: int
    token: int  # the token that it selects then
    norm: float  # Frobenius norm of the change
    relative: float  # the same, divided by ‖W‖_F


class FactorChange(NamedTuple):
    """The smallest change (ΔK, ΔQ) of the factors of W = KQ'/√d_h that makes a query select another token."""

    # lower, upper: certified bounds of the Frobenius norm of (ΔK, ΔQ): no smaller change than ``lower`` alters a
    # selection, and one of size ``upper`` (of K or of Q alone, of rank one) does
    lower: float
    upper: float
    relative: float  # ``upper`` divided by the norm of (K, Q), the biases of queries included
    # sequence, query, token: the query and the token that it selects with that change
    sequence: int
    query: int
    token: int


@dataclass(frozen=True, eq=False, repr=False)
class Reasons:
    """The reasons of the Att-SVM for a selection, and what they have in common with W."""

    # sequence, query and dropped token of the support, those with the largest shares first
    triples: Int[np.ndarray, "k 3"]
    # multiplier of each triple, divided by the sum of all. As every support margin is 1, it is the share of ‖W_svm‖_F²
    # that the triple contributes.
    shares: Float[np.ndarray, " k"]
    cosine: float  # between W and W_svm, the sum of the rows (x_α − x_t) z' weighted with their multipliers
    overlap: float  # share of the support among the k rows that W satisfies with the smallest margins divided by ‖row‖
    chance: float  # the overlap to expect of k random rows: k over the number of rows
    change: SmallestChange

    def __repr__(self) -> str:
        return f"Reasons({len(self.triples):,} triples, cos(W, W_svm) {self.cosine:z.3f})"


def reasons_of(problem: HeadProblem, allowed: Mask, selected: Selected, multipliers: Scores) -> Reasons | None:
    """The reasons for the selection of a head.

    ``selected``: the argmax of the head's logits; −1 where there is no query. ``multipliers``: of the Att-SVM of this
    selection, 0 where there is no constraint.

    None if W is zero, or if there are no rows or no positive multipliers.

    A change D of W flips a row r = (x_α − x_t) z' if ⟨r, D⟩ ≤ −⟨r, W⟩, so ‖D‖_F ≥ ⟨r, W⟩/‖r‖_F, with equality for
    D = −⟨r, W⟩ r/‖r‖_F². The smallest change is the minimum over all rows. It has rank one. Therefore it is also the
    smallest change of any rank, and in every Schatten norm.

    References: Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, (Att-SVM).
    """
    logits, chosen = problem.logits(), np.maximum(selected, 0)
    # ‖(x_α − x_t) z'‖_F = ‖x_α − x_t‖‖z‖, exactly 0 for tokens that equal the selected one
    norms = distances(problem.keys, chosen) * np.linalg.norm(problem.queries, axis=-1)[..., None]
    margins = np.take_along_axis(logits, chosen[..., None], axis=-1) - logits
    # tokens with equal keys are one token
    distinct = problem.of_selection(allowed, selected).copies.distinct
    rows = distinct & (selected >= 0)[..., None] & (norms > 0)
    support = rows & (multipliers > 0)
    total, size = float(multipliers.sum(where=support)), float(np.linalg.norm(problem.weights))
    if not support.any() or size == 0:
        return None
    of_rows = np.where(rows, margins / np.where(norms > 0, norms, 1.0), np.inf)
    count = int(np.count_nonzero(support))
    tightest = np.argsort(of_rows, axis=None, kind="stable")[:count]
    # W_svm = Σ λ_iqt (x_iα − x_it) z_iq'
    coefficients = -np.where(support, multipliers, 0.0)
    np.put_along_axis(coefficients, chosen[..., None], -coefficients.sum(axis=-1, keepdims=True), axis=-1)
    weights = np.einsum("iqt,itd,iqe->de", coefficients, problem.keys, problem.queries, optimize=True)
    shares = multipliers[support] / total
    order = np.argsort(-shares, kind="stable")
    i, q, t = (int(at) for at in np.unravel_index(tightest[0], of_rows.shape))
    least = float(of_rows[i, q, t])
    return Reasons(
        triples=np.argwhere(support)[order],
        shares=shares[order],
        cosine=float(np.vdot(weights, problem.weights) / (np.linalg.norm(weights) * size)),
        overlap=float(support.reshape(-1)[tightest].mean()),
        chance=count / int(np.count_nonzero(rows)),
        change=SmallestChange(i, q, t, least, least / size),
    )


def factor_change(
    tokens: Tokens, queries: Tokens, projections: Projections, head: int, allowed: Mask, selected: Selected
) -> FactorChange | None:
    """The smallest change of the factors of a head without rotary positions.

    ``queries``: with the constant coordinate 1 of the biases. ``selected``: −1 where there is no query.

    None if no query has a choice.

    With x = x_α − x_t and margin m = x'KQ'z, a change of K alone needs ‖ΔK‖ = m/(‖x‖‖Q'z‖) and one of Q alone
    ‖ΔQ‖ = m/(‖K'x‖‖z‖); the smaller one is the upper bound. In general the margin falls by
    −x'ΔK Q'z − x'K ΔQ'z − x'ΔK ΔQ'z ≤ δ √(‖x‖²‖Q'z‖² + ‖K'x‖²‖z‖²) + δ²‖x‖‖z‖/2 with δ = ‖(ΔK, ΔQ)‖_F, because
    ‖ΔK‖‖ΔQ‖ ≤ δ²/2. The δ at which this reaches m is the lower bound.
    """
    key = projections.key[head]
    query = projections.biased_query(head)
    best: FactorChange | None = None
    lower, size = np.inf, float(np.hypot(np.linalg.norm(key), np.linalg.norm(query)))
    for i in range(len(tokens)):
        projected, asked = tokens[i] @ key, queries[i] @ query
        chosen = np.maximum(selected[i], 0)
        margins = (asked * projected[chosen]).sum(axis=-1, keepdims=True) - asked @ projected.T
        x, kx = (distances(vectors[None], chosen[None])[0] for vectors in (tokens[i], projected))
        z, qz = np.linalg.norm(queries[i], axis=-1)[:, None], np.linalg.norm(asked, axis=-1)[:, None]
        rows = allowed[i] & (selected[i] >= 0)[:, None] & (x > 0)
        slope, curve = np.hypot(x * qz, kx * z), x * z
        with np.errstate(divide="ignore", invalid="ignore"):
            # the positive root of curve/2 δ² + slope δ = margin, without cancellation
            lowers = 2 * margins / (slope + np.sqrt(slope**2 + 2 * curve * margins))
            uppers = margins / np.maximum(x * qz, kx * z)
        lowers, uppers = (np.where(rows & ~np.isnan(one), one, np.inf) for one in (lowers, uppers))
        lower = min(lower, float(lowers.min(initial=np.inf)))
        q, t = np.unravel_index(int(uppers.argmin()), uppers.shape)
        upper = float(uppers[q, t])
        if np.isfinite(upper) and (best is None or upper < best.upper):
            best = FactorChange(lower, upper, upper / size, i, int(q), int(t))
    return None if best is None else best._replace(lower=lower)
