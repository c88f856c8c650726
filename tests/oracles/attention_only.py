"""Small transformers without MLPs, and repeated sequences, on which they can learn induction heads."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.inspect.families import FAMILIES, Family

ROTARY_BASE = 100.0
"""Of the wavelengths of rotary positions; small, because the sequences are short."""


class Attention(nn.Module):
    """Causal self-attention, with rotary positions if they are given."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)

    def forward(self, states: Tensor, position_embeddings=None) -> Tensor:
        """The output (b, T, d) for the states (b, T, d)."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(states).chunk(3, dim=-1)
        )
        if position_embeddings is not None:
            cosine, sine = position_embeddings
            query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.out(heads.transpose(1, 2).flatten(-2))
        return output


class AttentionOnly(nn.Module):
    """A causal language model of attention layers alone, whose answer on repeated sequences is known.

    With two layers it learns induction: heads of the first layer copy the previous token, and heads of the second layer
    look for a place whose previous token is the present one.

    ``vocabulary``, ``length``: tokens, and the longest sequence. ``rotary``: rotary positions instead of learned ones.
    ``norm``: whether a layer norm precedes each layer and the output.

    References: Elhage et al. (2021), *A Mathematical Framework for Transformer Circuits*.
    """

    def __init__(
        self,
        vocabulary: int = 64,
        length: int = 64,
        size: int = 64,
        heads: int = 4,
        layers: int = 2,
        rotary: bool = False,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.position = None if rotary else nn.Embedding(length, size)
        for table in (self.embedding, self.position):
            if table is not None:
                nn.init.normal_(table.weight, std=0.5)
        self.norms = nn.ModuleList(nn.LayerNorm(size) if norm else nn.Identity() for _ in range(layers + 1))
        self.layers = nn.ModuleList(Attention(size, heads) for _ in range(layers))
        self.unembedding = nn.Linear(size, vocabulary, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits (b, T, vocabulary) of the next token for the tokens (b, T)."""
        states = self.embedding(input_ids)
        if self.position is not None:
            states = states + self.position(torch.arange(input_ids.shape[1], device=input_ids.device))
        angles = None
        if self.position is None:
            angles = rotary_angles(input_ids.shape[1], states.shape[-1] // self.layers[0].heads, states.dtype)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            states = states + layer(norm(states), angles)
        logits: Tensor = self.unembedding(self.norms[-1](states))
        return logits

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding


class AttentionOnlyFamily(Family):
    """Attention with one linear layer for queries, keys and values."""

    name = "attention-only"

    def matches(self, name, module):
        return isinstance(module, Attention)


FAMILIES.register(AttentionOnlyFamily.name, AttentionOnlyFamily())


def rotary_angles(length: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (T, d_h) of the angle of each place and pair of coordinates (i, i + d_h/2)."""
    frequencies = ROTARY_BASE ** (-torch.arange(size // 2, dtype=dtype) / (size // 2))
    angles = torch.arange(length, dtype=dtype)[:, None] * frequencies.repeat(2)
    return angles.cos(), angles.sin()


def rotated(vectors: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Vectors (…, T, d_h) with each pair of coordinates (i, i + d_h/2) rotated by its angle."""
    first, second = vectors.chunk(2, dim=-1)
    return vectors * cosine + torch.cat([-second, first], dim=-1) * sine


def repeated_sequences(count: int, generator: torch.Generator, vocabulary: int = 64, length: int = 64) -> Tensor:
    """Sequences (count, length) with a random prefix and then a period of distinct tokens that repeats.

    The start of the period and its length, from an eighth to a half of the sequence, are random. Therefore positions
    alone do not predict the next token.
    """
    period = torch.randint(length // 8, length // 2 + 1, (count, 1), generator=generator)
    start = (torch.rand(count, 1, generator=generator) * (length - 2 * period + 1)).long()
    distinct = torch.rand(count, vocabulary, generator=generator).argsort(-1)
    place = torch.arange(length).expand(count, -1)
    source = torch.where(place < start, place, start + (place - start) % period)
    return distinct.gather(1, source)
