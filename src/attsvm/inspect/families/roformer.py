"""RoFormer, whose queries and keys have rotary positions, and whose values may have them, too.

References: Su et al. (2021), *RoFormer: Enhanced Transformer with Rotary Position Embedding*.
"""

from typing import Any

from torch import nn

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.own_softmax import OwnSoftmax
from attsvm.inspect.families.projection_search import Rotation


class RoFormer(OwnSoftmax):
    """Self-attention of RoFormer."""

    name = "RoFormer"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether it is a ``RoFormerSelfAttention``."""
        return type(module).__name__ == "RoFormerSelfAttention"

    def rotation(self, module: Any, arguments: dict[str, Any], num_tokens: int) -> Rotation | None:
        """Cosines and sines of the pairs of coordinates; the argument has the sines first."""
        found = arguments.get("sinusoidal_pos")
        if found is None or arguments.get("encoder_hidden_states") is not None:
            return None
        sine, cosine = found[:, 0].chunk(2, dim=-1)
        return cosine, sine


FAMILIES.register(RoFormer.name, RoFormer())
