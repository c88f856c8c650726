"""GPT-2."""

from typing import Any

from torch import nn

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Step, find_module
from attsvm.inspect.weights import Projections


class Gpt2(HuggingFace):
    """Self-attention of GPT-2: one ``Conv1D`` for queries, keys and values."""

    name = "GPT-2"
    modules = ("GPT2Attention",)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        # Conv1D holds the transpose of what nn.Linear holds
        weight, bias, size = module.c_attn.weight.T, module.c_attn.bias, module.embed_dim
        query, key = slice(0, size), slice(size, 2 * size)
        return projections_of(
            (weight[query], bias[query]), (weight[key], bias[key]), heads=module.num_heads, scale=module.scaling
        )

    def stream(self, model: nn.Module) -> list[Step]:
        """Embedding, positions, and blocks that read the stream through a norm."""
        base = find_module(model, "GPT2Model")
        steps: list[Step] = [Adds("embedding", base.wte), Adds("position", base.wpe)]
        for block in base.h:
            steps.append(AddsHeads(block.attn, block.attn.c_proj, block.attn.num_heads, block.ln_1))
            steps.append(Adds("MLP {layer}", block.mlp))
        return steps


FAMILIES.register(Gpt2.name, Gpt2())
