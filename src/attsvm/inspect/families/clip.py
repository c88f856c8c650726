"""CLIP."""

from typing import Any

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class Clip(HuggingFace):
    """Self-attention of CLIP, over the tokens of a text or over a class token and the patches of a picture."""

    name = "CLIP"
    modules = ("CLIPAttention",)
    first_is_special = True

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key = module.q_proj, module.k_proj
        return projections_of(
            (query.weight, query.bias), (key.weight, key.bias), heads=module.num_heads, scale=module.scale
        )


FAMILIES.register(Clip.name, Clip())
