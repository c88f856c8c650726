"""The model and the batch of an inspection, kept to run them again."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from attsvm._utils.checks import check_integer
from attsvm.errors import ProblemError
from attsvm.inspect.capture import Sampler, capture
from attsvm.inspect.families.call import as_array
from attsvm.inspect.layers import AttentionLayer
from attsvm.inspect.model_calls import num_sequences, on_device_of, token_ids, without_special
from attsvm.inspect.weights import Layer, check_head

KEPT_BYTES = 2**27
"""Largest size of the layers that are kept while a model is inspected; a larger layer is captured again."""


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """The model and the batch of an inspection."""

    model: nn.Module
    batch: Any  # the arguments of the model, without the mask of special tokens
    layers: list[AttentionLayer]  # all of the model
    sampler: Sampler  # which queries are inspected
    tokens: Int[np.ndarray, "n T"] | None  # which token of the vocabulary each is, if it is known
    # layers that need not be captured again, because the model has not changed since
    kept: dict[int, Layer] = field(default_factory=dict)

    name: str = "batch"  # of the argument, for error messages

    @classmethod
    def whole(cls, model: nn.Module, batch: Any, layers: list[AttentionLayer], name: str = "batch") -> "Source":
        """A model on sequences, with all of their queries."""
        with _named(name):
            batch = on_device_of(model, without_special(batch)[0])
            count = num_sequences(batch)
        if count is None:
            got = type(batch).__name__
            raise ProblemError(f"{name}: expected a mapping with the arguments of the model, got {got}")
        return cls(model, batch, layers, Sampler(2**40, count, 0), token_ids(model, batch), name=name)

    def embeddings(self, size: int) -> Float[np.ndarray, "vocabulary d"] | None:
        """The table of embeddings of the tokens, if the model is known to have one of this width."""
        ask: Any = getattr(self.model, "get_input_embeddings", lambda: None)
        table = ask()
        if not isinstance(table, nn.Embedding) or table.embedding_dim != size:
            return None
        return as_array(table.weight)

    def captured(self, layer: int, *heads: int) -> Layer:
        """What enters a layer, at the inspected queries.

        Raises ProblemError if there is no such layer, or it does not have these heads.
        """
        check_integer("layer", layer, 0, len(self.layers) - 1)
        found = next(self.layers_at([layer]))
        for head in heads:
            check_head(layer, head, found)
        return found

    def layers_at(self, indices: list[int]) -> Iterator[Layer]:
        """What enters each of some layers, in ascending order, at the inspected queries."""
        missing = [self.layers[index] for index in indices if index not in self.kept]
        captured = capture(self.model, on_device_of(self.model, self.batch), missing, self.sampler)
        for index in indices:
            with _named(self.name):
                found = self.kept[index] if index in self.kept else next(captured)
            yield found

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
