"""One head of one layer: the rows of its logits, the metric of unrelated text, and where its weights are in a model."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular
from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.edits.rows import EditRows
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.weights import Layer, rotated

MOST_PAIRS = 50_000
"""Pairs of a query and a token whose second moments are the metric; more are sampled."""

Indices = Int[np.ndarray, " m"]


class Pairs(NamedTuple):
    """Pairs of tokens of which the first should lead, in the logits of a query: one row each."""

    sequence: Indices
    query: Indices  # column of the layer's queries
    chosen: Indices
    other: Indices


class Metric(NamedTuple):
    """Cholesky factors of two second moments: ‖D‖² is the mean square of x'D u over independent x and u."""

    inputs: Float[np.ndarray, "d d"]
    partners: Float[np.ndarray, "d_h d_h"]

    def whitened(self, rows: EditRows) -> EditRows:
        """The rows of L_x'D L_u instead of those of D."""
        return EditRows(
            _solved(self.inputs, rows.inputs), _solved(self.partners, rows.partners), rows.wanted, rows.query
        )

    def original(self, weights: Float[np.ndarray, "d d_h"]) -> Float[np.ndarray, "d d_h"]:
        """D from L_x'D L_u."""
        left = solve_triangular(self.inputs, weights, trans="T", lower=True)
        return np.asarray(solve_triangular(self.partners, left.T, trans="T", lower=True).T)


@dataclass(frozen=True)
class EditedHead:
    """A head whose logits change by x'D u for each pair of a query and a token."""

    layer: Layer
    head: int
    change: str  # "keys" or "queries"
    has_bias: bool  # whether the queries have a bias, which changes with their weights

    def __post_init__(self) -> None:
        layer, name = self.layer, self.layer.name
        layer.weights()  # refuses layers whose W is not known
        if layer.given is not None:
            raise ProblemError(f"model: {name} has norms of queries and keys; logits are not linear in its weights")
        if layer.softcap is not None or layer.sink is not None:
            what = "a soft cap of its logits" if layer.sink is None else "an attention sink beside its tokens"
            raise ProblemError(f"model: {name} has {what}, which edits do not support")

    @cached_property
    def logits(self) -> Float[np.ndarray, "n Q T"]:
        """The present logits, −inf where a query may not attend."""
        return np.where(self.layer.allowed, self.layer.logits(self.head), -np.inf)

    def margins(self, pairs: Pairs) -> Float[np.ndarray, " m"]:
        """The present leads."""
        sequence, query, chosen, other = pairs
        return np.asarray(self.logits[sequence, query, chosen] - self.logits[sequence, query, other])

    def rows(self, pairs: Pairs, wanted: Float[np.ndarray, " m"]) -> EditRows:
        """The rows that ask for these leads in the changed logits; ``wanted``: less the present ones."""
        sequence, query, chosen, other = pairs
        number = sequence * self.layer.allowed.shape[1] + query
        if self.change == "queries":
            # z'D (v_α − v_t) with v_t = R_q'R_t k_t
            partners = self._turned_back(self._keys[sequence, chosen] - self._keys[sequence, other], sequence, query)
            return EditRows(self._inputs[sequence, query][None], partners[None], wanted, number)
        first, second = self._inputs[sequence, chosen], self._inputs[sequence, other]
        if self.layer.rotation is None:
            return EditRows((first - second)[None], self._turned_to(sequence, query, other)[None], wanted, number)
        # x_α'D u_α − x_t'D u_t with u_t = R_t'R_q b: the positions are different, and so are the partners
        partners = np.stack([self._turned_to(sequence, query, chosen), self._turned_to(sequence, query, other)])
        return EditRows(np.stack([first, -second]), partners, wanted, number)

    def metric(self, ridge: float) -> Metric:
        """The second moments of x and u on the text of this layer, with a ridge relative to their mean diagonal.

        Keys are centred in each sequence, because a logit matters only relative to those of other tokens; the factor 2
        is that of the difference of two tokens.
        """
        pairs = np.argwhere(self.layer.allowed)
        if len(pairs) > MOST_PAIRS:
            pairs = pairs[np.random.default_rng(0).choice(len(pairs), MOST_PAIRS, replace=False)]
        sequence, query, token = pairs.T
        there = np.asarray(self.layer.allowed.any(axis=1))
        if self.change == "queries":
            at = self.layer.positions >= 0
            inputs = self._inputs[at]
            centred = np.sqrt(2) * _centred(self._keys, there[..., None])
            partners = self._turned_back(centred[sequence, token], sequence, query)
        else:
            inputs = np.sqrt(2) * _centred(self._inputs, there[..., None])[there]
            partners = self._turned_to(sequence, query, token)
        return Metric(_moment(inputs, ridge), _moment(partners, ridge))

    def changed(self, weights: Float[np.ndarray, "d d_h"]) -> "EditedHead":
        """The head with D added to its weights."""
        parts, head = self.layer.weights(), self.head
        key, query, bias = parts.key.copy(), parts.query.copy(), parts.query_bias.copy()
        if self.change == "keys":
            key[head] += weights
        else:
            query[head] += weights[: query.shape[1]]
            bias[head] += weights[-1] if self.has_bias else 0.0
        parts = parts._replace(key=key, query=query, query_bias=bias)
        return replace(self, layer=replace(self.layer, projections=parts))

    @property
    def size(self) -> float:
        """Frobenius norm of the weights that change."""
        parts = self.layer.weights()
        own = parts.key[self.head] if self.change == "keys" else parts.biased_query(self.head)
        return float(np.linalg.norm(own))

    @cached_property
    def _inputs(self) -> np.ndarray:
        """What the changed weights multiply: tokens, or queries with a constant coordinate 1 if they have a bias."""
        if self.change == "keys":
            return self.layer.tokens
        queries = self.layer.queries
        return np.concatenate([queries, np.ones((*queries.shape[:-1], 1))], axis=-1) if self.has_bias else queries

    @cached_property
    def _projected(self) -> tuple[np.ndarray, np.ndarray]:
        return self.layer.projected(self.head, self.layer.tokens, self.layer.queries)

    @property
    def _keys(self) -> Float[np.ndarray, "n T d_h"]:
        """Keys after rotary positions, times the scale of the logits."""
        return self.layer.scale * self._projected[0]

    def _turned_to(self, sequence: Indices, query: Indices, token: Indices) -> Float[np.ndarray, "m d_h"]:
        """R_t'R_q b: queries as seen from the position of a token, times the scale."""
        return self._transposed(self.layer.scale * self._projected[1][sequence, query], sequence, token)

    def _turned_back(self, keys: np.ndarray, sequence: Indices, query: Indices) -> Float[np.ndarray, "m d_h"]:
        """R_q'R_t k: keys as seen from the position of a query."""
        return self._transposed(keys, sequence, self.layer.positions[sequence, query])

    def _transposed(self, vectors: np.ndarray, sequence: Indices, position: Indices) -> np.ndarray:
        if self.layer.rotation is None:
            return vectors
        cosine, sine = (part[sequence, position] for part in self.layer.rotation)
        return rotated(vectors, cosine, -sine)


