"""GPT-2."""

from torch import nn

from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Step, find_module
from attsvm.inspect.families.transformers import Transformers


class Gpt2(Transformers):
    """Self-attention of GPT-2."""

    name = "GPT-2"
    modules = ("GPT2Attention",)

    def stream(self, model: nn.Module) -> list[Step]:
        """Embedding, positions, and blocks that read the stream through a norm."""
        base = find_module(model, "GPT2Model")
        steps: list[Step] = [Adds("embedding", base.wte), Adds("position", base.wpe)]
        for block in base.h:
            steps.append(AddsHeads(block.attn, block.attn.c_proj, block.attn.num_heads, block.ln_1))
            steps.append(Adds("MLP {layer}", block.mlp))
        return steps


FAMILIES.register(Gpt2.name, Gpt2())
