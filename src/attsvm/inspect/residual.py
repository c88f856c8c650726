"""The residual stream that enters a layer, split by origin, and runs of a model with other streams in its place."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.errors import ProblemError
from attsvm.inspect.attention_calls import SDPA_ARGUMENTS, AttentionCalls
from attsvm.inspect.families.call import AttentionCall
from attsvm.inspect.families.stream import AddsHeads, Parts, Step, normed
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.model_calls import call_model, chunks, evaluating, on_device_of

Streams = tuple[Tensor | None, Tensor | None]
"""What the heads make their queries and their keys from (b, T, d); None leaves a side as it is."""


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

    def entering(self) -> Parts:
        """What enters the layer, by origin, with every norm at its actual scale."""
        return self._read(self.written)

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
        return torch.stack(list(self._read([total(parts) for parts in self.written]).values())).sum(dim=0)

    def _read(self, written: list[Parts]) -> Parts:
        parts: Parts = {}
        for step, of_step in zip(self.steps, written, strict=True):
            parts = step.changed(parts, of_step)
        return normed(self.reader.norm, parts)


def residual_stream(model: nn.Module, batch: Any, layer: AttentionLayer) -> Residual:
    """Run a model and record what every origin adds to its residual stream before a layer.

    Raises ProblemError if the family of the layer does not describe the stream, or the model does not run as described.
    """
    steps = layer.family.stream(model)
    readers = [step.reader for step in steps]
    at = next((k for k, one in enumerate(readers) if one is not None and one.attention is layer.module), None)
    reader = None if at is None else readers[at]
    if reader is None:
        raise ProblemError(f"family: the residual stream that {layer.family} describes does not contain {layer.name}")
    before = steps[:at]
    written: list[list[Parts]] = [[] for _ in before]
    layers = [sum(one is not None for one in readers[:k]) for k in range(len(before))]
    with torch.no_grad(), evaluating(model):
        for piece in chunks(on_device_of(model, batch)):
            kept = _kept(model, piece, before, reader.attention)
            size = max(len(tensor) for tensors in kept for tensor in tensors)
            for step, tensors, count, into in zip(before, kept, layers, written, strict=True):
                into.append(step.written([tensor.expand(size, -1, -1) for tensor in tensors], count))
    return Residual(reader, before, [_together(of_step) for of_step in written])


class Reached(Exception):
    """Stops a pass of the model at the layer whose stream is recorded or replaced."""


def _kept(model: nn.Module, batch: Any, steps: list[Step], until: nn.Module) -> list[list[Tensor]]:
    """What each step keeps of one call of a model, which ends before a module."""
    kept: list[list[Tensor]] = [[] for _ in steps]

    def keep(into: list[Tensor], tensor: Tensor) -> None:
        tensor = tensor.detach().cpu().double()
        into.append(tensor if tensor.ndim == 3 else tensor[None])  # positions may lack the axis of sequences

    def stop(*_: Any) -> None:
        raise Reached

    with contextlib.ExitStack() as stack:
        stack.callback(until.register_forward_pre_hook(stop).remove)
        hooks = [step.watched(partial(keep, into)) for step, into in zip(steps, kept, strict=True)]
        for hook in (hook for of_step in hooks for hook in of_step):
            stack.callback(hook.remove)
        with contextlib.suppress(Reached):
            call_model(model, batch)
    for number, (tensors, of_step) in enumerate(zip(kept, hooks, strict=True)):
        if len(tensors) != len(of_step):
            raise ProblemError(
                f"model: step {number} of the residual stream, {type(steps[number]).__name__}, expected"
                f" {len(of_step)} calls of its module in a pass, got {len(tensors)}"
            )
    return kept


def _together(pieces: list[Parts]) -> Parts:
    return {origin: torch.cat([piece[origin] for piece in pieces]) for origin in pieces[0]}


class _OtherQueriesAndKeys(AttentionCalls):
    """Calls scaled_dot_product_attention with other queries and keys for some heads, and keeps all calls."""

    def __init__(self, heads: tuple[int, ...], query: Tensor | None = None, key: Tensor | None = None) -> None:
        super().__init__()
        self.heads, self.query, self.key = list(heads), query, key

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return super().__torch_function__(func, types, args, kwargs)
        given = {**dict(zip(SDPA_ARGUMENTS, args, strict=False)), **(kwargs or {})}
        repeats = given["query"].shape[1] // given["key"].shape[1]
        for name in ("key", "value"):  # heads that share keys get their own
            given[name] = given[name].repeat_interleave(repeats, 1)
        given.pop("enable_gqa", None)
        for name, other in (("query", self.query), ("key", self.key)):
            if other is not None:
                given[name] = given[name].clone()
                given[name][:, self.heads] = other[:, self.heads]
        return super().__torch_function__(func, types, kwargs=given)


@contextlib.contextmanager
def other_streams(
    module: nn.Module, heads: tuple[int, ...], streams: Streams, ends: bool
) -> Iterator[list[AttentionCall]]:
    """Let a module make the queries and the keys of some heads from other streams; yields its calls.

    If it ``ends``, the pass of the model ends behind the module with :class:`Reached`.
    """
    forward = module.forward
    found: list[AttentionCall] = []

    def run(*arguments: Any, **keywords: Any) -> Any:
        like = arguments[0] if arguments else keywords["hidden_states"]

        def called(states: Tensor, query: Tensor | None = None, key: Tensor | None = None) -> tuple[Any, AttentionCall]:
            """One run of the module, with these queries and keys of the heads if they are given."""
            states = states.to(like)
            with _OtherQueriesAndKeys(heads, query, key) as mode:
                if arguments:
                    output = forward(states, *arguments[1:], **keywords)
                else:
                    output = forward(**{**keywords, "hidden_states": states})
            if len(mode.calls) != 1:
                raise ProblemError(
                    "model: the causal test needs attention by one call of scaled_dot_product_attention, got"
                    f" {len(mode.calls)}"
                )
            return output, mode.calls[0]

        queries, keys = (None if stream is None else called(stream)[1] for stream in streams)
        output, call = called(like, None if queries is None else queries.query, None if keys is None else keys.key)
        found.append(call)
        if ends:
            raise Reached
        return output

    own = module.__dict__.get("forward")
    module.forward = run
    try:
        yield found
    finally:
        del module.forward
        if own is not None:
            module.forward = own