class HeadWeights(NamedTuple):
    """The weights of one head's keys or queries in a module: rows of a linear layer, and their bias."""

    weight: Tensor  # a view of the parameter, shape (rows, d)
    bias: Tensor | None
    rows: Tensor
    factor: float  # by which the module multiplies what they make
    heads: list[int]  # the heads that use them: several, if they share their keys

    def add(self, change: Float[np.ndarray, "d d_h"]) -> None:
        """Add D to the weights, in place; its last row to the bias if the queries have one."""
        own, d = torch.as_tensor(change / self.factor, device=self.weight.device), self.weight.shape[1]
        for part, more in ((self.weight, own[:d].T), (self.bias, own[-1])):
            if part is not None:  # the sum is rounded once
                part[self.rows] = (part[self.rows].double() + more).to(part.dtype)


def find_weights(model: nn.Module, layer: AttentionLayer, head: int, change: str) -> HeadWeights:
    """The weights of a head in a model: the inspected one, a copy of it, or one that contains it.

    Raises ProblemError if the model has no such layer, or several.
    """
    found = [
        module
        for name, module in model.named_modules()
        if type(module) is type(layer.module)
        # a model may be the layer itself, which has no name
        and (name in ("", layer.name) or name.endswith(f".{layer.name}") or layer.name.endswith(f".{name}"))
    ]
    if len(found) != 1:
        raise ProblemError(f"model: expected one module {layer.name}, as in the inspected model, got {len(found)}")
    if layer.recipe is None:
        raise ProblemError(f"model: the weights of {layer.name} are not known")
    query, key = layer.recipe.query, layer.recipe.key
    side, shared = (query, 1) if change == "queries" else (key, query.heads // key.heads)
    (weight, bias), (own, _) = (layer.family.linears(one)[side.linear] for one in (found[0], layer.module))
    if weight.shape != own.shape:
        raise ProblemError(f"model: expected weights {tuple(own.shape)} in {layer.name}, got {tuple(weight.shape)}")
    group = head // shared
    rows = side.rows.to(weight.device).reshape(side.heads, -1)[group]
    heads = list(range(group * shared, (group + 1) * shared))
    return HeadWeights(weight, bias if change == "queries" else None, rows, side.factor, heads)


def _centred(vectors: np.ndarray, there: np.ndarray) -> np.ndarray:
    mean = (vectors * there).sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=1, keepdims=True), 1)
    return np.asarray(vectors - mean)


def _moment(vectors: Float[np.ndarray, "m d"], ridge: float) -> Float[np.ndarray, "d d"]:
    """The Cholesky factor of the second moment with its ridge."""
    moment = vectors.T @ vectors / len(vectors)
    mean = float(np.trace(moment)) / len(moment)
    if not mean > 0:
        raise ProblemError("keep: expected text with at least two different tokens in a sequence")
    return np.asarray(np.linalg.cholesky(moment + ridge * mean * np.eye(len(moment))))


def _solved(factor: np.ndarray, vectors: Float[np.ndarray, "k m d"]) -> Float[np.ndarray, "k m d"]:
    flat = vectors.reshape(-1, vectors.shape[-1])
    return np.asarray(solve_triangular(factor, flat.T, lower=True).T.reshape(vectors.shape))
