"""The margin of a head with rotary positions, in the norm of its key and query weights."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Complex, Float
from attsvm.errors import ProblemError
from attsvm.inspect.weights import Layer, Selected, triangular_product
from attsvm.svm import margin_interval

GAP = 1e-2
"""Relative width at which the solve for the multipliers stops; a smaller one hardly raises the bound."""


class RotaryMargin(NamedTuple):
    """The margin of a head in the norm of rotations, and a bound on its margin ratio from one side.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    The norm is Σ_j ‖A_j + iB_j‖_* over the frequencies, as of :class:`attsvm.norms.Rotary`, and of coordinates that are
    not rotated the nuclear norm. It is the least ½(‖K‖² + ‖Q‖²) of key and query weights with these products, biases
    included. The margin is the least difference of logits between the selected token and another, over the norm. A sink
    is one more token, of logit 0 whatever its trained logit is, because that vanishes beside trained K and Q; it is
    selected where all logits are negative.
    """

    norm: float
    margin: float | None  # None if no query has a choice
    # the margin times a lower bound on the value of the Att-SVM of this selection: the margin ratio is at least this,
    # and at most 1. The bound is that of feasible multipliers, those of the head's own Att-SVM, and not of the best
    # ones, so that the ratio may be far larger. None without them.
    least_ratio: float | None


def rotary_margin(layer: Layer, head: int, selected: Selected) -> RotaryMargin:
    """The margin of one head; ``selected``: its argmax, −1 where there is no query.

    Raises ProblemError unless keys and queries are linear in the tokens up to rotations, without biases of logits.
    """
    if layer.rotation is None or layer.given is not None or layer.bias is not None:
        raise ProblemError(
            f"rotary_margin: expected a layer with rotary positions whose keys and queries are linear in its tokens, "
            f"without norms of queries and keys and without biases of logits, got {layer.name}"
        )
    parts = layer.weights()
    key, query = np.vstack([parts.key[head], parts.key_bias[head]]), parts.biased_query(head)
    J = layer.rotation[0].shape[-1] // 2
    # M_j = scale (k₁ − ik₂)(q₁ + iq₂)' has the norm of its two vectors; the coordinates without rotation follow
    pairs = np.linalg.norm(key[:, : 2 * J].reshape(len(key), 2, J), axis=(0, 1))
    pairs *= np.linalg.norm(query[:, : 2 * J].reshape(len(query), 2, J), axis=(0, 1))
    rest = np.linalg.svd(triangular_product(key[:, 2 * J :], query[:, 2 * J :]), compute_uv=False)
    norm = float(parts.scale * (pairs.sum() + rest.sum()))

    problem, logits, allowed = layer.head(head), layer.logits(head), layer.allowed
    if layer.sink is not None:
        problem = problem._replace(keys=np.pad(problem.keys, ((0, 0), (0, 1), (0, 0))))
        largest = np.where(allowed, logits, -np.inf).max(axis=-1)
        selected = np.where((selected >= 0) & (largest < 0), logits.shape[-1], selected)
        logits = np.pad(logits, ((0, 0), (0, 0), (0, 1)))
        allowed = np.pad(allowed, ((0, 0), (0, 0), (0, 1)), constant_values=True)
    at = np.maximum(selected, 0)[..., None]
    others = allowed & (selected >= 0)[..., None] & (np.arange(logits.shape[-1]) != at)
    if not others.any() or norm == 0:
        return RotaryMargin(norm, None, None)
    gaps = np.take_along_axis(logits, at, axis=-1) - logits
    margin = float(gaps[others].min()) / norm
    _, multipliers = margin_interval(problem, allowed, selected, GAP)
    if multipliers is None or margin < 0:
        return RotaryMargin(norm, margin, None)
    # b'λ ≤ N*(A*(λ)) times the value, for any λ ≥ 0 on the rows of this selection
    signs = np.where(others, -multipliers, 0.0)
    np.put_along_axis(signs, at, -signs.sum(axis=-1, keepdims=True), axis=-1)
    bound = float(np.where(others, multipliers, 0.0).sum()) / _dual_norm(layer, signs, has_rest=rest.size > 0)
    return RotaryMargin(norm, margin, min(1.0, margin * bound))


def _dual_norm(layer: Layer, signs: Float[np.ndarray, "n Q T"], *, has_rest: bool) -> float:
    """The largest spectral norm of the blocks of A*(λ), Σ λ̃ conj(e^{i(φ_q − φ_t)}) x_t z_q'."""

    def with_constant(vectors: np.ndarray) -> Float[np.ndarray, "n k d"]:
        return np.concatenate([vectors, np.ones((*vectors.shape[:-1], 1))], axis=-1).astype(np.float64)

    def largest(turned: Complex[np.ndarray, "n k"], of_queries: Complex[np.ndarray, "n k"]) -> float:
        pulled = signs @ (turned[..., None] * tokens)
        block = np.einsum("nqd,nqe->de", pulled, of_queries.conj()[..., None] * queries, optimize=True)
        return float(np.linalg.norm(block, 2))

    assert layer.rotation is not None
    queries = with_constant(layer.queries)
    # a sink is a last token that is zero, in its constant coordinate, too
    sink = ((0, 0), (0, signs.shape[-1] - layer.tokens.shape[1]), (0, 0))
    tokens = np.pad(with_constant(layer.tokens), sink)
    cosine, sine = (part.astype(np.float64) for part in layer.rotation)
    J = cosine.shape[-1] // 2
    phases = cosine[..., :J] + 1j * sine[..., :J]
    of_queries = np.take_along_axis(phases, np.maximum(layer.positions, 0)[..., None], axis=1)
    phases = np.pad(phases, sink)
    sizes = [largest(phases[..., j], of_queries[..., j]) for j in range(J)]
    if has_rest:
        sizes.append(largest(np.ones(phases.shape[:-1], complex), np.ones(of_queries.shape[:-1], complex)))
    return max(sizes)
