"""ViT."""

from typing import Any, ClassVar

from attsvm.inspect.families.huggingface import HuggingFace, separate_projections
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class Vit(HuggingFace):
    """Self-attention of ViT, over a class token and the patches of a picture."""

    name = "ViT"
    modules: ClassVar[tuple[str, ...]] = ("ViTAttention",)
    first_is_special = True

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        return separate_projections(module)


FAMILIES.register(Vit.name, Vit())
