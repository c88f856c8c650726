"""Small transformers without MLPs: :class:`attsvm.inspect.attention_only.AttentionOnly`."""

from typing import Any

from torch import nn

from attsvm.inspect.attention_only import Attention, AttentionOnly, rotary_angles
from attsvm.inspect.families.base import Family
from attsvm.inspect.families.projection_search import Rotation
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Step


class AttentionOnlyFamily(Family):
    """Attention with one linear layer for queries, keys and values, with rotary positions or without."""

    name = "attention-only"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether the module is the attention of such a model."""
        return isinstance(module, Attention)

    def rotation(self, module: Any, arguments: dict[str, Any], num_tokens: int) -> Rotation | None:
        """The angles of rotary positions."""
        if not module.rotary:
            return None
        size = module.out.in_features // module.heads
        cosine, sine = rotary_angles(num_tokens, size, module.out.weight.dtype)
        return cosine[None], sine[None]

    def stream(self, model: nn.Module) -> list[Step]:
        """Embedding, positions, and the attention layers."""
        assert isinstance(model, AttentionOnly)
        steps: list[Step] = [Adds("embedding", model.embedding)]
        if model.position is not None:
            steps.append(Adds("position", model.position))
        for layer, norm in zip(model.layers, model.norms, strict=False):
            assert isinstance(layer, Attention)
            steps.append(AddsHeads(layer, layer.out, layer.heads, norm))
        return steps


FAMILIES.register(AttentionOnlyFamily.name, AttentionOnlyFamily())
