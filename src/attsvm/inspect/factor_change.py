"""The smallest change of the key and query weights of a head that alters a selection, as an interval."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.inspect.weights import Projections


class FactorChange(NamedTuple):
    """The smallest change (ΔK, ΔQ) of the factors of W = KQ'/√d_h that makes a query select another token.

    Attributes
    ----------
    lower, upper : float
        Certified bounds of the Frobenius norm of (ΔK, ΔQ): no smaller change than ``lower`` alters a selection, and one
        of size ``upper`` (of K or of Q alone, of rank one) does.
    relative : float
        ``upper`` divided by the norm of (K, Q), the biases of queries included.
    sequence, query, token : int
        The query and the token that it selects with that change.
    """

    lower: float
    upper: float
    relative: float
    sequence: int
    query: int
    token: int


def factor_change(
    tokens: Float[np.ndarray, "n T d"],
    queries: Float[np.ndarray, "n Q d_q"],
    projections: Projections,
    head: int,
    allowed: Bool[np.ndarray, "n Q T"],
    selected: Int[np.ndarray, "n Q"],
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
    query = np.vstack([projections.query[head], projections.query_bias[head]])
    best: FactorChange | None = None
    lower, size = np.inf, float(np.hypot(np.linalg.norm(key), np.linalg.norm(query)))
    for i in range(len(tokens)):
        projected, asked = tokens[i] @ key, queries[i] @ query
        chosen = np.maximum(selected[i], 0)
        margins = (asked * projected[chosen]).sum(axis=-1, keepdims=True) - asked @ projected.T
        x = _distances(tokens[i], chosen)
        kx = _distances(projected, chosen)
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


def _distances(vectors: Float[np.ndarray, "T d"], chosen: Int[np.ndarray, " Q"]) -> Float[np.ndarray, "Q T"]:
    """‖v_α − v_t‖ of the chosen vector of each query and every other; exactly 0 for equal vectors."""
    found = np.empty((len(chosen), len(vectors)))
    for token in np.unique(chosen):
        found[chosen == token] = np.linalg.norm(vectors - vectors[token], axis=-1)
    return found
