"""Products with the Gram matrix of an Att-SVM's rows, which is never formed: the dual of one large problem.

Attention heads of a layer share the Gram matrices of their tokens and queries, which make the products faster.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights

POWER_STEPS = 10
"""The estimate of the largest eigenvalue is then within a few per cent, which the methods allow for."""


MOST_TOKENS = 6_000
"""Largest number of tokens or queries whose Gram matrix is kept: 150 MB in float32, twice that in float64."""


class UnitRows(ABC):
    """Unit rows A of one problem, their right sides, and products with K = A A'.

    ``norms``, ``right``: of the original rows; a row of norm 0 is left out. ``inequality``, ``asked``: the inequalities
    and those of them with a positive right side.
    """

    right: TokenValues  # b divided by the norms of the rows, scaled so that the largest entry is 1
    scale: float  # what b was divided by
    # asked, bounded, there: rows with b > 0; inequalities, whose multipliers must not be negative; all rows except rows
    # of zeros
    asked: TokenMask
    bounded: TokenMask
    there: TokenMask

    def __init__(
        self, norms: TokenValues, right: TokenValues, inequality: TokenMask, asked: TokenMask, has_equalities: bool
    ) -> None:
        self.there = norms > 0
        self.asked = asked & self.there
        self.bounded = inequality & self.there
        self.has_equalities = has_equalities
        self._inverse = np.divide(1.0, norms, out=np.zeros(norms.shape), where=self.there)
        right = right * self._inverse
        self.scale = float(right.max(initial=0.0)) or 1.0
        self.right = right / self.scale
        self.has_negative = bool(self.right.min(initial=0.0) < 0)

    @abstractmethod
    def apply(self, weights: Weights) -> TokenValues:
        """The margins of weights: A w."""

    @abstractmethod
    def adjoint(self, multipliers: TokenValues) -> Weights:
        """The weights A'μ."""

    @abstractmethod
    def block(self, rows: Int[np.ndarray, " m"], columns: Int[np.ndarray, " k"]) -> Float[np.ndarray, "m k"]:
        """The entries of K at positions of the flattened multipliers."""

    def times(self, multipliers: TokenValues) -> TokenValues:
        """K μ: the margin of each row under the weights A'μ."""
        return self.apply(self.adjoint(multipliers))

    def of_original_rows(self, multipliers: TokenValues) -> TokenValues:
        """Multipliers of the unit rows as multipliers of the original rows."""
        return np.asarray(multipliers * self._inverse)

    @cached_property
    def eigenvalue(self) -> float:
        """A lower bound on the largest eigenvalue of K, by power iteration; 1 if K is zero."""
        vector = self.there.astype(np.float64)
        size = 1.0
        for _ in range(POWER_STEPS):
            length = float(np.linalg.norm(vector))
            if length == 0:
                return 1.0
            vector = self.times(vector / length)
            size = float(np.linalg.norm(vector))
        return size or 1.0


class DualProducts(UnitRows):
    """The rows of ``constraints``, which are never formed.

    Multipliers μ are those of the unit rows, in the places (n, Q, T) of their tokens, 0 where there is no row.
    A product uses the keys and queries only. It uses the Gram matrix of the queries if there are few of them compared
    with their dimension, otherwise the weights A'μ, whichever is less work.

    ``constraints``: without leading axes.
    """

    multiplications: int  # number of multiplications in one product with K

    def __init__(self, constraints: Constraints) -> None:
        if constraints.batch_shape:
            raise ValueError(f"constraints: expected no leading axes, got {constraints.batch_shape}")
        norms = constraints.norms
        equalities = constraints.equality is not None
        super().__init__(norms, constraints.right, constraints.inequality, constraints.margin_mask, equalities)
        self.constraints = constraints
        queries = constraints.queries.reshape(-1, constraints.queries.shape[-1])
        self._queries = queries
        few = len(queries) <= 2 * queries.shape[1] and constraints.blocks is None
        self._query_gram = queries @ queries.T if few else None
        between = len(queries) if few else 2 * queries.shape[1]
        self.multiplications = len(queries) * constraints.keys.shape[-1] * (2 * norms.shape[-1] + between)

    def times(self, multipliers: TokenValues) -> TokenValues:
        """K μ: the margin of each row under the weights A'μ."""
        if self._query_gram is None:
            return self.apply(self.adjoint(multipliers))
        pulled = self.constraints.pulled(multipliers * self._inverse)
        images = (self._query_gram @ pulled.reshape(-1, pulled.shape[-1])).reshape(pulled.shape)
        image = self.constraints.compared(images)
        image *= self._inverse
        return image

    def block(self, rows: Int[np.ndarray, " m"], columns: Int[np.ndarray, " k"]) -> Float[np.ndarray, "m k"]:
        """The entries of K at positions of the flattened (n, Q, T).

        They are inner products of the differences of keys, times those of the queries.
        """
        left, place = self._factors(rows)
        right, other = (left, place) if columns is rows else self._factors(columns)
        d_k = self.constraints.keys.shape[-1]
        gram = left[:, :d_k] @ right[:, :d_k].T
        # many rows have the same query
        queries, of_rows = np.unique(place, return_inverse=True)
        others, of_columns = np.unique(other, return_inverse=True)
        between = self._queries[queries] @ self._queries[others].T
        gram *= between.take(of_rows, axis=0).take(of_columns, axis=1)
        if self.constraints.blocks is not None:
            gram += left[:, d_k:] @ right[:, d_k:].T
        return np.asarray(gram)

    def _factors(self, rows: Int[np.ndarray, " m"]) -> tuple[Float[np.ndarray, "m d_k"], Int[np.ndarray, " m"]]:
        """The differences of keys over the norms of the rows, in the precision of the products, and their queries."""
        differences = self.constraints.differences(rows)
        differences *= -self._inverse.reshape(-1)[rows, None]
        return differences.astype(self._queries.dtype, copy=False), rows // self.right.shape[-1]

    def apply(self, weights: Weights) -> TokenValues:
        return np.asarray(self.constraints.apply(weights) * self._inverse)

    def adjoint(self, multipliers: TokenValues) -> Weights:
        return self.constraints.adjoint(multipliers * self._inverse)

    def of_unit_rows(self, multipliers: TokenValues) -> TokenValues:
        """Return multipliers of the unit rows, clipped to be feasible: the reverse of :meth:`of_original_rows`."""
        multipliers = np.where(self.there, multipliers * self.constraints.norms, 0.0)
        return np.asarray(np.maximum(multipliers, 0.0, out=multipliers, where=self.bounded))


class TokenRanges(NamedTuple):
    """The tokens (or queries) of each sequence: their range on the padded axis, and their range among all tokens."""

    padded: list[slice]
    joined: list[slice]

    @classmethod
    def of(cls, there: Bool[np.ndarray, "n T"]) -> "TokenRanges":
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

    tokens: TokenRanges
    queries: TokenRanges
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
        tokens, asking = (TokenRanges.of(np.asarray(allowed.any(axis=axis))) for axis in (1, 2))
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
