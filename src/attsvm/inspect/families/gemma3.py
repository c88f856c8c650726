"""Gemma 3."""

from attsvm.inspect.families.qwen3 import Qwen3
from attsvm.inspect.families.registry import FAMILIES


class Gemma3(Qwen3):
    """Self-attention of Gemma 3: norms of keys and queries as in Qwen3, and sliding windows in some layers."""

    name = "Gemma 3"
    modules = ("Gemma3Attention",)


FAMILIES.register(Gemma3.name, Gemma3())
