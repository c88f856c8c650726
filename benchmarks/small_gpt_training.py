"""A small GPT over bytes, its text, and its training by AdamW or by Muon; used by small_gpt.py."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from attsvm.datasets.tables import read_columns
from attsvm.torch import SpectralDescent

BYTES = 256

VALIDATION_SHARE, VALIDATION_WINDOWS = 0.05, 256
"""The last part of the text is held out. The validation loss is that of windows spread evenly over it."""

WARM_UP, WEIGHT_DECAY, EMBEDDING_RATE = 0.05, 0.01, 3e-3
"""Rates grow for this share of the steps, then fall linearly to 0. AdamW trains the embeddings of the Muon arms."""


@dataclass(frozen=True)
class Size:
    """Sizes of the model, of a batch, and of what is measured.

    ``queries`` are compared with the Att-SVM of each head, and ``joint_queries`` with that of all heads of a layer; 0
    leaves it out. Its cost grows like d⁶.
    """

    width: int
    layers: int
    heads: int
    context: int
    batch: int
    steps: int
    text_bytes: int
    probe_windows: int = 16
    queries: int = 24
    joint_queries: int = 4


SIZES = {
    "tiny": Size(16, 1, 2, 16, 4, 12, 20_000, probe_windows=4, queries=6),
    "small": Size(64, 2, 4, 64, 8, 1600, 4_000_000),
    # 10.7 million parameters: for a GPU
    "large": Size(384, 6, 6, 256, 64, 5000, 40_000_000, probe_windows=8, joint_queries=0),
}


class Arm(NamedTuple):
    """How keys and queries are trained, and the first learning rate that is tried.

    ``polar`` has the options of their polar factor in Muon; None is AdamW for all weights.
    """

    rate: float
    per_head: bool = False
    polar: dict[str, Any] | None = None


CONVERGED = {"iterations": 20, "coefficients": (2.0, -1.5, 0.5)}
SHIPPED = {"iterations": 5}

ARMS = {
    "adamw": Arm(3e-3),
    "muon-heads": Arm(1e-2, per_head=True, polar=CONVERGED),
    "muon-fused": Arm(1e-2, polar=CONVERGED),
    "muon-heads-shipped": Arm(1e-2, per_head=True, polar=SHIPPED),
}


class Attention(nn.Module):
    """Causal self-attention without biases, so that the logits of a head are x_t'W z with W = W_K W_Q'/√m."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.key, self.query, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        """Pooled tokens (n, T, d)."""
        keys, queries, values = (
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.key, self.query, self.value)
        )
        pooled = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(pooled.transpose(1, 2).flatten(-2))

    def key_query(self) -> Tensor:
        """W of each head, (H, d, d)."""
        keys, queries = (layer.weight.detach().unflatten(0, (self.heads, -1)) for layer in (self.key, self.query))
        return self.scale * keys.mT @ queries


class Block(nn.Module):
    """Attention and two dense layers, each after a norm and with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.dense_norm = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The tokens after the block, (n, T, d)."""
        tokens = tokens + self.attention(self.norm(tokens))
        return tokens + self.down(gelu(self.up(self.dense_norm(tokens))))


class GPT(nn.Module):
    """A decoder over bytes with learned positions; the prediction shares its weights with the embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, size.width)
        self.position = nn.Parameter(0.02 * torch.randn(size.context, size.width))
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Logits (n, T, 256) of the next byte."""
        return self.norm(list(self.states(text))[-1]) @ self.embedding.weight.T

    def states(self, text: Tensor) -> Iterator[Tensor]:
        """The tokens before the first block and after each block."""
        tokens = self.embedding(text) + self.position[: text.shape[1]]
        yield tokens
        for block in self.blocks:
            tokens = block(tokens)
            yield tokens

    @torch.no_grad()
    def attention_inputs(self, text: Tensor) -> list[Tensor]:
        """The normed tokens that enter the attention of each block, (n, T, d)."""
        return [block.norm(tokens) for block, tokens in zip(self.blocks, self.states(text), strict=False)]


class Texts(NamedTuple):
    """Bytes to train on, and windows (n, T + 1) that are held out."""

    train: Tensor
    validation: Tensor

    def batch(self, size: Size, generator: torch.Generator) -> Tensor:
        """Random windows (batch, T + 1) of the training bytes."""
        starts = torch.randint(len(self.train) - size.context, (size.batch,), generator=generator)
        return self.train[starts[:, None] + torch.arange(size.context + 1)]


def read_text(path: Path, size: Size) -> Texts:
    """The first bytes of a text file, or of the texts in train.parquet of a folder."""
    if path.is_dir():
        (texts,) = read_columns([path / "train.parquet"], ["text"], extra="papers")
        data = "\n\n".join(texts).encode()[: size.text_bytes]
    else:
        with path.open("rb") as stream:
            data = stream.read(size.text_bytes)
    kept = int(len(data) * (1 - VALIDATION_SHARE))
    if len(data) - kept <= size.context:
        raise SystemExit(f"{path}: expected at least {int((size.context + 1) / VALIDATION_SHARE) + 1} bytes of text")
    numbers = torch.from_numpy(np.frombuffer(data, np.uint8).astype(np.int64))
    held_out = numbers[kept:]
    starts = torch.linspace(0, len(held_out) - size.context - 1, VALIDATION_WINDOWS).long()
    return Texts(numbers[:kept], held_out[starts[:, None] + torch.arange(size.context + 1)])


def optimizers_of(model: GPT, arm: Arm, rate: float, heads: int) -> list[torch.optim.Optimizer]:
    """AdamW for all weights; or Muon for the matrices of the blocks, and AdamW for embeddings and norms.

    The Muon arms differ only in the steps of keys and queries: in what is one matrix, and in its polar factor. The
    other matrices (r, c) are each one matrix, with steps rate·√max(1, r/c)·UV' and the coefficients that Muon ships.
    """
    if arm.polar is None:
        return [torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)]
    attended = [layer.weight for block in model.blocks for layer in (block.attention.key, block.attention.query)]
    matrices = [weights for block in model.blocks for weights in block.parameters() if weights.ndim == 2]
    whole = [weights for weights in matrices if not any(weights is one for one in attended)]
    rest = [weights for weights in model.parameters() if not any(weights is one for one in matrices)]
    groups = [{"params": attended, "heads": heads, "fused": not arm.per_head, **arm.polar}]
    groups += [{"params": [x], "lr": rate * max(1.0, x.shape[0] / x.shape[1]) ** 0.5} for x in whole]
    muon = SpectralDescent(groups, rate, momentum=0.95, nesterov=True, weight_decay=WEIGHT_DECAY, **SHIPPED)
    return [muon, torch.optim.AdamW(rest, EMBEDDING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)]


def loss_of(model: GPT, windows: Tensor) -> Tensor:
    """Mean cross-entropy of the next byte, in nats."""
    return cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model: GPT, texts: Texts, device: str) -> float:
    """Mean loss over the windows that are held out."""
    return float(torch.stack([loss_of(model, part.to(device)) for part in texts.validation.split(64)]).mean())


def snapshot(model: GPT, probe: Tensor) -> dict[str, np.ndarray]:
    """What enters the attention of each block, tokens (L, n, T, d), and the weights W of its heads (L, H, d, d)."""
    tokens = torch.stack(model.attention_inputs(probe))
    weights = torch.stack([block.attention.key_query() for block in model.blocks])
    return {"tokens": tokens.cpu().numpy(), "weights": weights.cpu().numpy()}


def logits_of(taken: dict[str, np.ndarray]) -> np.ndarray:
    """Logits (…, H, n, T, T) of each query (last axis but one) and token, 0 where the token comes after it."""
    tokens = taken["tokens"][..., None, :, :, :]
    logits: np.ndarray = np.tril(tokens @ taken["weights"][..., None, :, :].mT @ tokens.mT)
    return logits


def train(
    arm: Arm, rate: float, seed: int, size: Size, texts: Texts, device: str, record_at: list[int]
) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
    """Train one model; before some of the steps, and after the last, record losses and take a :func:`snapshot`."""
    torch.manual_seed(seed)
    model = GPT(size).to(device)
    optimizers = optimizers_of(model, arm, rate, size.heads)
    warm_up = max(1, round(WARM_UP * size.steps))
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            one, lambda step: min((step + 1) / warm_up, (size.steps - step) / (size.steps - warm_up))
        )
        for one in optimizers
    ]
    generator = torch.Generator().manual_seed(seed)
    probe = texts.validation[:: -(-VALIDATION_WINDOWS // size.probe_windows), :-1].to(device)
    records, snapshots, losses, started = [], [], [], time.process_time()
    for number in range(size.steps):
        recorded = number in record_at
        if recorded:
            records.append({"step": number, "validation_loss": validation_loss(model, texts, device)})
            snapshots.append(snapshot(model, probe))
        loss = loss_of(model, texts.batch(size, generator).to(device))
        for one in optimizers:
            one.zero_grad()
        loss.backward()
        for one, schedule in zip(optimizers, schedules, strict=True):
            one.step()
            schedule.step()
        losses.append(loss.detach())
        if recorded:
            changes = np.abs(logits_of(snapshot(model, probe)) - logits_of(snapshots[-1]))
            records[-1] |= {"rate": schedules[0].get_last_lr()[0], "logit_change": float(changes.max())}
    records.append({"step": size.steps, "validation_loss": validation_loss(model, texts, device)})
    snapshots.append(snapshot(model, probe))
    numbers = {
        "rate": rate,
        "seed": seed,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "train_loss": float(torch.stack(losses[-100:]).mean()),
        "validation_loss": records[-1]["validation_loss"],
        "seconds": time.process_time() - started,
        "records": records,
    }
    return numbers, snapshots
