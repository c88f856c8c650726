"""Which norm of KQ' the steps on keys and queries select: the margin ratio of each optimiser in each norm."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.optimizers import Decaying, Optimizer, adam, column_descent, row_descent, spectral_descent, steepest_descent
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import margin_ratios, own_and_largest_other, undecided
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import drawn_matrix
from attsvm.training import train

LABELS = {
    "nuclear": "nuclear",
    "frobenius": "Frobenius",
    "spectral": "spectral",
    "gamma2": "γ$_2$",
    "nu": "ν",
    "fused_kq": "fused",
    "linf": "ℓ$_\\infty$",
}
NORMS = tuple(LABELS)


class FactoredOptimizer(NamedTuple):
    """An optimiser, from its number of steps, and the norm that it is expected to select.

    ``part``: of the steps of the figure, those that it makes. ``claimed``: whether the norm is claimed. ``slow``: the
    criterion has a smaller mean for it. ``short``: its last steps change the logits little.
    """

    norm: str
    make: Callable[[int], Optimizer]
    part: float = 1.0
    claimed: bool = True
    slow: bool = False
    short: bool = True


def _short(rate: float, power: float = 0.5) -> Decaying:
    return Decaying(rate, 100, power)


WAYS: dict[str, FactoredOptimizer] = {
    "gradient descent": FactoredOptimizer("nuclear", partial(limit_optimizer, "factored"), short=False),
    "spectral": FactoredOptimizer("spectral", lambda _: spectral_descent(_short(0.05))),
    "Muon, converged": FactoredOptimizer(
        "spectral", lambda _: spectral_descent(_short(0.05), polar="newton_schulz", momentum=0.95)
    ),
    "Muon": FactoredOptimizer(
        "spectral", lambda _: spectral_descent(_short(0.05), polar="optax", momentum=0.95), claimed=False
    ),
    "rows": FactoredOptimizer("gamma2", lambda _: row_descent(_short(0.02)), part=5.0),
    "columns": FactoredOptimizer(
        "nuclear", lambda _: column_descent(Decaying(0.3, 1000, 1 / 3), by_logit=True), part=5.0
    ),
    "sign": FactoredOptimizer(
        "nu", lambda _: steepest_descent(norm="linf", learning_rate=_short(0.01, 0.6)), part=5.0, slow=True
    ),
    "Adam": FactoredOptimizer("nu", lambda _: adam(_short(0.02, 0.6)), part=5.0, slow=True),
    "spectral, [K, Q]": FactoredOptimizer("fused_kq", lambda _: spectral_descent(_short(0.05), scope="kq")),
}
"""Every optimiser by its name. Muon has the coefficients that optax ships, and no norm that it should select."""


def _ratios(name: str, steps: int, n: int, T: int, d: int, problems: int, seed: int) -> Arrays:
    way, problem = WAYS[name], random_problem(n, T, d, seed, batch=(problems,))
    steps = round(way.part * steps)
    run = train(problem, attention="factored", optimizer=way.make(steps), steps=steps, record=[steps])
    shares = np.linalg.svd(run.weights, compute_uv=False)
    shares = shares / shares.sum(axis=-1, keepdims=True)
    return {
        "ratio": margin_ratios(problem, run, NORMS),
        "change": run.history["logit_change"][-1],
        "rank": np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=-1)),
        "decided": ~undecided(run.probability),
    }


class FactoredOptimizers(Figure):
    name = "factored-optimizers"
    paper = Paper.OURS
    order = 5.5
    title = "The norm of KQ' for each optimiser of keys and queries"
    seconds = 45
    claim = (
        "Short steps on K and Q maximise the margin in the norm that they induce on KQ' (framed). This is the nuclear "
        "norm for gradient descent and normalised columns, the spectral norm for spectral steps and Muon with a "
        "converged polar factor, γ2 for normalised rows, ν for signs and Adam, and the fused norm for spectral steps "
        "on [K, Q] as one matrix. Muon with the default coefficients in optax is shown without a claim (dashed). (Mean "
        "margin ratio over the problems.)"
    )
    criterion = (
        "For every optimiser except Muon with the default coefficients, the mean margin ratio in its own norm is above "
        "the stated one (a smaller one for signs and Adam), and on every problem it is the largest in its row. Except "
        "under gradient descent, no step at the end changes a logit by more than 1.5. All runs are decided and no "
        "ratio exceeds 1."
    )
    full: ClassVar[Sizes] = {
        "optimizers": list(WAYS),
        "n": 4,
        "T": 6,
        "d": 6,
        "problems": 8,
        "steps": 30_000,
        "seed": 0,
        "mean_above": 0.985,
        "slow_above": 0.94,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "optimizers": ["gradient descent", "rows"],
        "problems": 2,
        "steps": 4000,
        "mean_above": 0.95,
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("n", "T", "d", "problems", "seed")]
        return stacked(each(piece, sizes["optimizers"], _ratios, sizes["steps"], *shape).values())

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        ways = [WAYS[name] for name in sizes["optimizers"]]
        in_own, others = own_and_largest_other(found["ratio"], _places(ways))
        claimed = np.array([way.claimed for way in ways])
        needed = np.array([sizes["slow_above" if way.slow else "mean_above"] for way in ways])
        short = claimed & np.array([way.short for way in ways])
        names, means = np.array(sizes["optimizers"]), in_own.mean(axis=1)
        too_low = claimed & ~(means > needed)
        low = [f"{name} {mean:.3f}" for name, mean in zip(names[too_low], means[too_low], strict=True)]
        behind = names[claimed & ~(in_own > others).all(axis=1)]
        passed = {
            f"the mean ratio in the own norm is too small for {', '.join(low)}": not low,
            f"on some problem another norm has a larger ratio for {', '.join(behind)}": not behind.size,
            "a step at the end changes a logit by more than 1.5": found["change"][short].max(initial=0.0) <= 1.5,
            "a run is undecided": found["decided"].all(),
            "a margin ratio exceeds 1": found["ratio"].max() <= 1 + 1e-6,
        }
        return verdict(
            passed, f"The smallest mean ratio of an optimiser in its own norm is {means[claimed].min():.3f}."
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        ways = [WAYS[name] for name in sizes["optimizers"]]
        in_own, others = own_and_largest_other(found["ratio"], _places(ways))
        return [
            Row(
                f"{name}, {way.norm}",
                f"{own.mean():.4f}, smallest {own.min():.4f}; best other norm {other.mean():.4f}; effective rank "
                f"{rank.mean():.2f}; change of a logit {change.max():.2g}",
            )
            for name, way, own, other, rank, change in zip(
                sizes["optimizers"], ways, in_own, others, found["rank"], found["change"], strict=True
            )
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        ways = [WAYS[name] for name in sizes["optimizers"]]
        claimed = [way.claimed for way in ways]
        mean = found["ratio"].mean(axis=1)
        return drawn_matrix(sizes["optimizers"], list(LABELS.values()), mean, _places(ways).tolist(), claimed)


def _places(ways: list[FactoredOptimizer]) -> np.ndarray:
    return np.array([NORMS.index(way.norm) for way in ways])


FIGURES.register(FactoredOptimizers.name, FactoredOptimizers())
