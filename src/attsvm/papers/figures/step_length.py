"""Spectral steps on keys and queries: the margin ratios against the change of the logits in a step."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.optimizers import spectral_descent
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import margin_ratios, undecided
from attsvm.plot import style
from attsvm.training import train

NORMS = {"spectral": (style.BLUE, "-"), "nuclear": (style.VERMILLION, "--"), "frobenius": (style.GREEN, ":")}
SHORT = 1.0
"""Up to about this change the conjecture is stated."""


def _ratios(length: float, steps: int, n: int, T: int, d: int, problems: int, seed: int) -> Arrays:
    problem = random_problem(n, T, d, seed, batch=(problems,))
    optimizer = spectral_descent(length, by_logit=True)
    run = train(problem, attention="factored", optimizer=optimizer, steps=steps, record=[3 * steps // 4, steps])
    return {
        "ratio": margin_ratios(problem, run, NORMS),
        "change": run.history["logit_change"].max(axis=0),
        "decided": ~undecided(run.probability),
    }


def crossover(change: np.ndarray, ahead: np.ndarray) -> list[float]:
    """Where ``ahead`` changes its sign, by linear interpolation in log change."""
    places = np.flatnonzero(np.sign(ahead[1:]) != np.sign(ahead[:-1]))
    logs = np.log(change)
    parts = ahead[places] / (ahead[places] - ahead[places + 1])
    return [float(x) for x in np.exp(logs[places] + parts * (logs[places + 1] - logs[places]))]


class StepLength(Figure):
    name = "step-length"
    paper = Paper.OURS
    order = 6
    title = "Short and long spectral steps on keys and queries"
    seconds = 30
    claim = (
        "Spectral steps on K and Q that change no logit by more than about 1 converge to the spectral Att-SVM of KQ'. "
        "Longer steps leave it, and the longest ones end closer to the nuclear Att-SVM. (Margin ratio against the "
        "largest change of a logit in a step, mean and 10-90 % range of the problems; steps divided by the sum of the "
        "spectral norms of K and Q. All runs make the same number of steps, so short ones are still growing.)"
    )
    criterion = (
        "With the steps that change a logit by about 1, the spectral ratio is above the stated mean and above the "
        "nuclear one on every problem. With the longest steps the nuclear ratio is the larger one on every problem. "
        "The means cross once, at a change above 1. All runs are decided."
    )
    ascending: ClassVar = ("lengths",)
    full: ClassVar[Sizes] = {
        "lengths": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 150.0],
        "n": 6,
        "T": 8,
        "d": 10,
        "problems": 12,
        "steps": 10_000,
        "seed": 0,
        "mean_above": 0.97,
    }
    quick: ClassVar[Sizes] = {**full, "lengths": [1.0, 100.0], "problems": 3, "steps": 1000, "mean_above": 0.9}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("n", "T", "d", "problems", "seed")]
        return stacked(each(piece, sizes["lengths"], _ratios, sizes["steps"], *shape).values())

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        spectral, nuclear = found["ratio"][..., 0], found["ratio"][..., 1]
        change = np.median(found["change"], axis=1)
        short = sizes["lengths"].index(SHORT)
        crossings = crossover(change, (spectral - nuclear).mean(axis=1))
        passed = {
            "the mean spectral ratio of short steps is too small": spectral[short].mean() > sizes["mean_above"],
            "after short steps the nuclear ratio is larger on some problem": (spectral[short] > nuclear[short]).all(),
            "after long steps the spectral ratio is larger on some problem": (spectral[-1] < nuclear[-1]).all(),
            "the means do not cross once, above 1": len(crossings) == 1 and crossings[0] > SHORT,
            "a run is undecided": found["decided"].all(),
        }
        return verdict(
            passed,
            f"Spectral ratio {spectral[short].mean():.3f}, nuclear {nuclear[short].mean():.3f} where a step changes a "
            f"logit by {change[short]:.2f}; {spectral[-1].mean():.3f} and {nuclear[-1].mean():.3f} where it changes "
            f"one by {change[-1]:.0f}. The means cross at {', '.join(f'{x:.0f}' for x in crossings) or 'no change'}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"step divided by N(K) + N(Q) {length:g}, largest change of a logit {np.median(change):.2g}",
                "; ".join(f"{norm} {x.mean():.3f}" for norm, x in zip(NORMS, ratio.T, strict=True)),
            )
            for length, change, ratio in zip(sizes["lengths"], found["change"], found["ratio"], strict=True)
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = style.panel("largest change of a logit in a step", "margin ratio", 2.4)
        axis.set_xscale("log")
        change = np.median(found["change"], axis=1)
        for number, (norm, (colour, dashes)) in enumerate(NORMS.items()):
            ratio = found["ratio"][..., number]
            style.spread(axis, change, ratio, colour, dashes, norm.replace("frob", "Frob"), middle=np.mean)
            # the lines join few points, so each measured one is shown
            axis.plot(change, ratio.mean(axis=1), "o", color=colour, markersize=2.5)
        axis.set_ylim(None, 1.0)
        style.legend_above(axis, 3)
        return figure


FIGURES.register(StepLength.name, StepLength())
