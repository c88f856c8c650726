"""``torch.nn.MultiheadAttention``."""

from typing import Any

import torch
from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family, LayerInputs
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.masks import LOWEST, allowed_tokens
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections

ARGUMENTS = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")
"""Of ``nn.MultiheadAttention.forward``, in order."""


class MultiheadAttention(Family):
    """``torch.nn.MultiheadAttention``, on its own or inside ``nn.TransformerEncoderLayer``."""

    name = "nn.MultiheadAttention"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether the module is an ``nn.MultiheadAttention``."""
        return isinstance(module, nn.MultiheadAttention)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head, from one matrix or from three."""
        if module.bias_k is not None or module.add_zero_attn:
            raise ProblemError("model: nn.MultiheadAttention with add_bias_kv or add_zero_attn cannot be inspected")
        size = module.embed_dim
        if module.in_proj_weight is not None:
            query, key = module.in_proj_weight[:size], module.in_proj_weight[size : 2 * size]
        else:
            query, key = module.q_proj_weight, module.k_proj_weight
        bias = module.in_proj_bias
        query_bias, key_bias = (None, None) if bias is None else (bias[:size], bias[size : 2 * size])
        return projections_of((query, query_bias), (key, key_bias), heads=module.num_heads, scale=module.head_dim**-0.5)

    def prepared(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments by name, with the attention of every head requested."""
        named = dict(zip(ARGUMENTS, arguments, strict=False))
        return (), {**named, **keywords, "need_weights": True, "average_attn_weights": False}

    def inputs(
        self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], call: FusedCall | None
    ) -> LayerInputs:
        """Tokens of keys and of queries, batch first, and what the two masks allow."""
        query = _batch_first(module, keywords["query"])
        key = query if keywords["query"] is keywords["key"] else _batch_first(module, keywords["key"])
        b, Q, T = len(query), query.shape[1], key.shape[1]
        mask = keywords.get("attn_mask")
        if mask is not None:
            if mask.ndim == 3:
                mask = mask.reshape(b, -1, Q, T)
            mask = ~mask if mask.dtype == torch.bool else mask
        allowed = allowed_tokens(mask, b, Q, T)
        padding = keywords.get("key_padding_mask")
        if padding is not None:
            padding = padding if padding.dtype == torch.bool else padding < LOWEST
            allowed = allowed & ~padding.reshape(b, 1, T)
        return LayerInputs(key, query, allowed)

    def attention(self, module: Any, output: Any, call: FusedCall | None) -> Tensor | None:
        """The second value that the module returns, with a batch axis."""
        attention: Tensor = output[1]
        return attention[None] if attention.ndim == 3 else attention


def _batch_first(module: Any, states: Tensor) -> Tensor:
    if states.ndim == 2:
        return states[None]
    return states if module.batch_first else states.transpose(0, 1)


FAMILIES.register(MultiheadAttention.name, MultiheadAttention())
