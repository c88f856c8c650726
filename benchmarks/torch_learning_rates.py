"""Best learning rates of mirror descent, compared with those that `lr_from_sgd` and `lr_from_adam` suggest.

    python benchmarks/torch_learning_rates.py            # four minutes on one core

A small vision transformer learns scikit-learn's handwritten digits (8x8 pixels in 16 patches) for 300 steps, at rates
half a decade apart. The best rate has the smallest loss on held-out digits, averaged over three seeds. SGD and Adam
are searched first. Their best rates and the gradient of the initial model give the suggested rates. Mirror descent is
run with the rate suggested from SGD and with rates up to a decade below and above it. Prints the table of
docs/notes/torch_learning_rates.md.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent, lr_from_adam, lr_from_sgd

STEPS, BATCH, TRAINED_ON, SEEDS = 300, 64, 1400, 3
EXPONENTS = (1.1, 1.5, 3.0)
HALF_DECADES = [10.0 ** (k / 2) for k in range(-2, 3)]

Make = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]

# the rates of these optimisers are searched around a common choice
PEERS: dict[str, tuple[Make, float]] = {
    "SGD": (torch.optim.SGD, 0.3),
    "Adam": (torch.optim.Adam, 3e-3),
    "SignDescent": (SignDescent, 3e-3),
    "SpectralDescent": (SpectralDescent, 1e-2),
}


class Outcome(NamedTuple):
    """Results of a learning rate on held-out digits."""

    loss: float
    accuracy: float
    lr: float


class VisionTransformer(nn.Module):
    """Two layers of four heads over 16 patches, 18,000 weights."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, width), nn.Linear(width, 10)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, patches: Tensor) -> Tensor:
        """Logits (n, 10) of patches (n, 16, 4)."""
        return self.head(self.layers(self.embed(patches) + self.position).mean(1))


def digits() -> tuple[Tensor, Tensor]:
    """Patches (n, 16, 4) and classes (n,), shuffled."""
    pixels, classes = load_digits(return_X_y=True)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels / 16 - 0.3, dtype=torch.float32).view(-1, 4, 2, 4, 2)
    return images.transpose(2, 3).reshape(-1, 16, 4)[order], torch.tensor(classes)[order]


def fresh_model(seed: int) -> VisionTransformer:
    """The same initial weights each time."""
    torch.manual_seed(seed)
    return VisionTransformer()


def train(make: Make, lr: float, patches: Tensor, classes: Tensor) -> Outcome:
    """The mean over the seeds; the loss is infinite if training diverges."""
    losses, accuracies = zip(*(train_once(make, lr, patches, classes, seed) for seed in range(SEEDS)), strict=True)
    return Outcome(fmean(losses), fmean(accuracies), lr)


def train_once(make: Make, lr: float, patches: Tensor, classes: Tensor, seed: int) -> tuple[float, float]:
    """Loss and accuracy on held-out digits after training a fresh model."""
    model = fresh_model(seed)
    optimizer = make(model.parameters(), lr)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        batch = torch.randint(TRAINED_ON, (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = cross_entropy(model(patches[batch]), classes[batch])
        if not torch.isfinite(loss):
            return math.inf, 0.0
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits, labels = model(patches[TRAINED_ON:]), classes[TRAINED_ON:]
    accuracy = (logits.argmax(-1) == labels).float().mean().item()
    return cross_entropy(logits, labels).item(), accuracy


def main() -> None:
    """Search every optimiser's rate and print a Markdown table."""
    warnings.filterwarnings("ignore", "step skipped")  # some of the rates are far too large
    torch.set_num_threads(1)  # the model is too small to benefit from more
    patches, classes = digits()

    def outcomes_of(make: Make, rates: Iterable[float]) -> list[Outcome]:
        return [train(make, lr, patches, classes) for lr in rates]

    began = time.perf_counter()
    best_of = {
        name: min(outcomes_of(make, [middle * factor for factor in HALF_DECADES]))
        for name, (make, middle) in PEERS.items()
    }
    sgd, adam = best_of["SGD"], best_of["Adam"]
    model = fresh_model(0)
    cross_entropy(model(patches[:TRAINED_ON]), classes[:TRAINED_ON]).backward()

    print("| optimiser | best lr | loss | accuracy | lr from SGD | loss there | lr from Adam |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, best in best_of.items():
        print(f"| {name} | {best.lr:.2g} | {best.loss:.2f} | {best.accuracy:.0%} | | | |")
    for p in EXPONENTS:
        for normalize in (False, True):
            from_sgd = lr_from_sgd(model.parameters(), sgd.lr, p, normalize=normalize)
            from_adam = lr_from_adam(model.parameters(), adam.lr, p, normalize=normalize)

            def make(parameters: Iterable[nn.Parameter], lr: float, p=p, normalize=normalize) -> MirrorDescent:
                return MirrorDescent(parameters, lr, p, normalize=normalize)

            outcomes = outcomes_of(make, [from_sgd * factor for factor in HALF_DECADES])
            best, there = min(outcomes), outcomes[len(HALF_DECADES) // 2]
            print(
                f"| p = {p:g}{', normalised' if normalize else ''} | {best.lr:.2g} | {best.loss:.2f} "
                f"| {best.accuracy:.0%} | {from_sgd:.2g} | {there.loss:.2f} | {from_adam:.2g} |"
            )
    print(f"\n{sum(x.numel() for x in model.parameters()):,} weights, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
