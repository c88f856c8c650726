"""One head of one layer: the rows of its logits, the metric of unrelated text, and where its weights are in a model."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor, nn

from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.inspect.edits.rows import EditRows
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.weights import Layer, Scores, rotated

MOST_PAIRS = 50_000
"""Pairs of a query and a token whose second moments are the metric; more are sampled."""

Indices = Int[np.ndarray, " m"]


class Pairs(NamedTuple):
    """Pairs of tokens of which the first should lead, in the logits of a query: one row each."""

    sequence: Indices
    query: Indices  # column of the layer's queries
    chosen: Indices
    other: Indices


class EditMetric(NamedTuple):
    """Cholesky factors of two second moments: ‖D‖² is the mean square of x'D u over independent x and u."""

    inputs: Float[np.ndarray, "k k"]
    partners: Float[np.ndarray, "d_h d_h"]
    basis: Float[np.ndarray, "d k"] | None = None  # B, where D = BC is restricted to some directions, and C is found

    def within(self, basis: Float[np.ndarray, "d k"]) -> "EditMetric":
        """The norm of changes BC, whose inputs have the second moments B'L_x L_x'B; B has orthonormal columns."""
        root = np.asarray(np.linalg.qr(self.inputs.T @ basis, mode="r"))
        return EditMetric(root.T, self.partners, basis)

    def whitened(self, rows: EditRows) -> EditRows:
        """The rows of L_x'D L_u instead of those of D."""
        own = rows.inputs if self.basis is None else rows.inputs @ self.basis
        inputs, partners = (
            solve_triangular(factor, vectors.reshape(-1, len(factor)).T, lower=True).T.reshape(vectors.shape)
            for factor, vectors in ((self.inputs, own), (self.partners, rows.partners))
        )
        return EditRows(inputs, partners, rows.wanted, rows.query)

    def original(self, weights: Float[np.ndarray, "d d_h"]) -> Float[np.ndarray, "d d_h"]:
        """D from L_x'D L_u."""
        left = solve_triangular(self.inputs, weights, trans="T", lower=True)
        found = np.asarray(solve_triangular(self.partners, left.T, trans="T", lower=True).T)
        return found if self.basis is None else self.basis @ found


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
            raise ProblemError(
                f"model: {name} normalises its queries and keys, so the logits are not linear in its weights"
            )
        if layer.bias_of_tokens:
            raise ProblemError(f"model: {name} has biases that depend on its tokens, which edits do not support")
        if layer.softcap is not None or layer.sink is not None:
            what = "a soft cap of its logits" if layer.sink is None else "an attention sink beside its tokens"
            raise ProblemError(f"model: {name} has {what}, which edits do not support")

    @cached_property
    def logits(self) -> Scores:
        """The present logits, −inf where a query may not attend."""
        return np.where(self.layer.allowed, self.layer.logits(self.head), -np.inf)

    def margins(self, pairs: Pairs) -> Float[np.ndarray, " m"]:
        """The present leads."""
        sequence, query, chosen, other = pairs
        return np.asarray(self.logits[sequence, query, chosen] - self.logits[sequence, query, other])

    def rows(self, pairs: Pairs, wanted: Float[np.ndarray, " m"]) -> EditRows:
        """The rows that ask for these leads in the changed logits; ``wanted``: less the present ones."""
        sequence, query, *tokens = pairs
        number = sequence * self.layer.allowed.shape[1] + query
        first, second = (self._inputs[sequence, query if self.change == "queries" else one] for one in tokens)
        chosen, other = (self._partners(sequence, query, one) for one in tokens)
        if self.change == "queries":  # z'D (v_α − v_t)
            return EditRows(first[None], (chosen - other)[None], wanted, number)
        if self.layer.rotation is None:  # (x_α − x_t)'D u
            return EditRows((first - second)[None], other[None], wanted, number)
        # x_α'D u_α − x_t'D u_t: the positions are different, and so are the partners
        return EditRows(np.stack([first, -second]), np.stack([chosen, other]), wanted, number)

    def metric(self, ridge: float) -> EditMetric:
        """The second moments of x and u on the text of this layer, with a ridge relative to their mean diagonal.

        Keys are centred in each sequence, because a logit matters only relative to those of other tokens; the factor 2
        is that of the difference of two tokens.
        """
        pairs = np.argwhere(self.layer.allowed)
        if len(pairs) > MOST_PAIRS:
            pairs = pairs[np.random.default_rng(0).choice(len(pairs), MOST_PAIRS, replace=False)]
        sequence, query, token = pairs.T
        there = np.asarray(self.layer.allowed.any(axis=1))

        def centred(vectors: np.ndarray) -> np.ndarray:
            count = np.maximum(there.sum(axis=1)[:, None, None], 1)
            return np.asarray(np.sqrt(2) * (vectors - (vectors * there[..., None]).sum(axis=1, keepdims=True) / count))

        if self.change == "queries":
            inputs, keys = self._inputs[self.layer.positions >= 0], centred(self._projected[0])
        else:
            inputs, keys = centred(self._inputs)[there], None
        return EditMetric(_moment(inputs, ridge), _moment(self._partners(sequence, query, token, keys), ridge))

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
    def weights(self) -> Float[np.ndarray, "d d_h"]:
        """The weights that change; for queries with a bias, it is their last row."""
        parts = self.layer.weights()
        of_queries = parts.biased_query(self.head) if self.has_bias else parts.query[self.head]
        return np.asarray(parts.key[self.head] if self.change == "keys" else of_queries)

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

    def _partners(
        self, sequence: Indices, query: Indices, token: Indices, keys: np.ndarray | None = None
    ) -> Float[np.ndarray, "m d_h"]:
        """What meets the changed weights in a logit, times its scale; ``keys``: other keys.

        For keys queries b as seen from the position of a token, u = R_t'R_q b; for queries keys k as seen from the
        position of the query, v = R_q'R_t k.
        """
        own_keys, queries = self._projected
        if self.change == "keys":
            vectors, position = queries[sequence, query], token
        else:
            vectors = (own_keys if keys is None else keys)[sequence, token]
            position = self.layer.positions[sequence, query]
        vectors = np.asarray(self.layer.scale * vectors)
        if self.layer.rotation is None:
            return vectors
        cosine, sine = (part[sequence, position] for part in self.layer.rotation)
        return np.asarray(rotated(vectors, cosine, -sine))


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
    if layer.run is not None:
        raise ProblemError(f"model: {layer.name} shares its weights with other layers, which edits do not support")
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
    own_storages = {part.untyped_storage().data_ptr() for part in found[0].parameters()}
    if weight.untyped_storage().data_ptr() not in own_storages:
        raise ProblemError(
            f"model: expected weights of {layer.name} that can be changed, got a sum with those of an adapter; merge it"
            " first (merge_and_unload)"
        )
    if change == "queries" and bias is not None and bias.untyped_storage().data_ptr() not in own_storages:
        raise ProblemError(
            f"model: expected a bias of the queries of {layer.name} that can be changed, got one that is made of other"
            " parameters"
        )
    group = head // shared
    rows = side.rows.to(weight.device).reshape(side.heads, -1)[group]
    heads = list(range(group * shared, (group + 1) * shared))
    return HeadWeights(weight, bias if change == "queries" else None, rows, side.factor, heads)


def _moment(vectors: Float[np.ndarray, "m d"], ridge: float) -> Float[np.ndarray, "d d"]:
    """The Cholesky factor of the second moment with its ridge."""
    moment = vectors.T @ vectors / len(vectors)
    mean = float(np.trace(moment)) / len(moment)
    if not mean > 0:
        raise ProblemError("keep: expected text in which a sequence has at least two different tokens")
    return np.asarray(np.linalg.cholesky(moment + ridge * mean * np.eye(len(moment))))
