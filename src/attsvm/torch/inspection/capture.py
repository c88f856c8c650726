"""Runs a model and takes down what enters its attention layers, a few layers and a few sequences at a time."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn
from torch.overrides import TorchFunctionMode

from attsvm.errors import ProblemError
from attsvm.torch.inspection.families.families import FAMILIES, Call, Family, Layout, as_array
from attsvm.torch.inspection.weights import Layer, Projections, softmax

CHUNK_LOGITS = 2**24
"""Attention probabilities of 12 heads in a chunk of sequences; the model holds some copies of them."""

STATES_BYTES = 2**29
"""Of the tokens of the layers that are taken down in one pass of the model."""

MOST_QUERIES, MOST_PAIRS = 4096, 2**18
"""Queries of a layer, over all sequences, that are looked at unless asked otherwise, and their pairs with tokens."""


@dataclass(frozen=True)
class Found:
    """An attention layer of a model."""

    name: str
    module: nn.Module
    family: Family


def attention_layers(model: nn.Module, layout: Layout | None = None) -> list[Found]:
    """The self-attention layers of a model, in the order in which it holds them.

    Raises
    ------
    ProblemError
        If there are none that are known or declared.
    """
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model: {type(model).__name__} found, a torch.nn.Module wanted")
    families: tuple[Family, ...] = FAMILIES if layout is None else (layout,)
    found = [
        Found(name or type(module).__name__, module, family)
        for name, module in model.named_modules()
        for family in families
        if family.matches(name, module)
    ]
    if found:
        return found
    if layout is not None:
        raise ProblemError(f"layout: no module of the model is called {layout.modules!r}")
    strangers = sorted({type(m).__name__ for m in model.modules() if "attention" in type(m).__name__.lower()})
    known = ", ".join(family.name for family in FAMILIES)
    if strangers:
        raise ProblemError(
            f"model: {type(model).__name__} keeps its attention in {', '.join(strangers)}, which is not known;"
            f" known are {known}, others by attsvm.torch.Layout"
        )
    raise ProblemError(f"model: {type(model).__name__} has no attention layer; known are {known}")


class Sampler:
    """Which queries are looked at: the same of every layer.

    Parameters
    ----------
    most : int or None
        Over all sequences; spread evenly, at least one of each sequence. None takes as many as are quickly solved.
    num_sequences : int or None
        None where all come in one piece.
    seed : int
    """

    def __init__(self, most: int | None, num_sequences: int | None, seed: int) -> None:
        self.most, self.num_sequences, self.seed = most, num_sequences, seed
        self.sampled = False

    def positions(self, there: np.ndarray, num_tokens: int, first_sequence: int) -> Int[np.ndarray, "b q"]:
        """Of each sequence's queries that are ``there`` (b, Q), some; −1 fills up."""
        most = self.most or min(MOST_QUERIES, MOST_PAIRS // num_tokens)
        width = min(max(1, most // (self.num_sequences or len(there))), there.shape[1])
        positions = np.full((len(there), width), -1)
        for i, row in enumerate(there):
            at = np.flatnonzero(row)
            if len(at) > width:
                self.sampled = True
                generator = np.random.default_rng([self.seed, first_sequence + i])
                at = np.sort(generator.choice(at, width, replace=False))
            positions[i, : len(at)] = at
        return positions


class _Enough(Exception):
    """No error: the layers wanted have run."""


class _Passed(TorchFunctionMode):
    """Keeps the arguments of the last call of scaled_dot_product_attention."""

    last: Any = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            scale = given.get("scale") or given["query"].shape[-1] ** -0.5
            self.last = (
                given["query"],
                given["key"],
                given.get("attn_mask"),
                bool(given.get("is_causal", False)),
                scale,
            )
        return func(*args, **kwargs)


def capture(model: nn.Module, batch: Any, layers: list[Found], sampler: Sampler) -> Iterator[Layer]:
    """The layers one after another, each with all sequences of the batch.

    The model runs as often as its layers' tokens need, each time no further than the last layer wanted.
    """
    at = 0
    per_pass = 1
    while at < len(layers):
        wanted = layers[at : at + per_pass]
        chunks = _run(model, batch, wanted, sampler)
        at += len(wanted)
        size = sum(chunk.tokens.nbytes + chunk.queries.nbytes for chunk in chunks[wanted[0].name])
        per_pass = max(1, STATES_BYTES // size)
        for found in wanted:
            yield Layer.joined(chunks.pop(found.name))


def _run(model: nn.Module, batch: Any, wanted: list[Found], sampler: Sampler) -> dict[str, list[Layer]]:
    chunks: dict[str, list[Layer]] = {found.name: [] for found in wanted}
    last = wanted[-1].name
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_evaluating(model))
        passed = stack.enter_context(_Passed())
        arguments: dict[str, tuple[tuple, dict]] = {}
        first_sequence = 0

        def before(found: Found, args: tuple, keywords: dict) -> tuple[tuple, dict]:
            if found.name in arguments:
                raise ProblemError(f"model: calls {found.name} more than once; one call a pass wanted")
            arguments[found.name] = found.family.prepared(args, keywords)
            passed.last = None
            return arguments[found.name]

        def after(found: Found, output: Any) -> None:
            if isinstance(found.family, Layout) and passed.last is None:
                raise ProblemError(f"layout: {found.name} does not call scaled_dot_product_attention")
            call = found.family.call(found.module, *arguments[found.name], passed.last)
            own = found.family.own(found.module, output, passed.last)
            earlier = chunks[found.name]
            projections = earlier[0].projections if earlier else found.family.projections(found.module)
            if isinstance(found.family, Layout):
                projections = projections._replace(scale=passed.last[-1])
            earlier.append(_taken(found, projections, call, own, sampler, first_sequence))
            if found.name == last:
                raise _Enough

        for found in wanted:
            stack.enter_context(_hooked(found, before, after))
        for piece in _chunks(batch):
            arguments.clear()
            with contextlib.suppress(_Enough):
                _call_model(model, piece)
            missing = [found.name for found in wanted if found.name not in arguments]
            if missing:
                raise ProblemError(f"model: does not run its attention layer {missing[0]} on this batch")
            first_sequence += len(chunks[last][-1].tokens)
    return chunks


@contextlib.contextmanager
def _hooked(found: Found, before: Any, after: Any) -> Iterator[None]:
    first = found.module.register_forward_pre_hook(lambda _, args, keys: before(found, args, keys), with_kwargs=True)
    second = found.module.register_forward_hook(lambda _, __, output: after(found, output))
    try:
        yield
    finally:
        first.remove()
        second.remove()


def _taken(
    found: Found, projections: Projections, call: Call, own: torch.Tensor | None, sampler: Sampler, first_sequence: int
) -> Layer:
    """One chunk of one layer at the sampled queries, and how well its attention is rebuilt."""
    if own is None or own.shape[1] != projections.num_heads:
        raise ProblemError(f"model: {found.name} does not return the attention of {projections.num_heads} heads")
    allowed: np.ndarray = call.allowed.cpu().numpy()
    there = np.asarray(allowed.any(axis=-1))
    if call.is_self:
        there &= allowed.any(axis=-2)  # a padded token asks nothing
    positions = sampler.positions(there, allowed.shape[-1], first_sequence)
    at = np.maximum(positions, 0)[..., None]
    allowed = np.take_along_axis(allowed, at, axis=1) & (positions >= 0)[..., None]
    given = rotation = None
    if call.rotation is not None:
        rotation = (as_array(call.rotation[0]), as_array(call.rotation[1]))
    if call.given is not None:
        given = (as_array(call.given[0]), np.take_along_axis(as_array(call.given[1]), at[:, None], axis=2))
    chunk = Layer(
        name=found.name,
        tokens=as_array(call.keys),
        queries=np.take_along_axis(as_array(call.queries), at, axis=1),
        allowed=allowed,
        positions=positions,
        projections=projections,
        rotation=rotation,
        given=given,
        is_self=call.is_self,
        rebuilt_error=np.zeros(projections.num_heads),
    )
    for head in range(chunk.num_heads):
        theirs = np.take_along_axis(as_array(own[:, head]), at, axis=1)
        differences = np.where(allowed, softmax(chunk.head(head).logits(), allowed) - theirs, 0.0)
        chunk.rebuilt_error[head] = np.abs(differences).max(initial=0.0)
    return chunk if call.keys.dtype == torch.float64 else chunk.in_single()


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout, and attention that is returned; both set back afterwards."""
    training = [module for module in model.modules() if module.training]
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    settable = implementation not in (None, "eager") and hasattr(model, "set_attn_implementation")
    model.eval()
    if settable:
        model.set_attn_implementation("eager")  # type: ignore[operator]
    try:
        yield
    finally:
        if settable:
            model.set_attn_implementation(implementation)  # type: ignore[operator]
        for module in training:
            module.training = True


def _chunks(batch: Any) -> Iterator[Any]:
    """A mapping of tensors whose first axes are sequences in pieces; anything else whole."""
    if not isinstance(batch, Mapping):
        yield batch
        return
    first = next((value for value in batch.values() if isinstance(value, torch.Tensor)), None)
    if first is None or first.ndim == 0:
        raise ProblemError("batch: a mapping without tensors; the model's arguments wanted")
    n = len(first)
    T = first.shape[1] if first.ndim == 2 else 512
    step = max(1, CHUNK_LOGITS // (T * T * 12))
    for at in range(0, n, step):
        yield {
            key: value[at : at + step] if isinstance(value, torch.Tensor) and value.ndim and len(value) == n else value
            for key, value in batch.items()
        }


def _call_model(model: nn.Module, batch: Any) -> None:
    try:
        if isinstance(batch, Mapping):
            model(**batch)
        elif isinstance(batch, tuple | list):
            model(*batch)
        else:
            model(batch)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ProblemError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ProblemError(f"batch: the model does not take it ({reason})") from error
