"""A stack of transformer blocks.

Keys, queries and values are separate layers, because their weights are measured. Training uses PyTorch's fused
attention; attention maps are computed separately, and only on request.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.errors import ProblemError


@dataclass(frozen=True)
class Blocks:
    """Sizes of a stack of transformer blocks."""

    width: int  # dimension d of the state of a token
    layers: int  # layers, heads: ``heads`` divides ``width``
    heads: int
    hidden: int  # units of the feed-forward part of a block
    dropout: float = 0.0  # applied to attention, to the result of each part and to the embedded tokens
    bias: bool = False  # whether layers and norms have biases. The paper's text classifiers have none.

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.heads, self.hidden) < 1 or self.width % self.heads:
            raise ProblemError(f"heads: expected a divisor of the width {self.width}, got {self.heads}")


class SelfAttention(nn.Module):
    """Multi-head self-attention with keys, queries and values as separate layers."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.heads, self.dropout = blocks.heads, blocks.dropout
        self.query = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)
        self.key = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)
        self.value = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)
        self.output = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)

    def forward(self, states: Tensor, allowed: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """States (b, T, d) to (b, T, d); appends the map (b, heads, T, T) to ``maps`` if it is given."""
        queries, keys, values = (self._split(layer(states)) for layer in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        if maps is None:
            mixed = functional.scaled_dot_product_attention(queries, keys, values, allowed, dropout)
        else:
            logits = (queries @ keys.transpose(-1, -2)).float() / math.sqrt(queries.shape[-1])
            if allowed is not None:
                logits = logits.masked_fill(~allowed, -math.inf)
            attention = logits.softmax(-1)
            maps.append(attention)
            mixed = functional.dropout(attention.to(values.dtype), dropout) @ values
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def _split(self, states: Tensor) -> Tensor:
        return torch.unflatten(states, -1, (self.heads, -1)).transpose(1, 2)


class TransformerBlock(nn.Module):
    """Attention and a feed-forward part, each applied to normalised states and added to them.

    The norms precede the parts. Plain gradient descent, one of the optimisers that are compared, then trains six layers
    without a warm-up.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(blocks.width, bias=blocks.bias)
        self.attention = SelfAttention(blocks)
        self.hidden_norm = nn.LayerNorm(blocks.width, bias=blocks.bias)
        self.hidden = nn.Sequential(
            nn.Linear(blocks.width, blocks.hidden, bias=blocks.bias),
            nn.GELU(),
            nn.Linear(blocks.hidden, blocks.width, bias=blocks.bias),
        )
        self.dropout = nn.Dropout(blocks.dropout)

    def forward(self, states: Tensor, allowed: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """States (b, T, d) to (b, T, d)."""
        states = states + self.dropout(self.attention(self.attention_norm(states), allowed, maps))
        result: Tensor = states + self.dropout(self.hidden(self.hidden_norm(states)))
        return result
