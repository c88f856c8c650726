"""Granite with sliding windows, whose eager attention returns its probabilities without the share of the sink."""

from typing import Any, ClassVar

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.call import AttentionCall
from attsvm.inspect.families.transformers import Transformers


class GraniteSWA(Transformers):
    """Self-attention with a sink that scales the outputs of its heads."""

    name = "Granite SWA"
    modules: ClassVar[tuple[str, ...]] = ("GraniteSWAAttention", "GraniteMoeSWAAttention")

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """The call, compared by what it makes of the values."""
        return super().call(module, arguments, output, seen)._replace(own=None)


FAMILIES.register(GraniteSWA.name, GraniteSWA())
