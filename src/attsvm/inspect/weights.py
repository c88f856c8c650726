"""The attention of one layer: its tokens and queries, its mask, and the key-query matrix W of each head."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from attsvm._utils.checks import check_integer
from attsvm._utils.linear_algebra import softmax
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.svm import HeadProblem

Tokens = Float[np.ndarray, "n T d"]
Scores = Float[np.ndarray, "n Q T"]
Mask = Bool[np.ndarray, "n Q T"]
Selected = Int[np.ndarray, "n Q"]

OF_SEQUENCES = ("tokens", "queries", "allowed", "positions", "there", "rotation", "given", "bias")
"""Arrays of a :class:`Layer` whose first axis counts the sequences, or pairs of them."""


class Projections(NamedTuple):
    """The query and key projections of a layer, x'W + b, and the scale of its logits."""

    query: Float[np.ndarray, "H d_q d_h"]
    query_bias: Float[np.ndarray, "H d_h"]  # zeros if there is none
    key: Float[np.ndarray, "H d d_h"]  # keys that several heads share are repeated for each of them
    key_bias: Float[np.ndarray, "H d_h"]
    scale: float  # usually 1/√d_h

    @property
    def num_heads(self) -> int:
        return len(self.query)

    def biased_query(self, head: int) -> Float[np.ndarray, "d_q_1 d_h"]:
        """(W_Q; b_Q) of a head, for queries with a constant coordinate 1."""
        return np.vstack([self.query[head], self.query_bias[head]])


