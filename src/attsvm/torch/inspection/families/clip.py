"""CLIP."""

from typing import Any

from attsvm.torch.inspection.families.huggingface import HuggingFace
from attsvm.torch.inspection.families.matrices import projections_of
from attsvm.torch.inspection.families.registry import FAMILIES
from attsvm.torch.inspection.weights import Projections


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
