"""What the logits of a problem are made of: products of keys and queries, trained biases, and fixed offsets.

The biases b (m,) are a second block of the weights. These have the shape (d_k + m, d_q + 1), with W above on the left,
b below in the last column, and zeros elsewhere. So every norm and every optimiser sees both blocks as one matrix. The
keys of the second block, one-hot vectors, are never stored: an index says which bias each token has.
"""

from typing import Any, NamedTuple, NoReturn

import numpy as np

from attsvm._utils.checks import as_array
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError


class Canonical(NamedTuple):
    """A problem with all of its axes. A prompt has one query of one dimension, equal to 1."""

    keys: Float[np.ndarray, "*batch n T d_k"]
    queries: Float[np.ndarray, "*batch n Q d_q"]
    allowed: Bool[np.ndarray, "*batch n Q T"]
    active: Bool[np.ndarray, "*batch n Q"]


class MasksOnly(Canonical):
    """The masks of a problem whose keys and queries alone do not make its logits; reading these is refused."""

    def _refuse(self) -> NoReturn:
        raise ProblemError(
            "problem: expected logits of keys and queries alone, without bias_index and offsets; among others "
            "solve_svm, train, predict_direction, classify, margin_ratio, finite_part and margin_profile take them"
        )

    keys = queries = property(_refuse)
    __iter__ = _refuse


class LogitTerms(NamedTuple):
    """Logits k'Wz + b_j + offset, with all axes."""

    keys: Float[np.ndarray, "*batch n T d_k"]
    queries: Float[np.ndarray, "*batch n Q d_q"]
    bias_index: Int[np.ndarray, "*batch n Q T"] | None  # j, or −1 for no bias
    offsets: Float[np.ndarray, "*batch n Q T"] | None

    def split(self, weights: Float[np.ndarray, "*lead D_k D_q"]) -> tuple[np.ndarray, np.ndarray]:
        """W and b of weights."""
        d_k, d_q = self.keys.shape[-1], self.queries.shape[-1]
        return weights[..., :d_k, :d_q], weights[..., d_k:, -1]

    def linear(self, weights: Float[np.ndarray, "*lead D_k D_q"]) -> Float[np.ndarray, "*lead n Q T"]:
        """The logits without the offsets: the part that is linear in the weights."""
        W, b = self.split(weights)
        logits = np.asarray(self.queries @ W.mT[..., None, :, :] @ self.keys.mT)
        if self.bias_index is not None:
            logits = logits + gathered(b, self.bias_index)
        return logits

    def logits(self, weights: Float[np.ndarray, "*lead D_k D_q"]) -> Float[np.ndarray, "*lead n Q T"]:
        """The logits, offsets included."""
        linear = self.linear(weights)
        return linear if self.offsets is None else linear + self.offsets


def join_blocks(W: Float[np.ndarray, "*lead d_k d_q"], b: Float[np.ndarray, "*lead m"]) -> np.ndarray:
    """Block-diagonal weights, with W above on the left and b below in the last column."""
    (d_k, d_q), m = W.shape[-2:], b.shape[-1]
    weights = np.zeros((*np.broadcast_shapes(W.shape[:-2], b.shape[:-1]), d_k + m, d_q + 1))
    weights[..., :d_k, :d_q], weights[..., d_k:, -1] = W, b
    return weights


def gathered(b: Float[np.ndarray, "*lead m"], index: Int[np.ndarray, "*batch n Q T"]) -> np.ndarray:
    """The bias of each token, 0 where the index is −1."""
    padded = np.concatenate([b, np.zeros((*b.shape[:-1], 1))], axis=-1)  # which −1 reads
    lead = np.broadcast_shapes(b.shape[:-1], index.shape[:-3])
    padded = np.broadcast_to(padded, (*lead, padded.shape[-1])).reshape(*lead, -1)
    flat = np.broadcast_to(index, lead + index.shape[-3:]).reshape(*lead, -1)
    return np.take_along_axis(padded, flat, axis=-1).reshape(lead + index.shape[-3:])


def check_bias_index(value: Any, *, has_queries: bool) -> Int[np.ndarray, "*queries T"]:
    """The numbers of biases; raises ProblemError if they are no integers from -1, or the problem is one of a prompt."""
    index = as_array("bias_index", value, "integers >= -1", "iu")
    if index.size and (index.min() < -1 or index.max() < 0):
        least = int(index.min() if index.min() < -1 else index.max())
        raise ProblemError(f"bias_index: expected integers >= -1, one of them >= 0, got {least}")
    if not has_queries:
        raise ProblemError(
            "bias_index: expected None for a problem without queries, whose biases are entries of the prompt; "
            "with_position_bias and with_sink append them to the keys"
        )
    return index.astype(np.int32)
