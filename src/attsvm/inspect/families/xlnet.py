"""XLNet, whose logits have terms of the distances of tokens, with the sequence as the first axis.

References: Yang et al. (2019), *XLNet: Generalized Autoregressive Pretraining for Language Understanding*; Dai et al.
(2019), *Transformer-XL: Attentive Language Models beyond a Fixed-Length Context*, Section 3.3.
"""

from typing import Any

import torch
from torch import Tensor, nn

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.call import AttentionCall, allowed_entries, joined_masks
from attsvm.inspect.families.own_softmax import OwnSoftmax
from attsvm.inspect.families.projection_search import Linear


class XLNet(OwnSoftmax):
    """Self-attention of XLNet in one stream."""

    name = "XLNet"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether it is an ``XLNetRelativeAttention``."""
        return type(module).__name__ == "XLNetRelativeAttention"

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """The call without padding, which sees itself: a token that no other one sees is padding."""
        call = super().call(module, arguments, output, seen)
        if call.mask is None or call.mask.shape[-2] != call.mask.shape[-1]:
            return call
        allowed, own = allowed_entries(call.mask), torch.eye(call.mask.shape[-1], dtype=torch.bool)
        own = own.to(allowed.device)
        seen_by_others = (allowed & ~own).any(dim=-2)
        if not bool(allowed.triu(1).any()):  # a causal mask hides the last token from all others
            seen_by_others[..., -1] = True
        return call._replace(mask=joined_masks(call.mask, seen_by_others[..., None, :] | ~own))

    def linears(self, module: Any) -> dict[str, Linear]:
        """The parameters of queries and keys, of shape (d, heads, d_h), and the bias of queries that meet tokens."""
        return {"q": (module.q.flatten(1).T, module.r_w_bias.flatten()), "k": (module.k.flatten(1).T, None)}

    def tokens(self, module: Any, arguments: dict[str, Any]) -> list[Tensor]:
        """The tokens, batch first."""
        return [arguments["h"].transpose(0, 1)]


FAMILIES.register(XLNet.name, XLNet())
