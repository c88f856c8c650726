"""Where an inspection comes from: the model and the batch, to look at them again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from attsvm.errors import ProblemError
from attsvm.torch.inspection.capture import capture
from attsvm.torch.inspection.families.matrices import as_array
from attsvm.torch.inspection.layers import AttentionLayer
from attsvm.torch.inspection.model_calls import (
    call_model,
    num_sequences,
    on_device_of,
    token_ids,
    without_cache,
    without_special,
)
from attsvm.torch.inspection.sampling import Sampler
from attsvm.torch.inspection.weights import Layer


@dataclass(frozen=True, eq=False)
class Source:
    """The model and the batch of an inspection.

    Attributes
    ----------
    model : Module
    batch
        The arguments of the model, without the mask of special tokens.
    layers : list of AttentionLayer
        All of the model.
    queries : int or None
        As for :func:`inspect`.
    seed : int
    tokens : int ndarray, shape (n, T), or None
        Which token of the vocabulary each is, if it is known.
    """

    model: nn.Module
    batch: Any
    layers: list[AttentionLayer]
    queries: int | None
    seed: int
    tokens: Int[np.ndarray, "n T"] | None

    def on(self, batch: Any) -> "Source":
        """The same model on other sequences, with all of their queries."""
        batch = on_device_of(self.model, without_special(batch)[0])
        count = num_sequences(batch)
        if count is None:
            raise ProblemError(f"batch: expected a mapping with the arguments of the model, got {type(batch).__name__}")
        return replace(self, batch=batch, queries=2**40, tokens=token_ids(batch))

    def run(self) -> Any:
        """The output of the model for the batch, in one call."""
        with without_cache(self.model):
            return call_model(self.model, self.batch)

    def embeddings(self, size: int) -> Float[np.ndarray, "vocabulary d"] | None:
        """The table of embeddings of the tokens, if the model is known to have one of this width."""
        ask: Any = getattr(self.model, "get_input_embeddings", lambda: getattr(self.model, "embedding", None))
        table = ask()
        if not isinstance(table, nn.Embedding) or table.embedding_dim != size:
            return None
        return as_array(table.weight)

    def captured(self, layer: int) -> Layer:
        """What enters a layer, at the inspected queries."""
        return next(self.layers_at([layer]))

    def layers_at(self, indices: list[int]) -> Iterator[Layer]:
        """What enters each of some layers, in ascending order, at the inspected queries."""
        sampler = Sampler(self.queries, num_sequences(self.batch), self.seed)
        yield from capture(self.model, self.batch, [self.layers[index] for index in indices], sampler)
