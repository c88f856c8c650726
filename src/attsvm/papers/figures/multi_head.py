"""Several attention heads: the joint norm in which the optimiser of all keys and queries maximises the margin."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm._utils.linear_algebra import unit_vectors
from attsvm.optimizers import Decaying, Optimizer, spectral_descent
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import margin_ratios, own_and_largest_other, undecided
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import drawn_matrix
from attsvm.problem import Problem
from attsvm.training import train

NORMS = {
    "sum over heads of nuclear": "Σ ‖W$_h$‖$_*$",
    "max over heads of spectral": "max ‖W$_h$‖",
    "fused_heads": "fused",
}
OWN = {"gradient descent": 0, "spectral, each head": 1, "spectral, fused heads": 2}
"""The optimisers, and the norm that each is expected to induce."""


def _optimizer(name: str, steps: int) -> Optimizer:
    if name == "gradient descent":
        return limit_optimizer("factored", steps)
    # weight decay forgets the first steps
    return spectral_descent(Decaying(0.05, 100, 0.5), scope="fused" if "fused" in name else "heads", weight_decay=0.02)


def problems(case: dict[str, int]) -> Problem:
    """Unit tokens, queries and heads of attention, with random labels."""
    n, T, d, heads, number = (case[name] for name in ("n", "T", "d", "heads", "problems"))
    generator = np.random.default_rng(case["seed"])

    units = partial(unit_vectors, generator, number)
    tokens, queries = units(n, T, d), units(n, d)
    labels = generator.choice([-1.0, 1.0], size=(number, n))
    return Problem(tokens, labels, queries, units(heads, d), num_heads=heads)


def _ratios(name: str, case: dict[str, int], steps: int) -> Arrays:
    problem = problems(case)
    run = train(
        problem, attention="factored", rank=case["m"], optimizer=_optimizer(name, steps), steps=steps, record=[steps]
    )
    return {"ratio": margin_ratios(problem, run, NORMS), "decided": ~undecided(run.probability, axes=2)}


class MultiHead(Figure):
    norms: ClassVar[dict[str, str]] = NORMS
    own: ClassVar[dict[str, int]] = OWN
    ratios: ClassVar[Callable[..., Arrays]] = staticmethod(_ratios)

    name = "multi-head"
    paper = Paper.OURS
    order = 6.2
    title = "Several attention heads: the joint norm"
    seconds = 45
    claim = (
        "The attention heads have fixed value vectors. Gradient descent on all K_h and Q_h maximises the smallest "
        "margin of all heads in the sum of the nuclear norms of W_h = K_h Q_h'. Spectral steps on each K_h and Q_h do "
        "so in the largest spectral norm. Spectral steps on the fused matrices [K_1 … K_H] and [Q_1 … Q_H] do so in "
        "the norm that they induce. (Mean margin ratio over the problems; the own norm of each optimiser is framed.)"
    )
    criterion = (
        "For every optimiser: the mean and the least margin ratio in its own joint norm are above the stated ones, and "
        "on every problem it is larger than in the other norms. All runs are decided."
    )
    full: ClassVar[Sizes] = {
        "cases": [
            {"n": 5, "T": 6, "d": 10, "heads": 2, "m": 5, "problems": 6, "seed": 0},
            {"n": 4, "T": 6, "d": 12, "heads": 3, "m": 4, "problems": 6, "seed": 1},
        ],
        "optimizers": list(OWN),
        "steps": 20_000,
        "mean_above": [0.995, 0.985, 0.985],
        "least_above": [0.99, 0.965, 0.965],
    }
    quick: ClassVar[Sizes] = {
        **full,
        "cases": [{"n": 4, "T": 5, "d": 6, "heads": 2, "m": 4, "problems": 2, "seed": 0}],
        "optimizers": ["gradient descent"],
        "steps": 8000,
        "mean_above": [0.98, 0.9, 0.9],
        "least_above": [0.95, 0.9, 0.9],
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        found = [
            [
                piece(f"{number}-{of}", type(self).ratios, name, case, sizes["steps"])
                for of, case in enumerate(sizes["cases"])
            ]
            for number, name in enumerate(sizes["optimizers"])
        ]
        return {
            key: np.stack([np.concatenate([arrays[key] for arrays in each]) for each in found])
            for key in ("ratio", "decided")
        }

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        own = np.array([self.own[name] for name in sizes["optimizers"]])
        in_own, others = own_and_largest_other(found["ratio"], own)
        means, least = in_own.mean(axis=1), in_own.min(axis=1)
        passed = {
            "a mean margin ratio in an optimiser's own norm is too small": (
                means > np.array(sizes["mean_above"])[own]
            ).all(),
            "a smallest margin ratio in an optimiser's own norm is too small": (
                least > np.array(sizes["least_above"])[own]
            ).all(),
            "on some problem the margin ratio is larger in another norm": (in_own > others).all(),
            "a run is undecided": found["decided"].all(),
            "a margin ratio exceeds 1": found["ratio"].max() <= 1 + 1e-6,
        }
        numbers = (
            f"{name} {mean:.3f} / {low:.3f}" for name, mean, low in zip(sizes["optimizers"], means, least, strict=True)
        )
        return verdict(passed, f"Margin ratio in the own norm, mean / smallest: {'; '.join(numbers)}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                name,
                "; ".join(f"{norm} {x.mean():.3f} / {x.min():.3f}" for norm, x in zip(self.norms, of.T, strict=True)),
            )
            for name, of in zip(sizes["optimizers"], found["ratio"], strict=True)
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        names = sizes["optimizers"]
        places = [self.own[name] for name in names]
        return drawn_matrix(names, list(self.norms.values()), found["ratio"].mean(axis=1), places, [True] * len(names))


FIGURES.register(MultiHead.name, MultiHead())
