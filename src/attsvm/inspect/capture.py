"""Run a model and record the inputs of its attention layers, a few layers and a few sequences at a time."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attsvm._utils.linear_algebra import softmax
from attsvm.errors import ProblemError
from attsvm.inspect.attention_functions import attention_functions
from attsvm.inspect.families.base import LayerInputs
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.matrices import as_array
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.model_calls import call_model, chunks, evaluating
from attsvm.inspect.sampling import Sampler
from attsvm.inspect.weights import Layer, Projections
from attsvm.svm.threads import threads_for

STATES_BYTES = 2**29
"""Largest size of the tokens of the layers that are recorded in one pass of the model."""

FUSED_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Of ``scaled_dot_product_attention``, in order."""


def capture(model: nn.Module, batch: Any, layers: list[AttentionLayer], sampler: Sampler) -> Iterator[Layer]:
    """The layers one after another, each with all sequences of the batch.

    The model runs several times if the tokens of all layers do not fit into :data:`STATES_BYTES`; each pass stops after
    the last layer that it records.
    """
    at = 0
    per_pass = 1
    while at < len(layers):
        recorded = layers[at : at + per_pass]
        parts = _run(model, batch, recorded, sampler)
        at += len(recorded)
        size = sum(part.tokens.nbytes + part.queries.nbytes for part in parts[recorded[0].name])
        per_pass = max(1, STATES_BYTES // size)
        for layer in recorded:
            yield Layer.joined(parts.pop(layer.name))


class _LastLayerDone(Exception):
    """Stops a pass of the model after the last layer that is recorded."""


class FusedCalls(TorchFunctionMode):
    """Keeps the arguments of the last call of scaled_dot_product_attention."""

    last: FusedCall | None = None

    def keep(self, call: FusedCall) -> None:
        """Let a call be the last one."""
        self.last = call

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            given = {**dict(zip(FUSED_ARGUMENTS, args, strict=False)), **kwargs}
            scale = given.get("scale") or given["query"].shape[-1] ** -0.5
            mask, is_causal = given.get("attn_mask"), bool(given.get("is_causal", False))
            self.keep(FusedCall(given["query"], given["key"], mask, is_causal, scale))
        return func(*args, **kwargs)


class _Recorder:
    """Hooks of one pass: what enters each layer, in chunks of sequences."""

    def __init__(self, layers: list[AttentionLayer], sampler: Sampler, fused_calls: FusedCalls) -> None:
        self.sampler, self.fused_calls = sampler, fused_calls
        self.left = {layer.name for layer in layers}
        self.parts: dict[str, list[Layer]] = {layer.name: [] for layer in layers}
        self.arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.first_sequence = 0

    def before(
        self, layer: AttentionLayer, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Keep the arguments of a call."""
        if layer.name in self.arguments:
            raise ProblemError(f"model: expected one call of {layer.name} in a pass, got more")
        self.arguments[layer.name] = layer.family.prepared(args, keywords)
        self.fused_calls.last = None
        return self.arguments[layer.name]

    def after(self, layer: AttentionLayer, output: Any) -> None:
        """Record a call, and stop the pass once all layers have run, in whatever order."""
        call = self.fused_calls.last
        inputs = layer.family.inputs(layer.module, *self.arguments[layer.name], call)
        own = layer.family.attention(layer.module, output, call)
        earlier = self.parts[layer.name]
        projections = earlier[0].projections if earlier else layer.family.projections(layer.module)
        if inputs.scale is not None:
            projections = projections._replace(scale=inputs.scale)
        earlier.append(_recorded(layer, projections, inputs, own, self.sampler, self.first_sequence))
        self.left.discard(layer.name)
        if not self.left:
            raise _LastLayerDone

    @contextlib.contextmanager
    def attached(self, layer: AttentionLayer) -> Iterator[None]:
        """The hooks of one layer, removed afterwards."""
        hooks = [
            layer.module.register_forward_pre_hook(
                lambda _, args, keywords: self.before(layer, args, keywords), with_kwargs=True
            ),
            # before the hook of FSDP, which takes the weights away
            layer.module.register_forward_hook(lambda _, __, output: self.after(layer, output), prepend=True),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _run(model: nn.Module, batch: Any, layers: list[AttentionLayer], sampler: Sampler) -> dict[str, list[Layer]]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(model))
        recorder = _Recorder(layers, sampler, stack.enter_context(FusedCalls()))
        stack.enter_context(attention_functions(model, recorder.fused_calls.keep))
        for layer in layers:
            stack.enter_context(recorder.attached(layer))
        for piece in chunks(batch):
            recorder.arguments.clear()
            recorder.left = {layer.name for layer in layers}
            with contextlib.suppress(_LastLayerDone):
                call_model(model, piece)
            missing = [layer.name for layer in layers if layer.name not in recorder.arguments]
            if missing:
                raise ProblemError(f"model: does not run its attention layer {missing[0]} on this batch")
            recorder.first_sequence += len(recorder.parts[layers[0].name][-1].tokens)
    return recorder.parts


def _recorded(
    layer: AttentionLayer,
    projections: Projections,
    inputs: LayerInputs,
    own: Tensor | None,
    sampler: Sampler,
    first_sequence: int,
) -> Layer:
    """One chunk of one layer at the sampled queries, and how far its rebuilt attention is from the model's own."""
    if own is None or own.shape[1] != projections.num_heads:
        got = "none" if own is None else f"that of {own.shape[1]}"
        raise ProblemError(f"model: {layer.name}: expected the attention of {projections.num_heads} heads, got {got}")
    allowed: np.ndarray = inputs.allowed.cpu().numpy()
    is_query = np.asarray(allowed.any(axis=-1))
    if inputs.is_self:
        is_query &= allowed.any(axis=-2)  # a padded token is no query
    positions = sampler.positions(is_query, allowed.shape[-1], first_sequence)
    at = np.maximum(positions, 0)[..., None]
    allowed = np.take_along_axis(allowed, at, axis=1) & (positions >= 0)[..., None]
    rotation = given = bias = None
    if inputs.rotation is not None:
        rotation = (as_array(inputs.rotation[0]), as_array(inputs.rotation[1]))
    if inputs.projected is not None:
        keys, queries = inputs.projected
        given = (as_array(keys), np.take_along_axis(as_array(queries), at[:, None], axis=2))
    if inputs.bias is not None:
        bias = np.take_along_axis(as_array(inputs.bias), at[:, None], axis=2)
    part = Layer(
        name=layer.name,
        tokens=as_array(inputs.keys),
        queries=np.take_along_axis(as_array(inputs.queries), at, axis=1),
        allowed=allowed,
        positions=positions,
        projections=projections,
        rotation=rotation,
        given=given,
        bias=bias,
        is_self=inputs.is_self,
        rebuilt_error=np.zeros(projections.num_heads),
    )
    if not (np.isfinite(part.tokens).all() and np.isfinite(part.queries).all()):
        raise ProblemError(f"model: {layer.name}: expected finite hidden states, got NaN or infinity")
    with threads_for(0):  # many small products
        part = replace(part, rebuilt_error=_rebuilt_error(part, own, at))
    return part if inputs.keys.dtype == torch.float64 else part.in_single()


def _rebuilt_error(part: Layer, own: Tensor, at: np.ndarray) -> np.ndarray:
    """Largest difference, for each head, between the model's own attention and the one from tokens and W."""
    errors = np.zeros(part.num_heads)
    for head in range(part.num_heads):
        theirs = np.take_along_axis(as_array(own[:, head]), at, axis=1)
        differences = np.where(part.allowed, softmax(part.head(head).logits(), part.allowed) - theirs, 0.0)
        errors[head] = np.abs(differences).max(initial=0.0)
    return errors
