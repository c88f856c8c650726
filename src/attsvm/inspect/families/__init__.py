"""Families of transformers whose attention ``attsvm inspect`` can read.

A family is a subclass of :class:`Family`. :class:`Transformers` reads any model of the ``transformers`` package that
calls its attention functions, and :class:`OwnSoftmax` any module that is called attention and computes its softmax
itself; :class:`Layout` names the attention modules of other models. A new family is one new file, in this package or
outside it, for modules that compute their attention in another way.
"""

from attsvm.inspect.families.base import FAMILIES, Family, Layout, find_family
from attsvm.inspect.families.cache import Cache
from attsvm.inspect.families.call import AttentionCall
from attsvm.inspect.families.own_softmax import OwnSoftmax
from attsvm.inspect.families.transformers import Transformers

__all__ = ["FAMILIES", "AttentionCall", "Cache", "Family", "Layout", "OwnSoftmax", "Transformers", "find_family"]


def __dir__() -> list[str]:
    return sorted(__all__)
