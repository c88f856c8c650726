"""The Att-SVM to which mirror descent converges: each p of the optimiser against each p of the Att-SVM."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import bregman_divergence
from attsvm.optimizers import mirror_descent
from attsvm.pages import number
from attsvm.papers.drawing import legend_over, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Standing, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import undecided, with_names
from attsvm.plot import style
from attsvm.svm import solve_svm
from attsvm.training import train

STEP = 0.1
LINES = ((style.VERMILLION, "--"), (style.BLUE, "-"), (style.GREEN, "-."))

PUBLISHED = {(1.75, 1500): "0.0156 (four seeds)", (2.0, 2000): "0.0100 (four seeds)", (3.0, 20_000): "0.0033 (one)"}
"""Mean divergence from its own Att-SVM that the published code reaches, by p and steps."""


def divergences(directions: Sequence[np.ndarray], weights: np.ndarray, powers: list[float]) -> np.ndarray:
    """Of weights from the Att-SVM of each p, (p, records, ...)."""
    pairs = zip(directions, powers, strict=True)
    return np.stack([bregman_divergence(direction, weights, p, axis=(-2, -1)) for direction, p in pairs])


def own_values(powers: list[float], values: np.ndarray) -> dict[str, float]:
    """Of numbers (p of the optimiser, p of the Att-SVM), those in the same p, with its name."""
    return {f"p = {p:g}": value for p, value in zip(powers, np.diagonal(values), strict=True)}


def nearest_own(values: np.ndarray) -> bool:
    """Whether for each p of the optimiser that of its own Att-SVM is the smallest number."""
    return bool((values.argmin(axis=1) == np.arange(len(values))).all())


def _run(p: float, steps: int, powers: list[float], n: int, T: int, d: int, seed: int, seeds: int) -> Arrays:
    problem = random_problem(n, T, d, seed, batch=(seeds,))
    start = np.random.default_rng(seed + 1).standard_normal((seeds, d, d))
    run = train(problem, optimizer=mirror_descent(learning_rate=STEP, p=p), init=start, steps=steps, record=40)
    weights = run.history["weights"][1:]
    solutions = [solve_svm(problem, run.selected, norm=power) for power in powers]
    directions = [np.nan_to_num(solution.direction) for solution in solutions]
    return {
        "steps": run.history["steps"][1:],
        "divergence": divergences(directions, weights, powers),
        "feasible": np.all([np.asarray(solution.status) == "optimal" for solution in solutions], axis=0),
        "decided": ~undecided(run.probability),
    }


def _kept(sizes: Sizes, found: Arrays) -> dict[float, np.ndarray]:
    """Divergences (Att-SVM p, records, seeds) of the decided runs, by the optimiser's p."""
    return {p: found[f"divergence {p:g}"][..., found[f"feasible {p:g}"] & found[f"decided {p:g}"]] for p in sizes["p"]}


class Bregman(Figure):
    name = "bregman"
    paper = Paper.MIRROR_DESCENT
    order = 2
    title = "Mirror descent with one p, compared with the Att-SVM for another"
    seconds = 15
    claim = (
        "ℓp mirror descent converges to the ℓp Att-SVM and to no other. Of three directional Bregman divergences, only "
        "the one from the Att-SVM for its own p tends to 0. (Mean and 10-90 % range over the decided seeds.)"
    )
    criterion = (
        "Nine in ten runs are decided (no dropped probability above 1e-6). For each optimiser the mean divergence "
        "from its own Att-SVM is the smallest and below the stated one, and 19 of 20 decided seeds end closest to "
        "their own Att-SVM."
    )
    full: ClassVar[Sizes] = {
        "p": [1.75, 2.0, 3.0],
        "steps": [1500, 2000, 20_000],
        "n": 6,
        "T": 8,
        "d": 10,
        "seeds": 100,
        "seed": 0,
        "divergence_below": 0.02,
    }
    quick: ClassVar[Sizes] = {**full, "steps": [500, 1000, 8000], "seeds": 4, "divergence_below": 0.1}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("n", "T", "d", "seed", "seeds")]
        runs = zip(sizes["p"], sizes["steps"], strict=True)
        return joined({f"{p:g}": piece(f"p{p:g}", _run, p, steps, sizes["p"], *shape) for p, steps in runs})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        kept = _kept(sizes, found)
        if not all(divergence.shape[-1] for divergence in kept.values()):
            return Verdict(Standing.FAILS, "For some p no run is decided.")
        least = min(divergence.shape[-1] for divergence in kept.values()) / sizes["seeds"]
        means = np.stack([divergence[:, -1].mean(axis=-1) for divergence in kept.values()])
        nearest = [np.mean(x[:, -1].argmin(axis=0) == i) for i, x in enumerate(kept.values())]
        passed = {
            "more than a tenth of the runs are undecided": least > 0.9,
            "an optimiser is on average closer to another p's Att-SVM than to its own": nearest_own(means),
            "a mean divergence from an optimiser's own Att-SVM is too large": (
                np.diagonal(means) < sizes["divergence_below"]
            ).all(),
            "more than one seed in 20 ends closer to another p's Att-SVM": min(nearest) >= 0.95,
        }
        own = with_names(own_values(sizes["p"], means))
        undecided = ", ".join(str(sizes["seeds"] - x.shape[-1]) for x in kept.values())
        return verdict(
            passed,
            f"Mean divergence of each optimiser from its own Att-SVM at the end: {own}. At least {min(nearest):.0%} "
            f"of the decided seeds end closest to it. Undecided: {undecided} of {sizes['seeds']}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"p = {p:g}, {steps:,} steps: divergence from the ℓ{power:g} Att-SVM",
                number(float(ends.mean()) if ends.size else None),
                PUBLISHED.get((p, steps), "") if power == p else "",
            )
            for (p, divergence), steps in zip(_kept(sizes, found).items(), sizes["steps"], strict=True)
            for power, ends in zip(sizes["p"], divergence[:, -1], strict=True)
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axes = panels(5.2, len(sizes["p"]), 1, sharey=True)
        for axis, (p, divergence) in zip(axes, _kept(sizes, found).items(), strict=True):
            steps = found[f"steps {p:g}"]
            for power, values, (colour, dashes) in zip(sizes["p"], divergence, LINES, strict=True):
                style.spread(axis, steps, values, colour, dashes, f"ℓ$_{{{power:g}}}$ Att-SVM", middle=np.mean)
            set_axes(axis, log="xy")
            axis.set_title(f"mirror descent, p = {p:g}")
        axes[1].set_ylabel("directional Bregman divergence")
        axes[-1].set_xlabel("steps")
        legend_over(figure, axes[0], 3, columnspacing=1.0)
        return figure


FIGURES.register(Bregman.name, Bregman())
