"""Mistral."""

from attsvm.inspect.families.llama import Llama
from attsvm.inspect.families.registry import FAMILIES


class Mistral(Llama):
    """Self-attention of Mistral: that of Llama, with a sliding window, which is part of the mask."""

    name = "Mistral"
    modules = ("MistralAttention",)


FAMILIES.register(Mistral.name, Mistral())
