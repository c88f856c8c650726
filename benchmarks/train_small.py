"""Train a small ViT and a small GPT with AdamW, Muon, SOAP and the optimisers of attsvm.torch.

    python benchmarks/train_small.py --text reviews.txt          # about 3 hours on two cores; a later call resumes
    python benchmarks/train_small.py --text reviews.txt --quick  # smaller models, one seed and rate

Each optimiser trains with four learning rates of AdamW and one seed, and with the best of them and two more seeds. Ours
have the parameter groups of `param_groups_of`. "Muon" is `torch.optim.Muon` on the same matrices, AdamW on the rest.
The ViT classifies the digits of scikit-learn, the GPT predicts the next character of a text: UTF-8, or a Parquet file
with a column of texts (`--text`; without it the GPT is left out). The table has the mean of the seeds and the half
width of a 95 % interval of Student's t, the best rate, and the share of the weights of the blocks below 1e-3.
`--zero` starts the output projections of the blocks at zero.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attsvm.torch import ColumnDescent, MirrorDescent, RowDescent, SignDescent, SpectralDescent, param_groups_of
from cases import Case, markdown, measured, run

RATES = {False: (1e-3, 3e-3, 1e-2, 3e-2), True: (3e-3,)}
SEEDS = {False: 3, True: 1}
HEADS = 4
VIT = {False: (64, 4, 1000), True: (48, 3, 300)}
"""Width, blocks and steps."""
GPT = {False: (128, 4, 128, 16, 500), True: (64, 2, 64, 24, 300)}
"""Width, blocks, length, sequences of a batch and steps: a million characters, or half of one."""

Batch = tuple[Tensor, Tensor]


def _ours(kind: Any, **options: Any) -> Callable[[nn.Module, float], list[Any]]:
    return lambda model, lr: [kind(param_groups_of(model, kind, lr=lr, **options), lr)]


def _muon(model: nn.Module, lr: float) -> list[Any]:
    groups = param_groups_of(model)
    matrices, rest = ([x for g in groups if ("adamw" in g) is adamw for _, x in g["params"]] for adamw in (False, True))
    muon = torch.optim.Muon(matrices, lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(rest, lr, weight_decay=0.0)]


def _soap(model: nn.Module, lr: float) -> list[Any]:
    from pytorch_optimizer import SOAP

    return [SOAP(model.parameters(), lr=lr, weight_decay=0.0)]


OPTIMIZERS: dict[str, Callable[[nn.Module, float], list[Any]]] = {
    "Adam": lambda model, lr: [torch.optim.Adam(model.parameters(), lr)],
    "AdamW": lambda model, lr: [torch.optim.AdamW(model.parameters(), lr)],
    "Muon": _muon,
    "SOAP": _soap,
    "SpectralDescent": _ours(SpectralDescent),
    "RowDescent": _ours(RowDescent),
    "ColumnDescent": _ours(ColumnDescent),
    "SignDescent": _ours(SignDescent),
    "MirrorDescent p=1.1": _ours(MirrorDescent),
    "MirrorDescent p=1.1, attention": _ours(MirrorDescent, where="attention"),
    "MirrorDescent p=1.1, linear=0.02": _ours(MirrorDescent, linear=0.02),
}


class Block(nn.Module):
    """A block of a transformer, with queries, keys and values in one weight."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.causal = HEADS, causal
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        qkv = self.qkv(self.before(x)).view(count, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*qkv, is_causal=self.causal)
        x = x + self.proj(attended.transpose(1, 2).reshape(x.shape))
        moved: Tensor = self.down(nn.functional.gelu(self.up(self.between(x))))
        return x + moved


class Transformer(nn.Module):
    """Blocks between an embedding of tokens, or of patches, and an output layer."""

    def __init__(self, embedding: nn.Module, length: int, width: int, blocks: int, outputs: int, causal: bool) -> None:
        super().__init__()
        self.embedding, self.positions = embedding, nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, causal) for _ in range(blocks))
        self.norm, self.head, self.causal = nn.LayerNorm(width), nn.Linear(width, outputs, bias=False), causal
        if isinstance(embedding, nn.Embedding):
            self.head.weight = embedding.weight
            for x in self.parameters():
                if x.ndim == 2:
                    nn.init.normal_(x, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x) + self.positions
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.head(self.norm(x) if self.causal else self.norm(x).mean(1))
        return found


def vit(case: Case) -> tuple[nn.Module, Callable[[torch.Generator], Batch], Callable[[nn.Module], float], int]:
    """A ViT on digits: model, batches, accuracy on pictures that were not trained on, and steps."""
    from sklearn.datasets import load_digits

    pictures, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    patches = torch.tensor(pictures[order], dtype=torch.float32).view(-1, 8, 8).unfold(1, 2, 2).unfold(2, 2, 2)
    x, y = patches.reshape(-1, 16, 4) / 16.0, torch.tensor(digits[order])
    width, blocks, steps = VIT[case["quick"]]

    def batch(generator: torch.Generator) -> Batch:
        rows = torch.randint(1300, (64,), generator=generator)
        return x[rows], y[rows]

    model = Transformer(nn.Linear(4, width), 16, width, blocks, 10, causal=False)
    return model, batch, lambda m: float((m(x[1300:]).argmax(1) == y[1300:]).float().mean()), steps


