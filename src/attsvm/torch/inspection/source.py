"""Where an inspection comes from: the model and the batch, to look at them again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import nn

from attsvm.torch.inspection.capture import capture
from attsvm.torch.inspection.layers import AttentionLayer
from attsvm.torch.inspection.model_calls import num_sequences
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

    def captured(self, layer: int) -> Layer:
        """What enters a layer, at the inspected queries."""
        sampler = Sampler(self.queries, num_sequences(self.batch), self.seed)
        captured: Iterator[Layer] = capture(self.model, self.batch, [self.layers[layer]], sampler)
        return next(captured)