@dataclass(frozen=True, eq=False, repr=False)
class Layer:
    """What enters one attention layer, and its weights."""

    name: str  # of the module in its model
    tokens: Tokens  # shape (n, T, d), tokens after the norm of the block
    queries: Float[np.ndarray, "n Q d_q"]  # in self-attention the tokens at ``positions``
    allowed: Mask  # which tokens each query may attend to; False where there is no query
    positions: Selected  # positions of the queries in their sequence, −1 where there is no query
    there: Bool[np.ndarray, "n T"]  # the tokens that are no padding
    projections: Projections | None  # None if the weights that make queries and keys are not known
    scale: float  # factor of the logits
    rotation: tuple[np.ndarray, np.ndarray] | None  # cosines and sines (n, T, d_h) of the tokens' rotary positions
    # keys (n, H, T, d_h) and queries (n, H, Q, d_h) as the module computed them, if they replace the projections
    given: tuple[np.ndarray, np.ndarray] | None
    bias: Float[np.ndarray, "n H Q T"] | None  # added to the logits of each pair of positions
    softcap: float | None  # c, where the logits s become c tanh(s/c)
    sink: Float[np.ndarray, " H"] | None  # a logit of each head that takes attention and belongs to no token
    is_self: bool  # whether queries and tokens are the same
    # largest difference between the model's own attention and the one computed from tokens and W; NaN if not compared
    rebuilt_error: Float[np.ndarray, " H"]
    unknown: str = ""  # why the weights cannot be read
    bias_of_tokens: bool = False  # whether ``bias`` depends on the tokens, too, as in DeBERTa

    @classmethod
    def joined(cls, chunks: "list[Layer]") -> "Layer":
        """One layer from chunks of its sequences."""
        if any(chunk.bias is not None for chunk in chunks):  # a mask may add to the logits of some sequences alone
            nothing = [np.zeros((len(one.allowed), one.num_heads, *one.allowed.shape[1:])) for one in chunks]
            chunks = [
                replace(chunk, bias=zeros if chunk.bias is None else chunk.bias)
                for chunk, zeros in zip(chunks, nothing, strict=True)
            ]

        def together(parts: Any) -> Any:
            if parts[0] is None:
                return None
            if isinstance(parts[0], tuple):
                return tuple(np.concatenate(side) for side in zip(*parts, strict=True))
            return np.concatenate(parts)

        found = {name: together([getattr(chunk, name) for chunk in chunks]) for name in OF_SEQUENCES}
        return replace(
            chunks[0],
            **found,
            rebuilt_error=np.max([chunk.rebuilt_error for chunk in chunks], axis=0),
            bias_of_tokens=any(chunk.bias_of_tokens for chunk in chunks),
        )

    def of_sequences(self, numbers: list[int]) -> "Layer":
        """The same layer on some of its sequences."""
        found: dict[str, Any] = {name: getattr(self, name) for name in OF_SEQUENCES}
        for name, array in found.items():
            if array is not None:
                several = isinstance(array, tuple)
                found[name] = tuple(part[numbers] for part in array) if several else array[numbers]
        return replace(self, **found)

    @property
    def num_heads(self) -> int:
        return len(self.rebuilt_error)

    @property
    def nbytes(self) -> int:
        """Size of the arrays that grow with the batch."""
        arrays = (getattr(self, name) for name in OF_SEQUENCES)
        return sum(
            part.nbytes
            for array in arrays
            for part in (array if isinstance(array, tuple) else (array,))
            if part is not None
        )

    @property
    def is_rotary(self) -> bool:
        """Whether every head has its own keys and queries, and W is I/√d_h."""
        return self.rotation is not None or self.given is not None

    @property
    def shares_tokens(self) -> bool:
        """Whether the problems of all heads have the same keys and queries."""
        return not self.is_rotary and self.bias is None

    def weights(self) -> Projections:
        """The query and key weights.

        Raises ProblemError if they are not known.
        """
        if self.projections is None:
            raise ProblemError(
                f"model: the linear layers that make the queries and keys of {self.name} are not known"
                f"{self.unknown and f' ({self.unknown})'}, so W is not known; selections, concentration and margins are"
            )
        return self.projections

    def probabilities(self, head: int) -> Scores:
        """The attention of one head, 0 where a query may not attend; less than 1 in all where there is a sink."""
        logits, allowed = self.logits(head), self.allowed
        if self.softcap is not None:
            logits = self.softcap * np.tanh(logits / self.softcap)
        probabilities = softmax(logits, allowed)
        if self.sink is None:
            return probabilities
        total = logsumexp(np.where(allowed, logits, -np.inf), axis=-1, keepdims=True)
        return np.asarray(probabilities * expit(total - self.sink[head]))

    def logits(self, head: int) -> Scores:
        """The logits before a soft cap."""
        keys, queries = self.vectors(head)
        logits: np.ndarray = self.scale * (queries @ keys.mT)
        return logits if self.bias is None else logits + self.bias[:, head]

    def vectors(self, head: int) -> tuple[Float[np.ndarray, "n T d_h"], Float[np.ndarray, "n Q d_h"]]:
        """The keys and the queries of one head, as they meet in the logits."""
        if self.given is not None:
            return self.given[0][:, head], self.given[1][:, head]
        return self.projected(head, self.tokens, self.queries)

    def head(self, head: int) -> HeadProblem:
        """The problem of one head. A soft cap and a sink change no selection, and are not part of it."""
        if self.is_rotary:
            # rotary positions rotate keys and queries by angles that grow with the position, which no single W does
            keys, queries = self.vectors(head)
            problem = HeadProblem(keys, queries, np.eye(keys.shape[-1]) * self.scale)
        else:
            # the bias of the keys adds the same number to all logits of a query, so that it is not part of W
            parts, constant = self.weights(), np.ones((*self.queries.shape[:-1], 1), self.queries.dtype)
            weights = parts.scale * (parts.key[head] @ parts.biased_query(head).T)
            problem = HeadProblem(self.tokens, np.concatenate([self.queries, constant], axis=-1), weights)
        if self.bias is None:
            return problem
        # the bias as a part of W: each key has its position, one-hot, and each query has its biases
        keys, queries, weights = problem
        n, T = keys.shape[:2]
        (rows, columns), eye = weights.shape, np.eye(T, dtype=keys.dtype)
        extended = np.zeros((rows + T, columns + T))
        extended[:rows, :columns], extended[rows:, columns:] = weights, eye
        keys = np.concatenate([keys, np.broadcast_to(eye, (n, T, T))], axis=-1)
        return HeadProblem(keys, np.concatenate([queries, self.bias[:, head]], axis=-1), extended)

    def projected(
        self, head: int, tokens: Tokens, queries: Float[np.ndarray, "n Q d_q"], biases: bool = True
    ) -> tuple[Float[np.ndarray, "n T d_h"], Float[np.ndarray, "n Q d_h"]]:
        """Keys and queries of one head from tokens at the places of this layer, after rotary positions.

        ``tokens``: shape (n, T, d). ``biases``: whether the biases of the projections are added.
        """
        parts = self.weights()
        keys = tokens @ parts.key[head] + biases * parts.key_bias[head]
        made = queries @ parts.query[head] + biases * parts.query_bias[head]
        if self.rotation is None:
            return keys, made
        at = np.maximum(self.positions, 0)[..., None]
        cosine, sine = (np.take_along_axis(part, at, axis=1) for part in self.rotation)
        return rotated(keys, *self.rotation), rotated(made, cosine, sine)

    def norm_scales(self, head: int) -> tuple[Float[np.ndarray, "n T 1"], Float[np.ndarray, "n Q 1"]]:
        """The factors of each key and query between :meth:`projected` and the norms of keys and queries; 1 without.

        Raises ProblemError if the keys and queries of the head are not of this kind.
        """
        sides = self.projected(head, self.tokens, self.queries)
        if self.given is None:
            return np.ones_like(sides[0][..., :1]), np.ones_like(sides[1][..., :1])
        scales = []
        for made, given in zip(sides, self.vectors(head), strict=True):
            alike = made.shape == given.shape  # latent vectors make only a part of the coordinates
            size = np.square(made).sum(axis=-1, keepdims=True)
            product = (made * given).sum(axis=-1, keepdims=True) if alike else size
            scales.append(product / np.where(size > 0, size, 1.0))
            if not alike or not np.abs(scales[-1] * made - given).max() <= 1e-3 * np.abs(given).max():
                raise ProblemError(f"model: the queries and keys of {self.name} are more than normalised projections")
        return scales[0], scales[1]


