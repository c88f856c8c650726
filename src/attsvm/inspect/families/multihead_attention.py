"""``torch.nn.MultiheadAttention``."""

import inspect as signatures
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import FAMILIES, Family
from attsvm.inspect.families.call import AttentionCall, joined_masks
from attsvm.inspect.families.projection_search import Linear


class MultiheadAttention(Family):
    """``torch.nn.MultiheadAttention``, on its own or inside ``nn.TransformerEncoderLayer``."""

    name = "nn.MultiheadAttention"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether the module is an ``nn.MultiheadAttention``."""
        return isinstance(module, nn.MultiheadAttention)

    def prepared(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments by name, with the attention of every head requested."""
        _, *names = signatures.signature(nn.MultiheadAttention.forward).parameters
        named = {**dict(zip(names, arguments, strict=False)), **keywords}
        return (), {**named, "need_weights": True, "average_attn_weights": False}

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """Queries and keys of every head, and one mask from both masks."""
        if module.bias_k is not None or module.add_zero_attn:
            raise ProblemError("model: nn.MultiheadAttention with add_bias_kv or add_zero_attn cannot be inspected")
        tokens = self.tokens(module, arguments)
        query, key = (
            functional.linear(of_side, *linear).reshape(*of_side.shape[:2], module.num_heads, -1).transpose(1, 2)
            for of_side, linear in zip(tokens, self.linears(module).values(), strict=True)
        )
        b, Q, T = len(query), query.shape[-2], key.shape[-2]
        mask, padding = (
            ~given if given is not None and given.dtype == torch.bool else given
            for given in (arguments.get("attn_mask"), arguments.get("key_padding_mask"))
        )
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape(b, -1, Q, T)
        padding = None if padding is None else padding.reshape(b, 1, 1, T)
        own = output[1]
        if own is not None and own.ndim == 3:  # a single sequence
            own = own[None]
        return AttentionCall(query, key, joined_masks(mask, padding), module.head_dim**-0.5, own=own)

    def linears(self, module: Any) -> dict[str, Linear]:
        """The parts of one matrix for queries and keys, or two matrices."""
        size = module.embed_dim
        if module.in_proj_weight is not None:
            weights = module.in_proj_weight[:size], module.in_proj_weight[size : 2 * size]
        else:
            weights = module.q_proj_weight, module.k_proj_weight
        bias = module.in_proj_bias
        biases = (None, None) if bias is None else (bias[:size], bias[size : 2 * size])
        return dict(zip(("query", "key"), zip(weights, biases, strict=True), strict=True))

    def tokens(self, module: Any, arguments: dict[str, Any]) -> list[Tensor]:
        """The tokens of the queries and those of the keys, batch first."""
        query = _batch_first(module, arguments["query"])
        same = arguments["query"] is arguments["key"]
        return [query, query if same else _batch_first(module, arguments["key"])]


def _batch_first(module: Any, states: Tensor) -> Tensor:
    if states.ndim == 2:
        return states[None]
    return states if module.batch_first else states.transpose(0, 1)


FAMILIES.register(MultiheadAttention.name, MultiheadAttention())
