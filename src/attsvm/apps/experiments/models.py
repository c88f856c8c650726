"""The transformers of the mirror-descent paper's experiments: a classifier of texts, and one of pictures (ViT).

Both read a class token's last state, so the last layer has one query that matters: one query over many tokens, as the
Att-SVM has it. Keys, queries and values are layers of their own, for their weights are what is measured.
Training goes through PyTorch's fused attention; the maps are computed beside it, only where they are asked for.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.errors import ProblemError

PADDING = 0
"""BERT's number of [PAD]."""

PICTURE_MEAN, PICTURE_DEVIATION = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
"""Of CIFAR-10's three colours over its training pictures, on the scale 0 to 1."""


@dataclass(frozen=True)
class Blocks:
    """Sizes of a stack of transformer blocks.

    Attributes
    ----------
    width : int
        d, of every token's state.
    layers, heads : int
        ``heads`` divides ``width``.
    hidden : int
        Units between the two layers of a block's feed-forward part.
    dropout : float
        Of attention, of each part's result and of the embedded tokens.
    bias : bool
        Whether layers and norms have biases. The paper's text classifiers have none.
    """

    width: int
    layers: int
    heads: int
    hidden: int
    dropout: float = 0.0
    bias: bool = False

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.heads, self.hidden) < 1 or self.width % self.heads:
            raise ProblemError(f"heads: {self.heads} found, a divisor of the width {self.width} wanted")


@dataclass(frozen=True)
class TextShape:
    """A text classifier: ``vocabulary`` tokens, at most ``length`` of them a text with [CLS] in front."""

    blocks: Blocks
    length: int
    vocabulary: int = 30_522


@dataclass(frozen=True)
class PictureShape:
    """A picture classifier: ``size`` by ``size`` points, cut into square patches of ``patch`` by ``patch``."""

    blocks: Blocks
    size: int
    patch: int
    classes: int = 10

    def __post_init__(self) -> None:
        if self.size % self.patch:
            raise ProblemError(f"patch: {self.patch} found, a divisor of the size {self.size} wanted")


class Attention(nn.Module):
    """Multi-head self-attention with keys, queries and values as separate layers."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.heads, self.dropout = blocks.heads, blocks.dropout
        self.query = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)
        self.key = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)
        self.value = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)
        self.output = nn.Linear(blocks.width, blocks.width, bias=blocks.bias)

    def forward(self, states: Tensor, allowed: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """States (b, T, d) to (b, T, d); appends the map (b, heads, T, T) where ``maps`` is a list."""
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
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """Attention and a feed-forward part, each on normed states and added to them.

    Norms stand before the parts: then plain gradient descent, one of the optimisers compared, trains six layers without
    a warm-up.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(blocks.width, bias=blocks.bias)
        self.attention = Attention(blocks)
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
        return states + self.dropout(self.hidden(self.hidden_norm(states)))


class Classifier(nn.Module):
    """What both share: a stack of blocks, and a linear head on the class token's last state.

    Parameters
    ----------
    blocks : Blocks
    outputs : int
        1 for two classes (the logit of the second), else one a class.
    """

    def __init__(self, blocks: Blocks, outputs: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(blocks.dropout)
        self.blocks = nn.ModuleList(Block(blocks) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, bias=blocks.bias)
        self.head = nn.Linear(blocks.width, outputs, bias=blocks.bias)

    def embedded(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """States (b, T, d) of the tokens, the class token first, and what may be attended to, (b, 1, 1, T)."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """Logits, (b,) for two classes and (b, classes) for more."""
        states, allowed = self.embedded(inputs)
        states = self.dropout(states)
        for block in self.blocks:
            states = block(states, allowed, maps)
        return self.head(self.norm(states[:, 0])).squeeze(-1)

    @torch.no_grad()
    def attention_maps(self, inputs: Tensor) -> list[Tensor]:
        """Attention of every layer, without dropout.

        Parameters
        ----------
        inputs : Tensor
            As :meth:`forward` takes them.

        Returns
        -------
        list of Tensor, shape (b, heads, T, T)
            One a layer; rows are queries and sum to one, padded keys have zeros.
        """
        training = self.training
        maps: list[Tensor] = []
        try:
            self.eval()(inputs, maps)
        finally:
            self.train(training)
        return maps

    def attentions(self) -> list[Attention]:
        """The attention of every layer."""
        return [block.attention for block in self.blocks if isinstance(block, Block)]


class TextClassifier(Classifier):
    """Transformer over the tokens of a text, with learned positions and [CLS] first.

    Inputs are token numbers (b, T), T at most ``shape.length``; 0 is padding. The output (b,) is the logit of class 1.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, experiments on reviews.
    """

    def __init__(self, shape: TextShape) -> None:
        super().__init__(shape.blocks, outputs=1)
        width = shape.blocks.width
        self.tokens = nn.Embedding(shape.vocabulary, width, padding_idx=PADDING)
        self.positions = nn.Parameter(torch.empty(shape.length, width))
        _draw(self.tokens.weight, self.positions)
        with torch.no_grad():
            self.tokens.weight[PADDING].zero_()

    def embedded(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """As :meth:`Classifier.embedded`; padding is never attended to."""
        states = self.tokens(inputs) + self.positions[: inputs.shape[1]]
        return states, (inputs != PADDING)[:, None, None, :]


class PictureClassifier(Classifier):
    """ViT: a transformer over the patches of a picture, behind a learned class token.

    Inputs are pictures (b, 3, size, size) of bytes. The output is (b, classes).

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, experiments on CIFAR-10.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: PictureShape) -> None:
        super().__init__(shape.blocks, outputs=shape.classes)
        width = shape.blocks.width
        self.size, self.patch = shape.size, shape.patch
        self.patches = nn.Linear(3 * shape.patch**2, width, bias=shape.blocks.bias)
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1 + (shape.size // shape.patch) ** 2, width))
        _draw(self.class_token, self.positions)
        self.register_buffer("mean", torch.tensor(PICTURE_MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(PICTURE_DEVIATION)[:, None, None], persistent=False)

    def embedded(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """As :meth:`Classifier.embedded`; every patch may be attended to."""
        pictures = (inputs.float() / 255 - self.mean) / self.deviation
        if pictures.shape[-1] != self.size:
            pictures = functional.interpolate(pictures, size=self.size, mode="bilinear", align_corners=False)
        patches = functional.unfold(pictures, self.patch, stride=self.patch).transpose(1, 2)
        states = torch.cat([self.class_token.expand(len(inputs), -1, -1), self.patches(patches)], dim=1)
        return states + self.positions, None


def build(shape: TextShape | PictureShape) -> Classifier:
    """The model of a shape, with weights drawn from PyTorch's generator."""
    return TextClassifier(shape) if isinstance(shape, TextShape) else PictureClassifier(shape)


def _draw(*parameters: Tensor) -> None:
    # BERT's deviation. Behind a norm small embeddings turn fast: with 1/sqrt(width), plain and mirror descent learn
    # little in the few hundred steps of the small presets
    for parameter in parameters:
        nn.init.normal_(parameter, std=0.02)
