"""Gemma."""

from attsvm.inspect.families.llama import Llama
from attsvm.inspect.families.registry import FAMILIES


class Gemma(Llama):
    """Self-attention of the first Gemma: that of Llama."""

    name = "Gemma"
    modules = ("GemmaAttention",)


FAMILIES.register(Gemma.name, Gemma())
