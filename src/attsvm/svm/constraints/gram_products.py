"""Products with the constraints of a head by Gram matrices of tokens and queries, shared by all heads of a layer."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts

MOST_TOKENS = 6_000
"""Largest number of tokens or queries whose Gram matrix is kept: 150 MB in float32, twice that in float64."""


class Places(NamedTuple):
    """The tokens (or queries) of each sequence: their range on the padded axis, and their range among all tokens."""

    padded: list[slice]
    joined: list[slice]

    @classmethod
    def of(cls, there: Bool[np.ndarray, "n T"]) -> "Places":
        """The smallest ranges that contain all present entries."""
        padded, joined, at = [], [], 0
        for row in there:
            first, last = (int(row.argmax()), len(row) - int(row[::-1].argmax())) if row.any() else (0, 0)
            padded.append(slice(first, last))
            joined.append(slice(at, at + last - first))
            at += last - first
        return cls(padded, joined)

    @property
    def total(self) -> int:
        """Number of entries of all sequences together."""
        return int(self.joined[-1].stop)

    def gram(self, vectors: Float[np.ndarray, "n T d"], dtype: type) -> list[Float[np.ndarray, "N t"]]:
        """The inner products of all vectors with those of each sequence."""
        every = np.concatenate([vectors[i, at] for i, at in enumerate(self.padded)])
        whole = (every @ every.T).astype(dtype)
        return [np.ascontiguousarray(whole[:, at]) for at in self.joined]


class Grams(NamedTuple):
    """Gram matrices of the tokens and of the queries of a layer."""

    tokens: Places
    queries: Places
    of_tokens: list[Float[np.ndarray, "N t"]]
    of_queries: list[Float[np.ndarray, "M q"]]

    @classmethod
    def of(
        cls,
        keys: Float[np.ndarray, "n T d_k"],
        queries: Float[np.ndarray, "n Q d_q"],
        allowed: Bool[np.ndarray, "n Q T"],
        dtype: type = np.float32,
    ) -> "Grams | None":
        """None if products by the weights are less work, or the matrices would be too large."""
        tokens, asking = (Places.of(np.asarray(allowed.any(axis=axis))) for axis in (1, 2))
        if not 0 < max(tokens.total, asking.total) <= MOST_TOKENS:
            return None
        pairs = sum((t.stop - t.start) * (q.stop - q.start) for t, q in zip(tokens.padded, asking.padded, strict=True))
        by_grams = pairs * (tokens.total + asking.total)
        by_weights = 2 * keys.shape[-1] * (pairs + asking.total * queries.shape[-1])
        if by_grams >= by_weights:
            return None
        # a shift changes no difference of keys, and keeps the digits that float32 has
        shifted = keys - keys.reshape(-1, keys.shape[-1]).mean(axis=0)
        return cls(tokens, asking, tokens.gram(shifted, dtype), asking.gram(queries, dtype))


class GramProducts(DualProducts):
    """The same products, from Gram matrices in float32, accurate to about six digits.

    With W = Σ_i K_i'C_i'Z_i over sequences i, the logits of a sequence j are Σ_i (K_j K_i') C_i' (Z_i Z_j').

    ``constraints``: without leading axes. ``selected``: the references; −1 where there is no query. ``grams``: the Gram
    matrices of the keys and queries.
    """

    def __init__(self, constraints: Constraints, selected: Int[np.ndarray, "n Q"], grams: Grams) -> None:
        super().__init__(constraints)
        self._at = np.maximum(selected, 0)[..., None]
        self._grams = grams
        self._between = np.empty((grams.tokens.total, grams.queries.total), grams.of_tokens[0].dtype)
        self._queries = self._queries.astype(self._between.dtype, copy=False)

    def times(self, multipliers: TokenValues) -> TokenValues:
        tokens, queries, of_tokens, of_queries = self._grams
        between = self._between
        scaled = multipliers * self._inverse
        coefficients = (-scaled).astype(between.dtype, copy=False)
        # the reference of a query has no multiplier: its entry holds minus the sum of the others
        np.put_along_axis(coefficients, self._at, scaled.sum(axis=-1, keepdims=True), axis=-1)
        for i, (t, q) in enumerate(zip(tokens.padded, queries.padded, strict=True)):
            np.matmul(of_tokens[i], coefficients[i, q, t].T, out=between[:, queries.joined[i]])
        logits = np.zeros(multipliers.shape)
        for i, (t, q) in enumerate(zip(tokens.padded, queries.padded, strict=True)):
            logits[i, q, t] = (between[tokens.joined[i]] @ of_queries[i]).T
        image = np.take_along_axis(logits, self._at, axis=-1) - logits
        image *= self._inverse
        return image
