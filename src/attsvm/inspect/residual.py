"""The residual stream that enters a layer, split by origin, and the logits and decisions that follow from the parts."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.inspect.families.stream import (
    BIASES_OF_TOKENS,
    CONSTANT,
    POSITION_BIASES,
    Multiple,
    Node,
    Normed,
    Parts,
    StreamTrace,
    Sum,
    Written,
    leaves,
    normed,
    split,
)
from attsvm.inspect.layers import AttentionLayer, LayerInputs, Unread, reading
from attsvm.inspect.measures import PATTERNS, TokenIds
from attsvm.inspect.model_calls import Uncompiled, call_model, chunks, evaluating, on_device_of
from attsvm.inspect.weights import Layer, Mask, Scores, Selected


@dataclass(frozen=True)
class Residual:
    """The residual stream of a run of a model, up to one attention layer."""

    stream: Node
    norm: nn.Module  # through which the layer reads it; the identity if there is none
    leaves: list[Written]
    written: list[Parts]  # what each of them adds, by origin (b, T, d), in float64

    @property
    def origins(self) -> list[str]:
        """Every origin that adds to the stream."""
        return list(dict.fromkeys(origin for parts in self.written for origin in parts))

    def entering(self, resplit: Callable[[Parts], Parts] = lambda parts: parts) -> Parts:
        """What enters the layer, by origin, with every norm at its actual scale.

        ``resplit``: how the stream before the norm of the layer is split by other origins; see :func:`with_features`.
        """
        parts = split(self.stream, dict(zip(self.leaves, self.written, strict=True)))
        order = [origin for origin in dict.fromkeys((*self.origins, *parts)) if origin in parts]
        return normed(self.norm, resplit({origin: parts[origin] for origin in order}))

    def mixed(self, own: Callable[[str], bool]) -> Callable[[Tensor], Tensor]:
        """What enters the layer if only some origins are of the token itself, with every norm computed again.

        Returns a function of places, shape (b, T, 2): sequence and place of the token from which the other origins are.
        ``own``: whether an origin is of the token itself.
        """
        written = dict(zip(self.leaves, self.written, strict=True))
        mixed = _mixed(Normed((self.stream,), self.norm), written, own)
        return lambda places: mixed(places[..., 0] * places.shape[1] + places[..., 1])


def _mixed(node: Node, written: Mapping[Written, Parts], own: Callable[[str], bool]) -> Callable[[Tensor], Tensor]:
    """A stream as a function of the flat places of other origins; what is added between two norms is summed once."""
    like = next(iter(next(iter(written.values())).values()))
    mine, other = torch.zeros_like(like), torch.zeros_like(like)
    behind: list[tuple[Tensor, Callable[..., Tensor], Callable[[Tensor], Tensor]]] = []  # factor, norm, and its stream

    def add(one: Node, factor: Tensor) -> None:
        match one:
            case Written():
                for origin, part in written[one].items():
                    (mine if own(origin) else other).addcmul_(part, factor)
            case Normed():
                weights = {name: weight.detach().cpu().double() for name, weight in one.norm.named_parameters()}
                behind.append((factor, partial(functional_call, one.norm, weights), _mixed(one.of[0], written, own)))
            case Multiple():
                add(one.of[0], factor * one.scale)
            case Sum():
                for inner in one.of:
                    add(inner, factor)

    add(node, torch.ones((), dtype=torch.float64))

    def at(places: Tensor) -> Tensor:
        stream = mine + other.flatten(0, 1)[places]
        for factor, norm, inner in behind:
            stream = stream + factor * norm(inner(places)).double()
        return stream

    return at


def with_features(parts: Parts, features: Mapping[str, Float[np.ndarray, "k d"]]) -> Parts:
    """Take out of every origin what it adds along some vectors, and make it origins of their own.

    What an origin adds at a place is a combination of all vectors, by least squares, and a rest. The combinations of
    all origins add up to those of the features, and the rests stay where they were.
    """
    if not features:
        return parts
    vectors = torch.as_tensor(np.concatenate(list(features.values())))
    dual = torch.linalg.pinv(vectors)  # (d, m): the coefficients of a part p are p @ dual
    taken = sum(parts.values(), torch.zeros(())) @ dual
    ends = np.cumsum([len(of_feature) for of_feature in features.values()])
    found = {origin: part - part @ dual @ vectors for origin, part in parts.items()}
    for (name, of_feature), end in zip(features.items(), ends, strict=True):
        at = slice(end - len(of_feature), end)
        found[name] = taken[..., at] @ vectors[at]
    return found


class _Reached(Exception):
    """Stops a pass of the model behind the layer whose stream is recorded."""


def residual_stream(model: nn.Module, batch: Any, layers: list[AttentionLayer], index: int) -> Residual:
    """Run a model and record what every origin adds to its residual stream before a layer.

    Raises ProblemError if the stream is not known, or the layer is one of cross-attention, which reads two of them.
    """
    queries, keys = residual_streams(model, batch, layers, index)
    if queries is not keys:
        raise ProblemError(f"layer: expected one of self-attention, got {index} ({layers[index].name})")
    return queries


def residual_streams(
    model: nn.Module, batch: Any, layers: list[AttentionLayer], index: int
) -> tuple[Residual, Residual]:
    """The residual streams that the queries and the keys of a layer are made from; one in self-attention.

    Raises ProblemError if they are not known.
    """
    found: list[list[tuple[Node, nn.Module, list[Written], list[Parts]]]] = []
    with torch.no_grad(), evaluating(model), Uncompiled():
        for piece in chunks(on_device_of(model, batch)):
            found.append(_traced(model, piece, layers, index))
    residuals = []
    for of_side in zip(*found, strict=True):
        stream, norm, leaves, first = of_side[0]
        if any([list(one) for one in written] != [list(one) for one in first] for *_, written in of_side):
            raise ProblemError("batch: expected sequences whose residual streams have the same parts")
        written = [
            {origin: torch.cat([one[origin] for one in of_leaf]) for origin in of_leaf[0]}
            for of_leaf in zip(*(written for *_, written in of_side), strict=True)
        ]
        residuals.append(Residual(stream, norm, leaves, written))
    return residuals[0], residuals[-1]


def _traced(
    model: nn.Module, piece: Any, layers: list[AttentionLayer], index: int
) -> list[tuple[Node, nn.Module, list[Written], list[Parts]]]:
    """The streams that a layer reads in one pass: how each is made, the norm before the layer, and what is written."""
    known = {layer.name: k for k, layer in enumerate(layers) if not isinstance(layer.family, Unread)}
    modules: dict[nn.Module, list[int]] = {}  # several layers may share one
    for k in known.values():
        modules.setdefault(layers[k].module, []).append(k)
    trace, heads = StreamTrace(model), dict[int, Tensor]()
    sides: list[Tensor] = []

    def begin(module: nn.Module, *inputs: Any) -> None:
        if sides:
            raise _Reached
        left = modules[module]
        trace.begin(left.pop(0) if len(left) > 1 else left[0], inputs)

    def read(layer: AttentionLayer, inputs: Callable[[], LayerInputs]) -> None:
        of_layer = inputs()
        if known[layer.name] == index:
            if of_layer.found is None:
                raise ProblemError(f"model: the tokens that enter {layer.name} are not known")
            queries, keys = of_layer.found.queries, of_layer.found.keys
            sides.extend([queries] if queries is keys else [queries, keys])
            trace.entering = tuple(trace.nodes.get(one) or trace.written("input", one) for one in sides)
        if of_layer.call.mixed is not None:
            heads[known[layer.name]] = of_layer.call.mixed[1].reshape(*of_layer.call.query.shape[:3], -1)

    with contextlib.ExitStack() as stack:
        stack.enter_context(trace.following())
        stack.enter_context(reading([layers[k] for k in known.values()], read, with_attention=True))
        for module in modules:
            stack.callback(module.register_forward_pre_hook(begin, with_kwargs=True, prepend=True).remove)
            stack.callback(module.register_forward_hook(trace.end).remove)
        with contextlib.suppress(_Reached):
            call_model(model, piece)
    found = []
    for tensor, node in zip(sides, trace.entering, strict=True):
        norm: nn.Module = nn.Identity()
        if isinstance(node, Normed) and not trace.continues:
            norm, (node,) = node.norm, node.of
        written = leaves(node)
        before = [not any(one.inside for one in written[:number]) for number in range(len(written))]
        of_leaves = [one.parts(tensor.shape, heads, first) for one, first in zip(written, before, strict=True)]
        found.append((node, norm, written, of_leaves))
    return found


@dataclass(frozen=True, eq=False, repr=False)
class LogitSplit:
    """The logits of one head, split by origin on the side of the queries and on the side of the keys."""

    head: int
    # "constant", embedding, positions, earlier heads such as "head 0.3", MLPs such as "MLP 0", and "biases"
    origins: list[str]
    # what each origin contributes to the queries, after rotary positions: the mean query for "constant", and for every
    # other origin its difference from its mean over all queries
    queries: Float[np.ndarray, "origins n Q d_h"]
    keys: Float[np.ndarray, "origins n T d_h"]  # in the same way, with means over all tokens
    scale: float  # factor of the logits
    # selected, runner_up: the token with the largest logit, and the one with the largest logit among the others; −1
    # where the query does not count
    selected: Selected
    runner_up: Selected
    error: float  # largest difference between the sum of all parts and the logits of the head
    # places of the queries, −1 where there is none; None in cross-attention, where places of queries are no distances
    positions: Selected | None
    bias: Scores | None = None  # added to the logits; the last origin, whose queries and keys are 0

    def margins(self) -> Float[np.ndarray, "origins origins queries"]:
        """The logit of the selected token minus that of the runner-up, by origin of the queries and of the keys.

        The last axis counts the queries that have both.
        """
        there = self.selected >= 0
        i, q = np.nonzero(there)
        differences = self.keys[:, i, self.selected[there]] - self.keys[:, i, self.runner_up[there]]
        margins: np.ndarray = self.scale * np.einsum("amd,bmd->abm", self.queries[:, i, q], differences)
        if self.bias is not None:
            margins[-1, -1] = self.bias[i, q, self.selected[there]] - self.bias[i, q, self.runner_up[there]]
        return margins


def split_logits(of_queries: Parts, of_keys: Parts, layer: Layer, head: int, follows: Mask | None) -> LogitSplit:
    """Split the logits of one head by origin; ``follows``: the pattern of the decisions that count."""
    # queries and keys are sums over the origins, q = Σ q_o and k = Σ k_o, so that q'k = Σ_o Σ_p q_o'k_p; with every
    # origin centred, all means together are one more origin, "constant". Norms of queries and keys are linear at their
    # actual scale
    at = np.maximum(layer.positions, 0)[..., None]
    asking, seen = layer.positions >= 0, layer.allowed.any(axis=1)
    mean_key, mean_query = np.zeros(layer.tokens.shape[-1]), np.zeros(layer.queries.shape[-1])
    nothing = np.zeros_like(layer.tokens), np.zeros_like(layer.queries)
    scales, centred = layer.norm_scales(head), {}
    for origin in dict.fromkeys((*of_queries, *of_keys)):
        tokens, asked = nothing
        if origin in of_keys:
            tokens = of_keys[origin].numpy()
            of_key = tokens[seen].mean(axis=0)
            tokens, mean_key = tokens - of_key, mean_key + of_key
        if origin in of_queries:
            asked = np.take_along_axis(of_queries[origin].numpy(), at, axis=1)
            of_query = asked[asking].mean(axis=0)
            asked, mean_query = asked - of_query, mean_query + of_query
        centred[origin] = layer.projected(head, tokens, asked, biases=False)
    # the biases of the projections are constant, too
    constant = layer.projected(
        head, np.broadcast_to(mean_key, layer.tokens.shape), np.broadcast_to(mean_query, layer.queries.shape)
    )
    origins, sides, bias = [CONSTANT, *centred], [constant, *centred.values()], None
    if layer.bias is not None:
        bias = layer.bias[:, head]
        origins.append(BIASES_OF_TOKENS if layer.bias_of_tokens else POSITION_BIASES)
        sides.append((np.zeros_like(constant[0]), np.zeros_like(constant[1])))
    keys, queries = (scale * np.stack(parts) for scale, parts in zip(scales, zip(*sides, strict=True), strict=True))
    logits = layer.logits(head)
    rebuilt = layer.scale * queries.sum(axis=0) @ keys.sum(axis=0).mT + (0.0 if bias is None else bias)
    error = float(np.abs(np.where(layer.allowed, rebuilt - logits, 0.0)).max())
    decided = decisions(logits, layer.allowed, follows)
    places = layer.positions if layer.is_self else None
    return LogitSplit(head, origins, queries, keys, layer.scale, *decided, error, places, bias)


def decisions(logits: Scores, allowed: Mask, follows: Mask | None) -> tuple[Selected, Selected]:
    """Selected token and runner-up of each query, −1 for both where the query does not count."""
    logits = np.where(allowed, logits, -np.inf)
    selected = logits.argmax(axis=-1)
    same = np.arange(logits.shape[-1]) == selected[..., None]
    counts = np.ones(selected.shape, bool)
    if follows is not None:  # other tokens of the pattern are as right as the selected one
        counts = np.take_along_axis(follows, selected[..., None], axis=-1)[..., 0]
        same |= follows
    counts &= (allowed & ~same).any(axis=-1) & allowed.any(axis=-1)
    runner_up = np.where(same, -np.inf, logits).argmax(axis=-1)
    return np.where(counts, selected, -1), np.where(counts, runner_up, -1)


def pattern_of(name: str | None, layer: Layer, tokens: TokenIds | None) -> Mask | None:
    """The tokens (n, Q, T) that follow a pattern from each query.

    Raises ProblemError if there is no such pattern, or the tokens are not known.
    """
    if name is None:
        return None
    if name not in PATTERNS:
        raise ProblemError(f"pattern: expected one of {', '.join(PATTERNS)}, got {name!r}")
    if tokens is None:
        raise ProblemError("pattern: expected a batch with input_ids, so that tokens are known, got one without")
    follows: Mask = PATTERNS[name](layer.positions, tokens) & layer.allowed
    return follows
