"""Families of transformers whose attention ``attsvm inspect`` can read, one file each.

A family is a subclass of :class:`Family`; :class:`HuggingFace` is a base for models of the ``transformers`` package. A
new family is one new file, in this package or outside it. :class:`Layout` describes an attention module by the names of
its layers, without a new class.
"""

from attsvm.inspect.families.base import Family, LayerInputs
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.layout import Layout
from attsvm.inspect.families.masks import allowed_tokens
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES, find_family
from attsvm.inspect.families.stream import Adds, AddsHeads, Norms, Step, find_module, normed

__all__ = [
    "FAMILIES",
    "Adds",
    "AddsHeads",
    "Family",
    "FusedCall",
    "HuggingFace",
    "LayerInputs",
    "Layout",
    "Norms",
    "Step",
    "allowed_tokens",
    "find_family",
    "find_module",
    "normed",
    "projections_of",
]


def __dir__() -> list[str]:
    return sorted(__all__)
