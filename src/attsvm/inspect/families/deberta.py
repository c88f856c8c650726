"""DeBERTa, whose logits are those of the tokens and of their distances to each other.

A logit is q_i'k_j + q_i'r_ij + k_j's_ij, with vectors r and s of the distance from i to j. The first term is that of W;
the others are biases that depend on the tokens.

References: He, Liu, Gao and Chen (2021), *DeBERTa: Decoding-enhanced BERT with Disentangled Attention*, Equation 2.
"""

from typing import Any

import torch
from torch import nn

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.own_softmax import OwnSoftmax
from attsvm.inspect.families.projection_search import Linear


class Deberta(OwnSoftmax):
    """Self-attention of the first DeBERTa; that of its later versions needs no family."""

    name = "DeBERTa"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether it is a ``DisentangledSelfAttention`` with one matrix for queries, keys and values."""
        return type(module).__name__ == "DisentangledSelfAttention" and hasattr(module, "q_bias")

    def linears(self, module: Any) -> dict[str, Linear]:
        """The matrix of queries, keys and values of each head, with the bias of the queries."""
        of_queries = module.q_bias.view(module.num_attention_heads, 1, -1)
        nothing = torch.zeros_like(of_queries)
        return {"in_proj": (module.in_proj.weight, torch.cat([of_queries, nothing, nothing], dim=1).flatten())}


FAMILIES.register(Deberta.name, Deberta())
