"""Gemma."""

from attsvm.torch.inspection.families.llama import Llama
from attsvm.torch.inspection.families.registry import FAMILIES


class Gemma(Llama):
    """Self-attention of the first Gemma: that of Llama."""

    name = "Gemma"
    modules = ("GemmaAttention",)


FAMILIES.register(Gemma.name, Gemma())
