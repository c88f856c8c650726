"""The residual stream that enters a layer, split by origin, and streams with parts of other tokens in its place."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.stream import AddsHeads, Norms, Parts, Step, joined, normed, watch, written
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.model_calls import call_model, chunks, evaluating, on_device_of


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

    def mixed(self, places: Tensor, own: Callable[[str], bool]) -> Tensor:
        """What enters the layer if only some origins are of the token itself, with every norm computed again.

        ``places``: shape (b, T, 2), sequence and place of the token from which the other origins are. ``own``: whether
        an origin is of the token itself.
        """
        sequences, tokens = places.unbind(dim=-1)

        def total(parts: Parts) -> Parts:
            if not parts:
                return {}
            mine = other = torch.zeros_like(next(iter(parts.values())))
            for origin, part in parts.items():
                if own(origin):
                    mine = mine + part
                else:
                    other = other + part
            return {"": mine + other[sequences, tokens]}

        # one part alone is at the scale of the whole, so its norm is the norm itself; the biases are added to it
        return torch.stack(list(self._read([total(parts) for parts in self.written], {}).values())).sum(dim=0)

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
        for hook in filter(None, hooks):
            stack.callback(hook.remove)
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
