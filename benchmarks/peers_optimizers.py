"""attsvm.torch's optimisers beside AdamW, Muon, SOAP and optax on a very small ViT and GPT: the part of peers.py.

The models, schedules and groups are those of train_small.py, with smaller sizes and fewer steps. The rate is the best
of two with one seed; the rows are of that rate and other seeds. Seconds are those of a whole training, with what is
compiled in it. Muon of optax takes copies of the gradients, which its seconds include. The GPT reads reviews of IMDb.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
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
    "SignDescent": "",
    "MirrorDescent p=1.1": "",
    "AdamW": "",
    "Muon": "",
    "SOAP": "pytorch_optimizer",
    "optax, Muon": "optax",
}
OURS = tuple(METHODS)[:3]
RATES = (3e-3, 1e-2)
SIZES = {"ViT": (32, 2, 200), "GPT": (32, 2, 48, 12, 200)}
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
    """Train a model with each optimiser and rate."""
    train_small.OPTIMIZERS["optax, Muon"] = optax_muon
    sizes, name = QUICK_SIZES if case["quick"] else SIZES, case["model"]
    {"ViT": train_small.VIT, "GPT": train_small.GPT}[name][True] = sizes[name]
    train_small.text_of = cache(train_small.text_of)
    if name == "GPT":
        train_small.text_of(Path(case["text"]))
    for method, _ in case["trials"]:
        for package in METHODS[method].split():
            import_module(package)  # in the seconds of no training
    for method, lr in case["trials"]:
        one = {"model": name, "quick": True, "zero": False, "seed": case["rep"], "text": case["text"]}
        start = time.process_time()
        score = train_small.measure({**one, "optimizer": method, "lr": lr})["score"]
        found = {"score": score, "seconds": time.process_time() - start, "lr": lr}
        yield {"data": name, "method": method, "ours": method in OURS, **found}


def report(run: Run) -> None:
    """Measure and print."""
    text, methods = run.data / "imdb/train.parquet", run.installed(METHODS)
    for model, name, better in (("ViT", "accuracy", 1), ("GPT", "loss", -1)):
        if model == "GPT" and not text.exists():
            print(f"the GPT is left out: {text} does not exist", flush=True)
            continue
        common = {"model": model, "text": str(text)}
        first = run.rows([{**common, "rep": 0, "trials": [[one, lr] for one in methods for lr in RATES]}])
        first.sort(key=lambda row: row["score"])  # of each optimiser the best one comes last
        trials = list({row["method"]: [row["method"], row["lr"]] for row in first}.values())
        trials.sort(key=lambda trial: methods.index(trial[0]))
        rows = run.rows([{**common, "rep": rep, "trials": trials} for rep in range(1, run.repetitions + 1)])
        columns = [
            Column(name, "score", ".3f", better),
            Column("rate", "lr", worst=True),
            Column("seconds", "seconds", better=-1),
        ]
        run.table([{**row, "score": abs(row["score"])} for row in rows], columns)
