"""Run a model and record the inputs of its attention layers, a few layers and a few sequences at a time."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from attsvm._utils.checks import check_integer
from attsvm._utils.files import reason
from attsvm._utils.shapes import Bool, Float, Int
from attsvm._utils.threads import threads_for
from attsvm.errors import ProblemError
from attsvm.inspect.families.call import AttentionCall, allowed_tokens, as_array, biases_of
from attsvm.inspect.layers import AttentionLayer, LayerInputs, reading, refuse_unread
from attsvm.inspect.model_calls import (
    Uncompiled,
    call_model,
    chunks,
    evaluating,
    num_sequences,
    on_device_of,
    token_ids,
    without_special,
)
from attsvm.inspect.passes import LARGEST_ERROR
from attsvm.inspect.weights import Layer, Projections, check_head

STATES_BYTES = 2**29
"""Largest size of the tokens of the layers that are recorded in one pass of the model."""

MOST_QUERIES, MOST_PAIRS = 4096, 2**18
"""Default limits for one layer: queries over all sequences, and pairs of a query and a token."""

KEPT_BYTES = 2**27
"""Largest size of the layers that are kept while a model is inspected; a larger layer is captured again."""


@dataclass
class Sampler:
    """A choice of queries, which is the same for every layer."""

    # queries over all sequences, spread evenly, at least one for each sequence. None: :data:`MOST_QUERIES`, and at most
    # :data:`MOST_PAIRS` pairs of a query and a token
    most: int | None
    num_sequences: int | None  # None if all sequences come in one piece
    seed: int
    sampled: bool = False  # whether a query was left out so far

    def positions(
        self, is_query: Bool[np.ndarray, "b Q"], num_tokens: int, first_sequence: int
    ) -> Int[np.ndarray, "b q"]:
        """Positions of the chosen queries, and −1 elsewhere.

        If all Q columns fit, a query is in the column of its position; a sample fills columns from the first.

        ``is_query``: False at padding. ``first_sequence``: number of the first of these b sequences in the batch.
        """
        most = self.most or min(MOST_QUERIES, MOST_PAIRS // num_tokens)
        width = min(max(1, most // (self.num_sequences or len(is_query))), is_query.shape[1])
        positions = np.full((len(is_query), width), -1)
        for i, row in enumerate(is_query):
            at = np.flatnonzero(row)
            if len(at) > width:
                self.sampled = True
                generator = np.random.default_rng([self.seed, first_sequence + i])
                at = np.sort(generator.choice(at, width, replace=False))
            positions[i, at if width == len(row) else slice(len(at))] = at
        return positions


def capture(
    model: nn.Module,
    batch: Any,
    layers: list[AttentionLayer],
    sampler: Sampler,
    all_layers: list[AttentionLayer] | None = None,
    have_run: set[str] | None = None,
) -> Iterator[Layer]:
    """The layers that the batch runs one after another, each with all of its sequences.

    ``all_layers``: of the model, if more. ``have_run``: filled with the names of those that the batch runs.

    The model runs several times if the tokens of all layers do not fit into :data:`STATES_BYTES`; each pass but the
    first stops after the last layer that it records.
    """
    first, per_pass, have_run = True, 1, set() if have_run is None else have_run
    while layers:
        recorded, layers = layers[:per_pass], layers[per_pass:]
        others = [layer for layer in all_layers or [*recorded, *layers] if layer not in recorded]
        parts = _run(model, batch, recorded, others, sampler, have_run, to_the_end=first)
        first, layers = False, [layer for layer in layers if layer.name in have_run]
        size = sum(part.nbytes for part in next(iter(parts.values()), ()))
        per_pass = max(1, STATES_BYTES // size) if size else 1
        for layer in recorded:
            if layer.name in parts:
                yield Layer.joined(parts.pop(layer.name))


class _LastLayerDone(Exception):
    """Stops a pass of the model after the last layer that is recorded."""


def _run(
    model: nn.Module,
    batch: Any,
    recorded: list[AttentionLayer],
    others: list[AttentionLayer],
    sampler: Sampler,
    have_run: set[str],
    to_the_end: bool,
) -> dict[str, list[Layer]]:
    """What enters each recorded layer that runs in a pass of the model, in chunks of sequences.

    ``others``: the other layers of the model. ``have_run``: the names of the layers that run in its first chunk are
    added. ``to_the_end``: whether all layers run there, and in the others if that leaves one out.
    """
    parts: dict[str, list[Layer]] = {layer.name: [] for layer in recorded}
    left: set[str] = set()  # layers that have not run yet
    idle: set[str] = set()  # layers that this batch does not run, as those of a tower
    stops = not to_the_end

    def read(layer: AttentionLayer, inputs: Callable[[], LayerInputs]) -> None:
        """Record a call, and stop the pass once all layers have run, in whatever order."""
        if layer.name not in left:
            raise ProblemError(f"model: expected one call of {layer.name} per pass, got several")
        with _no_error_of_the_batch(layer.name):
            call, earlier = inputs(), parts[layer.name]
            projections = earlier[0].projections if earlier else layer.projections()
            call = call if projections is not None else call._replace(found=None)
            first_sequence = sum(len(part.allowed) for part in earlier)
            earlier.append(_recorded(layer, projections, call, sampler, first_sequence))
        left.discard(layer.name)
        if left == idle and stops:
            raise _LastLayerDone

    with torch.no_grad(), evaluating(model), Uncompiled():
        for number, piece in enumerate(chunks(batch)):
            left = set(parts)
            with (
                reading(recorded, read, others=others, with_attention=True) as now,
                contextlib.suppress(_LastLayerDone),
            ):
                call_model(model, piece)
            refuse_unread(layer for layer in (*recorded, *others) if layer.name in now)
            if number == 0:
                have_run |= now
                idle = set(left)
            odd = (left - idle) | (now - have_run)  # a pass that stops has run fewer layers, but no others
            if odd:
                raise ProblemError(f"batch: expected sequences that run the same layers, but only some run {min(odd)}")
            # a module that several layers share is found in the first chunk, where it runs again, but a layer that it
            # does not run may run in any
            stops = not (to_the_end and any(layer.name not in have_run for layer in others))
    return {name: of_layer for name, of_layer in parts.items() if of_layer}


@contextlib.contextmanager
def _no_error_of_the_batch(name: str) -> Iterator[None]:
    """Let an error in reading a layer name the layer, because the model has accepted the batch."""
    try:
        yield
    except (ProblemError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ProblemError(f"model: {name}: its attention cannot be read ({reason(error)})") from error


def _recorded(
    of: AttentionLayer, projections: Projections | None, inputs: LayerInputs, sampler: Sampler, first_sequence: int
) -> Layer:
    """One chunk of one layer at the sampled queries, and how far its rebuilt attention is from the model's own."""
    name = of.name
    call, found, is_self, places = inputs
    b, heads, Q, T = *call.query.shape[:3], call.key.shape[-2]
    if call.own is not None and call.own.shape != (b, heads, Q, T):
        raise ProblemError(
            f"model: {name}: expected attention of shape {(b, heads, Q, T)}, got {tuple(call.own.shape)}"
        )
    allowed: np.ndarray = allowed_tokens(call.mask, b, Q, T).cpu().numpy()
    is_query = np.asarray(allowed.any(axis=-1)) & places.queries.cpu().numpy()
    positions = sampler.positions(is_query, T, first_sequence)
    at = np.maximum(positions, 0)[..., None]
    linear = found is not None and found.recipe.linear
    rotation = given = None
    if found is not None and found.rotation is not None and found.recipe.query.rotated:
        cosine, sine = (as_array(part.expand(b, -1, -1)) for part in found.rotation)
        rotation = cosine, sine
    if not linear:
        keys = as_array(call.key.repeat_interleave(heads // call.key.shape[1], 1))
        given = keys, np.take_along_axis(as_array(call.query), at[:, None], axis=2)
    biases = biases_of(call.mask, b, heads, Q, T)
    if biases is not None and call.softcap is not None:
        raise ProblemError(f"model: {name}: expected a soft cap of the logits or biases, got both")
    part = Layer(
        name=name,
        tokens=np.zeros((b, T, 0)) if found is None else as_array(found.keys),
        queries=np.take_along_axis(np.zeros((b, Q, 0)) if found is None else as_array(found.queries), at, axis=1),
        allowed=np.take_along_axis(allowed, at, axis=1) & (positions >= 0)[..., None],
        positions=positions,
        there=places.tokens.cpu().numpy(),
        projections=projections,
        scale=call.scale,
        rotation=rotation,
        given=given,
        bias=None if biases is None else np.take_along_axis(as_array(biases), at[:, None], axis=2),
        softcap=call.softcap,
        sink=None if call.sink is None else as_array(call.sink),
        is_self=is_self,
        rebuilt_error=np.zeros(heads),
        unknown=of.unknown,
        bias_of_tokens=biases is not None and call.biases_of_tokens,
    )
    if not all(np.isfinite(array).all() for array in (part.tokens, part.queries, *(given or ()))):
        raise ProblemError(f"model: {name}: expected finite hidden states, got NaN or infinity")
    with threads_for(0):  # many small products
        for head in range(heads):
            part.rebuilt_error[head] = _difference(part, call, head)
    worst = part.rebuilt_error.max()
    if call.is_compared and not worst <= max(LARGEST_ERROR, 16 * torch.finfo(call.query.dtype).eps):
        raise ProblemError(
            f"model: {name}: its attention differs from that of its queries, keys and mask by {worst:.1g};"
            f" {of.family.unread}"
        )
    return part


def _difference(part: Layer, call: AttentionCall, head: int) -> float:
    """How far the attention of a head is from the model's own, at the recorded queries; NaN if that is not there.

    Where the model computes none, what it makes of the values V is compared: |(P − P')V| / max |V|, at most the sum of
    |P − P'| over the tokens.
    """
    asks, at = part.positions >= 0, np.maximum(part.positions, 0)[..., None]
    rows = part.probabilities(head)
    if call.own is not None:
        theirs = np.take_along_axis(as_array(call.own[:, head]), at, axis=1)
    elif call.mixed is not None and call.is_compared:
        given, outputs = call.mixed
        n = len(given)
        asks, at, rows = asks[:n], at[:n], rows[:n]
        values = as_array(given[:, head * given.shape[1] // part.num_heads])
        theirs = np.take_along_axis(as_array(outputs[:, head]), at, axis=1)
        size = np.abs(values[part.there[:n]]).max(initial=0.0)
        rows, theirs = ((rows @ values) / size, theirs / size) if size else (rows[..., :0], theirs[..., :0])
    else:
        return np.nan
    return float(np.abs(rows - theirs)[asks].max(initial=0.0))


@dataclass(frozen=True, eq=False, repr=False)
class ModelAndBatch:
    """The model and the batch of an inspection."""

    model: nn.Module
    batch: Any  # the arguments of the model, without the mask of special tokens
    layers: list[AttentionLayer]  # all of the model
    sampler: Sampler  # which queries are inspected
    tokens: Int[np.ndarray, "n T"] | None  # which token of the vocabulary each is, if it is known
    # layers that need not be captured again, because the model has not changed since
    kept: dict[int, Layer] = field(default_factory=dict)
    have_run: set[str] = field(default_factory=set)  # names of the layers that the batch runs, once one was captured

    name: str = "batch"  # of the argument, for error messages

    @classmethod
    def whole(cls, model: nn.Module, batch: Any, layers: list[AttentionLayer], name: str = "batch") -> "ModelAndBatch":
        """A model on sequences, with all of their queries."""
        with _named(name):
            batch = on_device_of(model, without_special(batch)[0])
            count = num_sequences(batch)
        return cls(model, batch, layers, Sampler(2**40, count, 0), token_ids(model, batch), name=name)

    def embeddings(self, size: int) -> Float[np.ndarray, "vocabulary d"] | None:
        """The table of embeddings of the tokens, if the model is known to have one of this width."""
        ask: Any = getattr(self.model, "get_input_embeddings", lambda: None)
        try:
            table = ask()
        except NotImplementedError:  # a model of sounds
            return None
        if not isinstance(table, nn.Embedding) or table.embedding_dim != size:
            return None
        return as_array(table.weight)

    def tokens_of(self, layer: Layer) -> Int[np.ndarray, "n T"] | None:
        """Which token of the vocabulary each is that a layer of self-attention sees, if it is known."""
        known = self.tokens is not None and self.tokens.shape == layer.tokens.shape[:2] and layer.is_self
        return self.tokens if known else None

    def captured(self, layer: int, *heads: int) -> Layer:
        """What enters a layer, at the inspected queries.

        Raises ProblemError if there is no such layer, or it does not have these heads.
        """
        check_integer("layer", layer, 0, len(self.layers) - 1)
        found = dict(self.layers_at([layer])).get(layer)
        if found is None:
            raise self.not_run(layer)
        for head in heads:
            check_head(layer, head, found)
        return found

    def layers_at(self, indices: list[int]) -> Iterator[tuple[int, Layer]]:
        """The number of each of some layers that the batch runs, in ascending order, and what enters it."""
        unknown = [k for k in indices if k not in self.kept and (self.runs(k) or not self.have_run)]
        batch, missing = on_device_of(self.model, self.batch), [self.layers[k] for k in unknown]
        captured = capture(self.model, batch, missing, self.sampler, self.layers, self.have_run)
        following: Layer | None = None  # the next one that the batch runs
        for index in indices:
            found = self.kept.get(index)
            if found is None:
                with _named(self.name):
                    following = following or next(captured, None)
                if following is None or following.name != self.layers[index].name:
                    continue
                found, following = following, None
            yield index, found

    def runs(self, layer: int) -> bool:
        """Whether the batch runs a layer; known once one was captured."""
        return self.layers[layer].name in self.have_run

    def not_run(self, layer: int) -> ProblemError:
        """The error where a layer is asked for that the batch does not run."""
        return ProblemError(f"layer: this batch does not run layer {layer} ({self.layers[layer].name})")

    def keep(self, index: int, layer: Layer) -> None:
        """Keep a layer, if there is room for it."""
        if sum(one.nbytes for one in self.kept.values()) + layer.nbytes <= KEPT_BYTES:
            self.kept[index] = layer


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Let errors about the batch name the argument that it was."""
    try:
        yield
    except ProblemError as error:
        if name != "batch" and str(error).startswith("batch:"):
            raise ProblemError(name + str(error).removeprefix("batch")) from error
        raise
