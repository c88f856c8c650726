"""The smallest change of a query, and of the input of a key, that alters what a query selects."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.inspect.weights import Layer, Scores, Selected, Tokens, rotated

DISTINCT = 1e-4
"""Keys whose distance is a smaller part of their norm are subtracted; for others their products are precise enough."""


class Robustness(NamedTuple):
    """The smallest changes that alter the selection of each query of a head, in the Euclidean norm.

    They are infinite for a query that may attend to one token only, or to duplicates of it; a token with another bias
    of its position is a duplicate for changes of the query only. A change by a factor slightly above 1 alters the
    selection, and one slightly below 1 does not.
    """

    query: Float[np.ndarray, "n Q"]  # of the query, as it meets the keys in the logits
    token: Selected  # the token that the changed query selects
    # of the token that enters the layer, as a key alone: of another token, which is selected then, or of the selected
    # one. None if keys are not linear in the tokens.
    key: Float[np.ndarray, "n Q"] | None
    changed: Selected | None  # the token that is changed
    # query_share, key_share: means of these changes over the norms of what is changed; None without a finite one
    query_share: float | None
    key_share: float | None


def robustness(layer: Layer, head: int, selected: Selected) -> Robustness:
    """Smallest changes for the queries of a head; ``selected``: its argmax, −1 where there is no query.

    With the selected token α, a query q changes to t at the plane (k_α − k_t)'q + (b_α − b_t)/c = 0, where c is the
    scale and b are biases of positions: at distance gap_t/(c ‖k_α − k_t‖), with gap_t = s_α − s_t. As a function of the
    input x_t of a key the logit s_t has the gradient c W_K R_t'q, where R_t is the rotation at its position: the
    distance is gap_t/(c ‖W_K R_t'q‖). The same holds for x_α and the least gap.

    Raises ProblemError if biases depend on the tokens, because they change with queries or keys.
    """
    if layer.bias_of_tokens:
        raise ProblemError(f"model: {layer.name} has biases that depend on its tokens, and so change with its queries")
    keys, queries = layer.vectors(head)
    logits = layer.logits(head)
    at = np.maximum(selected, 0)
    others = layer.allowed & (selected >= 0)[..., None] & (np.arange(keys.shape[1]) != at[..., None])
    gaps = np.maximum(np.take_along_axis(logits, at[..., None], axis=-1) - logits, 0.0)

    apart = distances(keys, at)
    of_query = _over(gaps, layer.scale * apart, others)
    query, token = of_query.min(axis=-1), of_query.argmin(axis=-1)
    query_share = _mean_share(query, np.linalg.norm(queries, axis=-1))
    if layer.given is not None:
        return Robustness(query, token, None, None, query_share, None)

    if layer.bias is None:
        others &= apart > 0
    else:
        bias = layer.bias[:, head]
        others &= (apart > 0) | (bias != np.take_along_axis(bias, at[..., None], axis=-1))
    slopes = layer.scale * _key_slopes(layer, head, queries)
    of_key = _over(gaps, slopes, others)
    # lowering the selected token until the runner-up is selected
    least = np.where(others, gaps, np.inf).min(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        lowered = least / np.take_along_axis(slopes, at[..., None], axis=-1)[..., 0]
    raised = of_key.min(axis=-1)
    changed = np.where(lowered < raised, at, of_key.argmin(axis=-1))
    key = np.fmin(lowered, raised)
    norms = np.take_along_axis(np.linalg.norm(layer.tokens, axis=-1), changed, axis=-1)
    return Robustness(query, token, key, changed, query_share, _mean_share(key, norms))


def _over(gaps: np.ndarray, slopes: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Gaps over slopes where both are defined, infinity elsewhere."""
    there = there & (slopes > 0)
    return np.where(there, gaps / np.where(there, slopes, 1.0), np.inf)


def distances(keys: Tokens, chosen: Selected) -> Scores:
    """‖k_α − k_t‖ of the chosen key of each query and every other; exactly 0 for equal keys."""
    found = np.empty((*chosen.shape, keys.shape[1]))
    # few queries of a long sequence choose few of its keys, so that not all pairs of keys are needed
    for vectors, tokens, of_sequence in zip(keys, chosen, found, strict=True):
        some, place = np.unique(tokens, return_inverse=True)
        squares = np.square(vectors).sum(axis=-1)
        sums = squares[some, None] + squares
        between = np.maximum(sums - 2 * vectors[some] @ vectors.T, 0.0)
        one, other = np.nonzero(between < DISTINCT**2 * sums)
        between[one, other] = np.square(vectors[some[one]] - vectors[other]).sum(axis=-1)
        of_sequence[:] = np.sqrt(between)[place]
    return found


def _key_slopes(layer: Layer, head: int, queries: Tokens) -> Scores:
    """‖W_K R_t'q‖ of every query and the position of every token; the last axis is 1 without rotary positions."""
    # ‖W_K v‖ = ‖triangle v‖
    triangle = np.asarray(np.linalg.qr(layer.weights().key[head], mode="r"))
    if layer.rotation is None:
        slopes = np.linalg.norm(queries @ triangle.T, axis=-1)[..., None]
    else:
        cosine, sine = layer.rotation
        width = layer.tokens.shape[1]
        repeated = (np.repeat(of_sequence[:, None], width, axis=1) for of_sequence in queries)
        turned_back = (rotated(one, cosine[i], -sine[i]) for i, one in enumerate(repeated))
        slopes = np.stack([np.linalg.norm(one @ triangle.T, axis=-1) for one in turned_back])
    return np.broadcast_to(slopes, (*queries.shape[:2], layer.tokens.shape[1]))


def _mean_share(changes: Float[np.ndarray, "n Q"], norms: Float[np.ndarray, "n Q"]) -> float | None:
    there = np.isfinite(changes) & (norms > 0)
    return float((changes[there] / norms[there]).mean()) if there.any() else None
