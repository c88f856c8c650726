"""attsvm.torch's optimisers beside AdamW, Muon, SOAP and optax on a very small ViT and GPT: the part of peers.py.

The models, schedules and groups are those of train_small.py, with smaller sizes. Each optimiser has the rate that was the
best of four in docs/notes/small_models.md; those of optax have the rates of their namesakes. Seconds are those of a whole
training, with what is compiled in it. The transformations of optax take copies of the gradients, which their seconds
include. The GPT reads reviews of IMDb. Repetitions are seeds.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import train_small
from attsvm.torch import param_groups_of
from cases import Case
from peers import Column, Run

METHODS = {
    "SpectralDescent": "",
    "RowDescent": "",
    "SignDescent": "",
    "MirrorDescent p=1.1": "",
    "AdamW": "",
    "Muon": "",
    "SOAP": "pytorch_optimizer",
    "optax, AdamW": "optax",
    "optax, Muon": "optax",
}
OURS = tuple(METHODS)[:4]
RATES = {
    "ViT": dict.fromkeys(METHODS, 1e-3) | {"SOAP": 3e-3},
    "GPT": dict.fromkeys(METHODS, 1e-2) | dict.fromkeys(OURS[1:], 3e-3),
}
SIZES = {"ViT": (32, 2, 200), "GPT": (48, 2, 64, 16, 200)}
QUICK_SIZES = {"ViT": (32, 1, 50), "GPT": (32, 1, 32, 8, 50)}
"""Width, blocks and steps of a ViT; width, blocks, length, sequences of a batch and steps of a GPT."""


class OfOptax(torch.optim.Optimizer):
    """An optimiser of optax as one of PyTorch, which reads the rate of its group in each step."""

    def __init__(self, named: dict[str, Tensor], lr: float, make: Callable[[float], Any]) -> None:
        import jax
        import optax

        super().__init__(list(named.values()), {"lr": lr})
        self.named, self.transformation = named, optax.inject_hyperparams(make)(learning_rate=lr)
        self.update, self.memory = jax.jit(self.transformation.update), None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step."""
        weights = {name: x.numpy() for name, x in self.named.items()}
        if self.memory is None:
            self.memory = self.transformation.init(weights)
        self.memory.hyperparams["learning_rate"] = np.float32(self.param_groups[0]["lr"])
        gradients = {name: x.grad.numpy() for name, x in self.named.items() if x.grad is not None}
        updates, self.memory = self.update(gradients, self.memory, weights)
        for name, x in self.named.items():
            x.add_(torch.from_numpy(np.array(updates[name])))


def optax_adamw(model: nn.Module, lr: float) -> list[Any]:
    import optax

    return [
        OfOptax(dict(model.named_parameters()), lr, lambda learning_rate: optax.adamw(learning_rate, weight_decay=0.01))
    ]


def optax_muon(model: nn.Module, lr: float) -> list[Any]:
    """Muon on the matrices of `param_groups_of`, as PyTorch's, and Adam on the others."""
    import optax

    matrices = {name for group in param_groups_of(model) if "adamw" not in group for name, _ in group["params"]}
    dimensions = {
        name: optax.contrib.MuonDimensionNumbers() if name in matrices else None for name, _ in model.named_parameters()
    }
    # 0.2 is the factor of adjust_lr_fn="match_rms_adamw"
    return [
        OfOptax(
            dict(model.named_parameters()),
            lr,
            lambda learning_rate: optax.contrib.muon(
                learning_rate, consistent_rms=0.2, muon_weight_dimension_numbers=dimensions
            ),
        )
    ]


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Train a model with each optimiser."""
    train_small.OPTIMIZERS |= {"optax, AdamW": optax_adamw, "optax, Muon": optax_muon}
    sizes, name = QUICK_SIZES if case["quick"] else SIZES, case["model"]
    {"ViT": train_small.VIT, "GPT": train_small.GPT}[name][True] = sizes[name]
    train_small.text_of = cache(train_small.text_of)
    if name == "GPT":
        train_small.text_of(Path(case["text"]))
    for method in case["methods"]:
        one = {"model": name, "quick": True, "zero": False, "seed": case["rep"], "text": case["text"]}
        start = time.process_time()
        score = train_small.measure({**one, "optimizer": method, "lr": RATES[name][method]})["score"]
        found = {"score": abs(score), "seconds": time.process_time() - start, "lr": RATES[name][method]}
        yield {"data": name, "method": method, "ours": method in OURS, **found}


def report(run: Run) -> None:
    """Measure and print."""
    text, methods = run.data / "imdb/train.parquet", run.installed(METHODS)
    for model, name, better in (("ViT", "accuracy", 1), ("GPT", "loss", -1)):
        if model == "GPT" and not text.exists():
            print(f"the GPT is left out: {text} does not exist", flush=True)
            continue
        cases = [{"model": model, "rep": rep, "methods": methods, "text": str(text)} for rep in range(run.repetitions)]
        score, seconds = Column(name, "score", ".3f", better), Column("seconds", "seconds", better=-1)
        run.table(run.rows(cases), [score, Column("rate", "lr", worst=True), seconds])