def check_head(index: int, head: int, layer: Layer) -> None:
    """Check that a layer has a head.

    Raises ProblemError if it has not.
    """
    if not 0 <= check_integer("head", head, 0) < layer.num_heads:
        raise ProblemError(f"head {index}.{head}: layer {index} has {layer.num_heads} heads, counted from 0")


def triangular_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """R_l R_r' for left = Q_l R_l and right = Q_r R_r: a small matrix with the singular values of left right'."""
    one, other = (np.asarray(np.linalg.qr(side, mode="r")) for side in (left, right))
    return np.asarray(one @ other.mT)


def singular_values(projections: Projections, head: int) -> Float[np.ndarray, " d_h"]:
    """Singular values of W = W_K (W_Q; b_Q)'/√d_h; rotary positions are left out."""
    product = triangular_product(projections.key[head], projections.biased_query(head))
    values: np.ndarray = projections.scale * np.linalg.svd(product, compute_uv=False)
    return values


def effective_rank(values: Float[np.ndarray, "*heads d_h"]) -> Float[np.ndarray, "*heads"]:
    """Exponential of the entropy of singular values divided by their sum; 0 if all are 0.

    References: Roy and Vetterli (2007), *The effective rank: a measure of effective dimensionality*.
    """
    total = values.sum(axis=-1, keepdims=True)
    # 0 log 0 = 0
    share = np.where(values > 0, values / np.where(total > 0, total, 1.0), 1.0)
    ranks: np.ndarray = np.where(total[..., 0] > 0, np.exp(-(share * np.log(share)).sum(axis=-1)), 0.0)
    return ranks


def rotated(vectors: Any, cosine: Any, sine: Any) -> Any:
    """Each pair of coordinates (i, i + d_r/2) of arrays or tensors rotated by its angle; the others are unchanged."""
    half = cosine.shape[-1] // 2
    first, second = vectors[..., :half], vectors[..., half : 2 * half]
    turned = 1 * vectors
    turned[..., :half] = first * cosine[..., :half] - second * sine[..., :half]
    turned[..., half : 2 * half] = second * cosine[..., half:] + first * sine[..., half:]
    return turned
