"""Llama."""

from typing import Any

from attsvm.inspect.families.huggingface import HuggingFace, separate_projections
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class Llama(HuggingFace):
    """Self-attention of Llama: rotary positions, and several query heads for one key head."""

    name = "Llama"
    modules = ("LlamaAttention",)
    rotary = True

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        return separate_projections(module)


FAMILIES.register(Llama.name, Llama())
