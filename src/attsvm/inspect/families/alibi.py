"""BLOOM, Falcon and MPT, which compute their attention themselves and may add ALiBi to the logits.

ALiBi is a bias that grows with the position of the token.

References: Press, Smith and Lewis (2022), *Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation*.
"""

from typing import Any

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.call import AttentionCall, joined_masks
from attsvm.inspect.families.transformers import Transformers
from attsvm.inspect.weights import rotated


class Bloom(Transformers):
    """Self-attention of BLOOM."""

    name = "BLOOM"
    modules = ("BloomAttention",)

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """Queries and keys of every head, and one mask of ALiBi and of what is excluded."""
        query, key, value = module._reshape(module.query_key_value(arguments["hidden_states"]))
        alibi = arguments["alibi"].unflatten(0, (-1, module.num_heads))
        mask = joined_masks(arguments.get("attention_mask"), alibi)
        return AttentionCall(query, key, mask, module.inv_norm_factor, own=output[1], mixed=(value, output[1] @ value))


class Falcon(Transformers):
    """Self-attention of Falcon, with ALiBi or with rotary positions."""

    name = "Falcon"
    modules = ("FalconAttention",)

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """Queries and keys of every head, and one mask of ALiBi and of what is excluded."""
        if seen is not None:
            return seen
        query, key, value = (
            part.transpose(1, 2) for part in module._split_heads(module.query_key_value(arguments["hidden_states"]))
        )
        alibi, mask = arguments.get("alibi"), arguments.get("attention_mask")
        if alibi is None:
            cosine, sine = (part[:, None] for part in arguments["position_embeddings"])
            query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        else:
            mask = joined_masks(mask, module.inv_norm_factor * alibi.reshape(len(query), module.num_heads, 1, -1))
        mixed = value, output[1] @ value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        return AttentionCall(query, key, mask, module.inv_norm_factor, own=output[1], mixed=mixed)


class Mpt(Transformers):
    """Self-attention of MPT, which may clip its queries and keys."""

    name = "MPT"
    modules = ("MptAttention",)

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """Queries and keys of every head, and one mask of ALiBi and of what is excluded."""
        made = module.Wqkv(arguments["hidden_states"])
        if module.clip_qkv:
            made = made.clamp(-module.clip_qkv, module.clip_qkv)
        query, key, value = (part.unflatten(-1, (module.n_heads, -1)).transpose(1, 2) for part in made.chunk(3, dim=-1))
        excluded, alibi = arguments.get("attention_mask"), arguments.get("position_bias")
        T = key.shape[-2]
        mask = joined_masks(
            None if excluded is None else ~excluded, None if alibi is None else alibi[None, :, -T:, -T:]
        )
        return AttentionCall(query, key, mask, module.softmax_scale, own=output[1], mixed=(value, output[1] @ value))


for family in (Bloom(), Falcon(), Mpt()):
    FAMILIES.register(family.name, family)
