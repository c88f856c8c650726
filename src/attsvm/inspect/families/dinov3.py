"""DINOv3."""

from typing import Any

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class DinoV3(HuggingFace):
    """Self-attention of DINOv3: rotary positions for the patches, none for the class token and the registers."""

    name = "DINOv3"
    modules = ("DINOv3ViTAttention",)
    rotary = True
    first_is_special = True

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key = module.q_proj, module.k_proj
        return projections_of(
            (query.weight, query.bias), (key.weight, key.bias), heads=module.num_heads, scale=module.scaling
        )


FAMILIES.register(DinoV3.name, DinoV3())
