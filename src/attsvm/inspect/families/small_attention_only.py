"""Small transformers without MLPs: :class:`attsvm.inspect.attention_only.AttentionOnly`."""

from typing import Any

from torch import nn

from attsvm.inspect.attention_only import Attention, AttentionOnly, rotary_angles
from attsvm.inspect.families.base import Family, LayerInputs
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.masks import allowed_tokens
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Step
from attsvm.inspect.weights import Projections


class AttentionOnlyFamily(Family):
    """Attention with one linear layer for queries, keys and values, with rotary positions or without."""

    name = "attention-only"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether the module is the attention of such a model."""
        return isinstance(module, Attention)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key, _ = module.qkv.weight.chunk(3)
        return projections_of(
            (query, None), (key, None), heads=module.heads, scale=(len(query) // module.heads) ** -0.5
        )

    def inputs(
        self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], call: FusedCall | None
    ) -> LayerInputs:
        """The states, the causal mask, and the angles of rotary positions."""
        assert call is not None
        states = arguments[0]
        b, T = states.shape[:2]
        rotation = None
        if module.rotary:
            cosine, sine = rotary_angles(T, call.query.shape[-1], states.dtype)
            rotation = cosine.expand(b, -1, -1), sine.expand(b, -1, -1)
        return LayerInputs(states, states, allowed_tokens(call.effective_mask, b, T, T), rotation=rotation)

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