def gpt(case: Case) -> tuple[nn.Module, Callable[[torch.Generator], Batch], Callable[[nn.Module], float], int]:
    """A GPT of characters: model, batches, minus the loss on text that was not trained on, and steps."""
    width, blocks, length, sequences, steps = GPT[case["quick"]]
    characters = text_of(Path(case["text"]))
    cut = len(characters) * 4 // 5

    def sequences_of(part: Tensor, generator: torch.Generator) -> Batch:
        starts = torch.randint(len(part) - length - 1, (sequences,), generator=generator)
        rows = part[starts[:, None] + torch.arange(length + 1)]
        return rows[:, :-1], rows[:, 1:]

    def score(model: nn.Module) -> float:
        generator = torch.Generator().manual_seed(9)
        losses = [loss_of(model, sequences_of(characters[cut:], generator)).item() for _ in range(20)]
        return -float(np.mean(losses))

    model = Transformer(nn.Embedding(95, width), length, width, blocks, 95, causal=True)
    return model, lambda generator: sequences_of(characters[:cut], generator), score, steps


def text_of(path: Path) -> Tensor:
    """The printable ASCII characters of a text, at most 1.5 million, as numbers from 0 to 94."""
    if path.suffix == ".parquet":
        import pandas as pd

        columns = pd.read_parquet(path).select_dtypes(exclude="number")
        text = " ".join(map(str, columns.iloc[:3000, 0]))
    else:
        text = path.read_text(errors="ignore")
    found = np.frombuffer(text[:1_600_000].encode("ascii", "ignore"), np.uint8)
    return torch.tensor((found[(found > 31) & (found < 127)] - 32).astype(np.int64)[:1_500_000])


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """The mean cross-entropy."""
    outputs = model(batch[0])
    return nn.functional.cross_entropy(outputs.flatten(0, -2), batch[1].flatten())


TASKS: dict[str, Callable[[Case], Any]] = {"ViT": vit, "GPT": gpt}


def measure(case: Case) -> dict[str, Any]:
    """Train one model; the score, and the share of the weights of its blocks that are small."""
    torch.manual_seed(case["seed"])
    model, batch, score, steps = TASKS[case["model"]](case)
    if case["zero"]:
        for name, x in model.named_parameters():
            if name.endswith(("proj.weight", "down.weight")):
                nn.init.zeros_(x)
    generator = torch.Generator().manual_seed(case["seed"])
    optimizers = OPTIMIZERS[case["optimizer"]](model, case["lr"])
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(
            one, [g["lr"] for g in one.param_groups], total_steps=steps, pct_start=0.1, cycle_momentum=False
        )
        for one in optimizers
    ]
    for _ in range(steps):
        model.zero_grad()
        loss_of(model, batch(generator)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one, schedule in zip(optimizers, schedules, strict=True):
            one.step()
            schedule.step()
    weights = torch.cat(
        [x.detach().flatten() for name, x in model.named_parameters() if "blocks" in name and x.ndim > 1]
    )
    with torch.no_grad():
        return {"score": score(model), "small": float((weights.abs() < 1e-3).float().mean())}


def table(model: str, options: argparse.Namespace) -> str:
    """Measure a model, and make the table of its optimisers."""
    quick, common = options.quick, {"model": model, "quick": options.quick, "zero": options.zero}
    if model == "GPT":
        common["text"] = str(options.text)

    def results(cases: list[Case]) -> list[dict[str, Any]]:
        return measured(__file__, cases, options.results, options.seconds, options.threads)

    lines = []
    for name in options.optimizers or OPTIMIZERS:
        rates = [{**common, "optimizer": name, "lr": lr, "seed": 0} for lr in RATES[quick]]
        found = results(rates)
        best, first = max(zip(rates, found, strict=True), key=lambda one: _score(one[1]))
        rows = [first, *results([{**best, "seed": seed} for seed in range(1, SEEDS[quick])])]
        scores = np.abs([_score(row) for row in rows])
        # 4.303: the 0.975 quantile of Student's t with two degrees of freedom
        half = f" ± {4.303 * scores.std(ddof=1) / math.sqrt(len(scores)):.3f}" if len(scores) == 3 else ""
        small = f"{np.mean([row.get('small', math.nan) for row in rows]):.3f}"
        lines.append([name, f"{scores.mean():.3f}{half}", f"{best['lr']:g}", small])
    measure_of = "accuracy" if model == "ViT" else "validation loss"
    return markdown([model, measure_of, "rate", "weights below 1e-3"], lines)


def _score(row: dict[str, Any]) -> float:
    found = row.get("score", math.nan)
    return -math.inf if math.isnan(found) else float(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, help="text for the GPT")
    parser.add_argument("--quick", action="store_true", help="smaller models, one rate and one seed")
    parser.add_argument("--zero", action="store_true", help="output projections start at zero")
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), help="some of them only")
    parser.add_argument("--models", nargs="+", choices=list(TASKS), default=list(TASKS), help="one of them only")
    options = run(__file__, __doc__, parser, measure)
    for model in options.models:
        if model == "GPT" and options.text is None:
            print("The GPT is left out: it needs --text.")
            continue
        print(table(model, options), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
