"""MPT."""

from typing import Any

from torch import Tensor

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class Mpt(HuggingFace):
    """Self-attention of MPT, which adds ALiBi to the logits, and may clip its queries and keys.

    References
    ----------
    Press, Smith and Lewis (2022), *Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation*.
    """

    name = "MPT"
    modules = ("MptAttention",)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key, _ = module.Wqkv.weight.chunk(3)
        return projections_of((query, None), (key, None), heads=module.n_heads, scale=module.softmax_scale)

    def mask_of(self, arguments: dict[str, Any]) -> Tensor | None:
        """The mask, which is True where a query may not attend."""
        excluded: Tensor | None = arguments.get(self.mask)
        return None if excluded is None else ~excluded

    def projected(
        self, module: Any, states: Tensor, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor] | None:
        """Keys and queries if they are clipped."""
        if not module.clip_qkv:
            return None
        clipped = module.Wqkv(states).clamp(-module.clip_qkv, module.clip_qkv)
        query, key, _ = clipped.unflatten(-1, (3, module.n_heads, -1)).movedim(2, 0).transpose(2, 3)
        return key, query

    def bias(self, module: Any, states: Tensor, arguments: dict[str, Any]) -> Tensor | None:
        """ALiBi of every head, the same for every query."""
        b, T = states.shape[:2]
        alibi: Tensor | None = arguments.get("position_bias")
        if alibi is None:
            return None
        return alibi[..., -T:].expand(-1, T, -1).expand(b, -1, -1, -1)

    def longest(self, config: Any) -> int | None:
        """The length for which the model computes ALiBi."""
        length: int | None = getattr(config, "max_seq_len", None)
        return length


FAMILIES.register(Mpt.name, Mpt())
