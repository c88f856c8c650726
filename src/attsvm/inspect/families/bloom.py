"""BLOOM."""

from typing import Any

from torch import Tensor

from attsvm.inspect.families.gpt_neox import interleaved_projections
from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class Bloom(HuggingFace):
    """Self-attention of BLOOM, which adds ALiBi to the logits: a bias that grows with the position of the token.

    References
    ----------
    Press, Smith and Lewis (2022), *Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation*.
    """

    name = "BLOOM"
    modules = ("BloomAttention",)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        return interleaved_projections(module.query_key_value, module.head_dim, module.inv_norm_factor)

    def bias(self, module: Any, states: Tensor, arguments: dict[str, Any]) -> Tensor | None:
        """ALiBi of every head, the same for every query."""
        alibi: Tensor = arguments["alibi"]
        b, T = states.shape[:2]
        return alibi.reshape(b, -1, 1, alibi.shape[-1]).expand(b, -1, T, -1)


FAMILIES.register(Bloom.name, Bloom())
