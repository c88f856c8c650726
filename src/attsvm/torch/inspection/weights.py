"""The attention of one layer as this library sees it: tokens, queries, what may be attended to, and each head's W."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Tokens = Float[np.ndarray, "n T d"]


class Projections(NamedTuple):
    """The query and key projections of a layer, x'W + b, and the scale of its logits.

    Attributes
    ----------
    query : ndarray, shape (H, d_q, d_h)
    query_bias : ndarray, shape (H, d_h)
        Zeros where there is none.
    key : ndarray, shape (H, d, d_h)
        Of grouped keys, one copy for each head that uses them.
    key_bias : ndarray, shape (H, d_h)
    scale : float
        1/√d_h, as a rule.
    """

    query: Float[np.ndarray, "H d_q d_h"]
    query_bias: Float[np.ndarray, "H d_h"]
    key: Float[np.ndarray, "H d d_h"]
    key_bias: Float[np.ndarray, "H d_h"]
    scale: float

    @property
    def num_heads(self) -> int:
        """H."""
        return len(self.query)


class HeadProblem(NamedTuple):
    """Logits k_it'W z_iq of one head.

    Attributes
    ----------
    keys : ndarray, shape (n, T, d_k)
        The tokens that enter the layer; where positions are rotary, the head's rotated keys.
    queries : ndarray, shape (n, Q, d_q)
        The tokens that enter the layer with a constant coordinate 1; where positions are rotary, the rotated queries.
    weights : ndarray, shape (d_k, d_q)
        W = W_K (W_Q; b_Q)'/√d_h; where positions are rotary, I/√d_h.
    """

    keys: Float[np.ndarray, "n T d_k"]
    queries: Float[np.ndarray, "n Q d_q"]
    weights: Float[np.ndarray, "d_k d_q"]

    def logits(self) -> Float[np.ndarray, "n Q T"]:
        """What each query makes of each token."""
        return (self.queries @ self.weights.T) @ self.keys.mT


@dataclass(frozen=True, eq=False)
class Layer:
    """What enters one attention layer, and its weights.

    Attributes
    ----------
    name : str
        Of the module in its model.
    tokens : ndarray, shape (n, T, d)
        After the norm that the block applies.
    queries : ndarray, shape (n, Q, d_q)
        Of self-attention the tokens at ``positions``.
    allowed : bool ndarray, shape (n, Q, T)
        What each query may attend to; nothing where there is no query.
    positions : int ndarray, shape (n, Q)
        Of the queries in their sequence, −1 where there is no query.
    projections : Projections
    rotation : (ndarray, ndarray) or None
        Cosines and sines (n, T, d_h) of the tokens' rotary positions.
    given : (ndarray, ndarray) or None
        Keys (n, H, T, d_h) and queries (n, H, Q, d_h) as the module itself computed them, where those are to be taken.
    is_self : bool
        Whether queries and tokens are the same.
    rebuilt_error : ndarray, shape (H,)
        Largest difference between an attention probability of the model's own and the one from tokens and W.
    """

    name: str
    tokens: Tokens
    queries: Float[np.ndarray, "n Q d_q"]
    allowed: Bool[np.ndarray, "n Q T"]
    positions: Int[np.ndarray, "n Q"]
    projections: Projections
    rotation: tuple[np.ndarray, np.ndarray] | None
    given: tuple[np.ndarray, np.ndarray] | None
    is_self: bool
    rebuilt_error: Float[np.ndarray, " H"]

    @classmethod
    def joined(cls, chunks: "list[Layer]") -> "Layer":
        """One layer from chunks of its sequences, in float64."""

        def together(arrays: list[np.ndarray]) -> np.ndarray:
            array = np.concatenate(arrays)
            return array.astype(np.float64) if array.dtype == np.float32 else array

        def pair(pairs: list[tuple[np.ndarray, np.ndarray] | None]) -> tuple[np.ndarray, np.ndarray] | None:
            there = [one for one in pairs if one is not None]
            return (together([one for one, _ in there]), together([two for _, two in there])) if there else None

        return replace(
            chunks[0],
            tokens=together([chunk.tokens for chunk in chunks]),
            queries=together([chunk.queries for chunk in chunks]),
            allowed=together([chunk.allowed for chunk in chunks]),
            positions=together([chunk.positions for chunk in chunks]),
            rotation=pair([chunk.rotation for chunk in chunks]),
            given=pair([chunk.given for chunk in chunks]),
            rebuilt_error=np.max([chunk.rebuilt_error for chunk in chunks], axis=0),
        )

    def in_single(self) -> "Layer":
        """With tokens in float32: half the memory, and what a model computed in no more loses nothing."""
        return replace(self, tokens=self.tokens.astype(np.float32), queries=self.queries.astype(np.float32))

    @property
    def num_heads(self) -> int:
        """H."""
        return self.projections.num_heads

    @property
    def is_rotary(self) -> bool:
        """Whether keys and queries are those of each head, and W is I/√d_h."""
        return self.rotation is not None or self.given is not None

    def head(self, head: int) -> HeadProblem:
        """The problem of one head."""
        rotation = self.rotation
        if self.given is not None:
            keys, queries = self.given[0][:, head], self.given[1][:, head]
            return HeadProblem(keys, queries, np.eye(keys.shape[-1]) * self.projections.scale)
        if rotation is None:
            return self._unrotated(head)
        # rotary positions turn keys and queries by an angle that grows with the place: no one W over tokens does that
        parts, at = self.projections, np.maximum(self.positions, 0)[..., None]
        keys = self.tokens @ parts.key[head] + parts.key_bias[head]
        queries = self.queries @ parts.query[head] + parts.query_bias[head]
        cosine, sine = (np.take_along_axis(part, at, axis=1) for part in rotation)
        weights = np.eye(keys.shape[-1]) * parts.scale
        return HeadProblem(_rotated(keys, *rotation), _rotated(queries, cosine, sine), weights)

    def _unrotated(self, head: int) -> HeadProblem:
        """W over the tokens themselves.

        The bias of the keys adds the same to all logits of a query: it changes no attention, and is left out of W.
        """
        parts = self.projections
        query = np.vstack([parts.query[head], parts.query_bias[head]])
        weights = parts.scale * (parts.key[head] @ query.T)
        constant = np.ones((*self.queries.shape[:-1], 1), self.queries.dtype)
        return HeadProblem(self.tokens, np.concatenate([self.queries, constant], axis=-1), weights)

    def effective_rank(self, head: int) -> float:
        """The exponential of the entropy of W's singular values over their sum, before any rotation; 0 where W is zero.

        The constant coordinate of the queries counts.

        References
        ----------
        Roy and Vetterli (2007), *The effective rank: a measure of effective dimensionality*.
        """
        values = singular_values(self.projections, head)
        total = values.sum()
        if total == 0:
            return 0.0
        share = values / total
        share = share[share > 0]
        return float(np.exp(-(share * np.log(share)).sum()))


def singular_values(projections: Projections, head: int) -> Float[np.ndarray, " d_h"]:
    """Of W = W_K (W_Q; b_Q)'/√d_h, from two small triangles."""
    query = np.vstack([projections.query[head], projections.query_bias[head]])
    _, left = np.linalg.qr(projections.key[head])
    _, right = np.linalg.qr(query)
    return projections.scale * np.linalg.svd(left @ right.T, compute_uv=False)


def softmax(
    logits: Float[np.ndarray, "*shape T"], allowed: Bool[np.ndarray, "*shape T"]
) -> Float[np.ndarray, "*shape T"]:
    """Attention over what is allowed; zeros where nothing is."""
    logits = np.where(allowed, logits, -np.inf)
    largest = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits - np.where(np.isfinite(largest), largest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0)


def _rotated(vectors: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """Each pair (i, i + d_h/2) turned by its angle; coordinates past the rotary ones stay."""
    size = cosine.shape[-1]
    turning, rest = vectors[..., :size], vectors[..., size:]
    first, second = turning[..., : size // 2], turning[..., size // 2 :]
    turned = turning * cosine + np.concatenate([-second, first], axis=-1) * sine
    return np.concatenate([turned, rest], axis=-1)
