"""Any model of the ``transformers`` package whose attention calls an attention function of the package."""

import inspect as signatures
from typing import ClassVar

from torch import nn

from attsvm.inspect.families.base import Family
from attsvm.inspect.families.registry import FAMILIES


class Transformers(Family):
    """Self-attention and cross-attention of the ``transformers`` package.

    A subclass may name the classes of its attention modules in ``modules``.
    """

    name = "transformers"

    modules: ClassVar[tuple[str, ...]] = ()

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether its class is one of ``modules``; without them, whether it asks for an attention function."""
        if self.modules:
            return type(module).__name__ in self.modules
        forward = signatures.unwrap(type(module).forward)
        return "ALL_ATTENTION_FUNCTIONS" in getattr(getattr(forward, "__code__", None), "co_names", ())


FAMILIES.register(Transformers.name, Transformers())
