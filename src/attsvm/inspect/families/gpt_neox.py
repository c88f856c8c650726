"""GPT-NeoX and Pythia."""

from typing import Any

from torch import nn

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import Linear, projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Step, find_module
from attsvm.inspect.weights import Projections


class GptNeoX(HuggingFace):
    """Self-attention of GPT-NeoX and Pythia, whose rotary positions rotate a part of the coordinates."""

    name = "GPT-NeoX"
    modules = ("GPTNeoXAttention",)
    rotary = True

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        return interleaved_projections(module.query_key_value, module.head_size, module.scaling)

    def stream(self, model: nn.Module) -> list[Step]:
        """Embedding and blocks that read the stream through a norm, with attention and MLP side by side or in turn."""
        base = find_module(model, "GPTNeoXModel")
        steps: list[Step] = [Adds("embedding", base.embed_in)]
        for block in base.layers:
            attention = block.attention
            heads = len(attention.query_key_value.weight) // (3 * attention.head_size)
            steps.append(AddsHeads(attention, attention.dense, heads, block.input_layernorm))
            steps.append(Adds("MLP {layer}", block.mlp))
        return steps


def interleaved_projections(layer: Any, size: int, scale: float) -> Projections:
    """The projections of a linear layer that makes query, key and value of the first head, then those of the next.

    Parameters
    ----------
    layer : nn.Linear
    size : int
        d_h.
    scale : float
        Factor of the logits.
    """
    heads = len(layer.weight) // (3 * size)

    def part(place: int) -> Linear:
        weight = layer.weight.unflatten(0, (heads, 3, size))[:, place].flatten(0, 1)
        return weight, None if layer.bias is None else layer.bias.unflatten(0, (heads, 3, size))[:, place].flatten()

    return projections_of(part(0), part(1), heads=heads, scale=scale)


FAMILIES.register(GptNeoX.name, GptNeoX())
