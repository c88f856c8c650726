"""DINOv2; the models of the first DINO are ViTs."""

from typing import ClassVar

from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.vit import Vit


class Dino(Vit):
    """Self-attention of DINOv2, over a class token, registers if there are any, and the patches of a picture."""

    name = "DINOv2"
    modules: ClassVar[tuple[str, ...]] = ("Dinov2Attention", "Dinov2WithRegistersAttention")


FAMILIES.register(Dino.name, Dino())
