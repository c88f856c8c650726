"""GPT-NeoX and Pythia."""

from torch import nn

from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Step, find_module
from attsvm.inspect.families.transformers import Transformers


class GptNeoX(Transformers):
    """Self-attention of GPT-NeoX and Pythia, whose rotary positions rotate a part of the coordinates."""

    name = "GPT-NeoX"
    modules = ("GPTNeoXAttention",)

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


FAMILIES.register(GptNeoX.name, GptNeoX())
