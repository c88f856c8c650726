"""The residual stream that enters a layer, split by origin, and the logits and decisions that follow from the parts."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from attsvm.errors import ProblemError
from attsvm.inspect.families.stream import CONSTANT, AddsHeads, Norms, Parts, Step, joined, normed, watch, written
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.measures import PATTERNS, TokenIds
from attsvm.inspect.model_calls import call_model, chunks, evaluating, on_device_of
from attsvm.inspect.weights import Layer, Mask, Scores, Selected


@dataclass(frozen=True)
class Residual:
    """The residual stream of a run of a model, up to one attention layer."""

    reader: AddsHeads  # the layer; it reads the stream through its norm
    steps: list[Step]  # those before it
    written: list[Parts]  # what each of them adds, by origin (b, T, d), in float64

    @property
    def origins(self) -> list[str]:
        """Every origin that adds to the stream."""
        return list(dict.fromkeys(origin for parts in self.written for origin in parts))

    def entering(self, features: Mapping[str, Float[np.ndarray, "k d"]] | None = None) -> Parts:
        """What enters the layer, by origin, with every norm at its actual scale.

        ``features``: vectors of more origins; see :func:`with_features`.
        """
        return self._read(self.written, features or {})

    def mixed(self, own: Callable[[str], bool]) -> Callable[[Tensor], Tensor]:
        """What enters the layer if only some origins are of the token itself, with every norm computed again.

        Returns a function of places, shape (b, T, 2): sequence and place of the token from which the other origins are.
        ``own``: whether an origin is of the token itself.
        """
        sums: list[tuple[Tensor, Tensor, Callable[..., Tensor]]] = []  # of own and of other origins before each norm
        parts: Parts = {}
        for step, of_step in zip([*self.steps, Norms(self.reader.norm)], [*self.written, {}], strict=True):
            if not isinstance(step, Norms):
                parts = joined(parts, of_step)
                continue
            nothing = torch.zeros_like(next(iter(self.written[0].values())))
            sides = ([part for origin, part in parts.items() if own(origin) is mine] for mine in (True, False))
            mine, other = (sum(side, nothing) for side in sides)
            weights = {name: weight.detach().cpu().double() for name, weight in step.module.named_parameters()}
            sums.append((mine, other.flatten(0, 1), partial(functional_call, step.module, weights)))
            parts = {}

        def mix(places: Tensor) -> Tensor:
            stream, at = torch.zeros(()), places[..., 0] * places.shape[1] + places[..., 1]
            for mine, other, norm in sums:
                stream = norm((stream + mine).add_(other[at]))
            return stream

        return mix

    def _read(self, written: list[Parts], features: Mapping[str, Float[np.ndarray, "k d"]]) -> Parts:
        parts: Parts = {}
        for step, of_step in zip(self.steps, written, strict=True):
            parts = normed(step.module, parts) if isinstance(step, Norms) else joined(parts, of_step)
        return normed(self.reader.norm, with_features(parts, features))


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


def steps_to(model: nn.Module, layer: AttentionLayer) -> tuple[list[Step], AddsHeads]:
    """What adds to the residual stream before a layer, and how the layer reads it.

    Raises ProblemError if the family of the layer does not describe it.
    """
    steps = layer.family.stream(model)
    for number, step in enumerate(steps):
        if isinstance(step, AddsHeads) and step.attention is layer.module:
            return steps[:number], step
    raise ProblemError(f"family: the residual stream that {layer.family} describes does not contain {layer.name}")


class _Reached(Exception):
    """Stops a pass of the model at the layer whose stream is recorded."""


def residual_stream(model: nn.Module, batch: Any, layer: AttentionLayer) -> Residual:
    """Run a model and record what every origin adds to its residual stream before a layer.

    Raises ProblemError if the family of the layer does not describe the stream, or the model does not run as described.
    """
    before, reader = steps_to(model, layer)
    kept: list[list[Tensor]] = [[] for _ in before]

    def keep(into: list[Tensor], tensor: Tensor) -> None:
        tensor = tensor.detach().cpu().double()
        into.append(tensor if tensor.ndim == 3 else tensor[None])  # positions may lack the axis of sequences

    def stop(*_: Any) -> None:
        raise _Reached

    with torch.no_grad(), evaluating(model), contextlib.ExitStack() as stack:
        stack.callback(reader.attention.register_forward_pre_hook(stop).remove)
        hooks = [watch(step, partial(keep, into)) for step, into in zip(before, kept, strict=True)]
        for attached in filter(None, hooks):
            stack.callback(attached.remove)
        for count, piece in enumerate(chunks(on_device_of(model, batch)), start=1):
            with contextlib.suppress(_Reached):
                call_model(model, piece)
            size = max(len(tensors[-1]) for tensors in kept if tensors)
            for number, (tensors, hook) in enumerate(zip(kept, hooks, strict=True)):
                if hook is not None and len(tensors) != count:
                    raise ProblemError(
                        f"model: step {number} of the residual stream, {type(before[number]).__name__}, expected one"
                        f" call of its module in a pass, got {len(tensors) - count + 1}"
                    )
                tensors[-1:] = [tensor.expand(size, -1, -1) for tensor in tensors[-1:]]
    found, layers = [], 0
    for step, tensors in zip(before, kept, strict=True):
        found.append(written(step, torch.cat(tensors) if tensors else None, layers))
        layers += isinstance(step, AddsHeads)
    return Residual(reader, before, found)


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

    def margins(self) -> Float[np.ndarray, "origins origins queries"]:
        """The logit of the selected token minus that of the runner-up, by origin of the queries and of the keys.

        The last axis counts the queries that have both.
        """
        there = self.selected >= 0
        i, q = np.nonzero(there)
        differences = self.keys[:, i, self.selected[there]] - self.keys[:, i, self.runner_up[there]]
        margins: np.ndarray = self.scale * np.einsum("amd,bmd->abm", self.queries[:, i, q], differences)
        return margins


def split_logits(parts: Parts, layer: Layer, head: int, follows: Mask | None) -> LogitSplit:
    """Split the logits of one head by origin; ``follows``: the pattern of the decisions that count."""
    # queries and keys are sums over the origins, q = Σ q_o and k = Σ k_o, so that q'k = Σ_o Σ_p q_o'k_p; with every
    # origin centred, all means together are one more origin, "constant"
    at = np.maximum(layer.positions, 0)[..., None]
    asking, seen = layer.positions >= 0, layer.allowed.any(axis=1)
    mean_key, mean_query = np.zeros(layer.tokens.shape[-1]), np.zeros(layer.queries.shape[-1])
    centred = {}
    for origin, part in parts.items():
        tokens = part.numpy()
        asked = np.take_along_axis(tokens, at, axis=1)
        of_key, of_query = tokens[seen].mean(axis=0), asked[asking].mean(axis=0)
        centred[origin] = layer.projected(head, tokens - of_key, asked - of_query, biases=False)
        mean_key, mean_query = mean_key + of_key, mean_query + of_query
    # the biases of the projections are constant, too
    constant = layer.projected(
        head, np.broadcast_to(mean_key, layer.tokens.shape), np.broadcast_to(mean_query, layer.queries.shape)
    )
    keys, queries = (np.stack(parts) for parts in zip(constant, *centred.values(), strict=True))
    logits = layer.logits(head)
    rebuilt = layer.scale * queries.sum(axis=0) @ keys.sum(axis=0).mT
    error = float(np.abs(np.where(layer.allowed, rebuilt - logits, 0.0)).max())
    decided = decisions(logits, layer.allowed, follows)
    return LogitSplit(head, [CONSTANT, *centred], queries, keys, layer.scale, *decided, error)


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
