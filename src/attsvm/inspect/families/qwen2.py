"""Qwen2."""

from attsvm.inspect.families.llama import Llama
from attsvm.inspect.families.registry import FAMILIES


class Qwen2(Llama):
    """Self-attention of Qwen2: that of Llama, with biases."""

    name = "Qwen2"
    modules = ("Qwen2Attention",)


FAMILIES.register(Qwen2.name, Qwen2())
