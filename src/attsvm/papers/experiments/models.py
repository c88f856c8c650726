"""The transformers of the mirror-descent paper's experiments: a classifier of texts, and one of pictures (ViT)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.errors import ProblemError
from attsvm.papers.experiments.blocks import Blocks, SelfAttention, TransformerBlock

PADDING = 0
"""Number of [PAD] in BERT's vocabulary."""

PICTURE_MEAN, PICTURE_DEVIATION = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
"""Mean and deviation of the three colours of CIFAR-10, over its training pictures, on the scale 0 to 1."""


@dataclass(frozen=True)
class TextShape:
    """Sizes of a text classifier."""

    blocks: Blocks
    length: int  # largest number of tokens of a text, [CLS] included
    vocabulary: int = 30_522  # number of tokens

    def build(self) -> "ReviewClassifier":
        """The model, with weights drawn from PyTorch's generator."""
        return ReviewClassifier(self)


@dataclass(frozen=True)
class PictureShape:
    """Sizes of a picture classifier."""

    blocks: Blocks
    size: int  # width and height of the pictures
    patch: int  # width and height of the square patches; it divides ``size``
    classes: int = 10

    def __post_init__(self) -> None:
        if self.size % self.patch:
            raise ProblemError(f"patch: expected a divisor of the size {self.size}, got {self.patch}")

    def build(self) -> "PictureClassifier":
        """The model, with weights drawn from PyTorch's generator."""
        return PictureClassifier(self)


class Classifier(nn.Module, ABC):
    """A stack of blocks, and a linear head on the last state of the class token.

    The last layer has one query that matters, over many tokens, as in the Att-SVM.

    ``outputs``: 1 for two classes (the logit of the second), otherwise the number of classes.
    """

    def __init__(self, blocks: Blocks, outputs: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(blocks.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(blocks) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, bias=blocks.bias)
        self.head = nn.Linear(blocks.width, outputs, bias=blocks.bias)

    @abstractmethod
    def embedded(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """States (b, T, d) of the tokens, the class token first, and a mask (b, 1, 1, T) of those that take part."""

    @abstractmethod
    def present(self, inputs: Tensor) -> Tensor:
        """Which tokens are no padding, (b, T)."""

    def forward(self, inputs: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """Logits, (b,) for two classes and (b, classes) for more."""
        states, allowed = self.embedded(inputs)
        states = self.dropout(states)
        for block in self.blocks:
            states = block(states, allowed, maps)
        logits: Tensor = self.head(self.norm(states[:, 0])).squeeze(-1)
        return logits

    @torch.no_grad()
    def attention_maps(self, inputs: Tensor) -> list[Tensor]:
        """Compute the attention of every layer, without dropout.

        ``inputs``: as for :meth:`forward`. The maps, one for each layer, have shape (b, heads, T, T). Rows are queries
        and sum to one; padded keys have zeros.
        """
        training = self.training
        maps: list[Tensor] = []
        try:
            self.eval()(inputs, maps)
        finally:
            self.train(training)
        return maps

    def attentions(self) -> list[SelfAttention]:
        """The attention module of every layer."""
        return [block.attention for block in self.blocks if isinstance(block, TransformerBlock)]


class ReviewClassifier(Classifier):
    """Transformer over the tokens of a text, with learned positions and [CLS] first.

    Inputs are token numbers (b, T), T at most ``shape.length``; 0 is padding. The output (b,) is the logit of class 1.

    References: Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, experiments on
    reviews.
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
        """Embedded tokens and positions; padding is never attended to."""
        states = self.tokens(inputs) + self.positions[: inputs.shape[1]]
        return states, self.present(inputs)[:, None, None, :]

    def present(self, inputs: Tensor) -> Tensor:
        """Every token but padding."""
        return inputs != PADDING


class PictureClassifier(Classifier):
    """ViT: a transformer over the patches of a picture, behind a learned class token.

    Inputs are pictures (b, 3, size, size) of bytes. The output is (b, classes).

    References: Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, experiments on
    CIFAR-10.
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
        """Embedded patches and positions; every patch may be attended to."""
        pictures = (inputs.float() / 255 - self.mean) / self.deviation
        if pictures.shape[-1] != self.size:
            pictures = functional.interpolate(pictures, size=self.size, mode="bilinear", align_corners=False)
        patches = functional.unfold(pictures, self.patch, stride=self.patch).transpose(1, 2)
        states = torch.cat([self.class_token.expand(len(inputs), -1, -1), self.patches(patches)], dim=1)
        return states + self.positions, None

    def present(self, inputs: Tensor) -> Tensor:
        """Every patch, and the class token."""
        return torch.ones(len(inputs), len(self.positions), dtype=torch.bool, device=inputs.device)


def _draw(*parameters: Tensor) -> None:
    # the deviation of BERT. Small embeddings before a norm change direction fast; with 1/sqrt(width) plain and mirror
    # descent learn little in the few hundred steps of the small presets
    for parameter in parameters:
        nn.init.normal_(parameter, std=0.02)


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Loss of each row: binary cross-entropy of logits (b,), cross-entropy of logits (b, classes)."""
    outputs = outputs.float()
    if outputs.ndim == 1:
        return functional.binary_cross_entropy_with_logits(outputs, labels.float(), reduction="none")
    return functional.cross_entropy(outputs, labels, reduction="none")


def answers(outputs: Tensor) -> Tensor:
    """Return the predicted class of each row."""
    return (outputs > 0).long() if outputs.ndim == 1 else outputs.argmax(-1)
