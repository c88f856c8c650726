"""Convergence in float64: the exact softmax gradient, and its usual formula."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm._utils.linear_algebra import softmax
from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.pages import number
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Standing, Verdict, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import compared, median_of
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.selection import scores
from attsvm.svm import solve_svm
from attsvm.training import train

STEP = 0.1
GRADIENTS = {"exact": "exact gradient", "plain": "usual formula"}


def _problems(sizes: Sizes) -> tuple[Problem, np.ndarray]:
    """One problem and one start per seed."""
    problem = random_problem(sizes["n"], sizes["T"], sizes["d"], sizes["seed"], batch=(sizes["seeds"],))
    generator = np.random.default_rng(sizes["seed"] + 1)
    return problem, generator.standard_normal((sizes["seeds"], sizes["d"], sizes["d"]))


def _exact(sizes: Sizes, steps: int) -> Arrays:
    problem, start = _problems(sizes)
    run = train(problem, steps=steps, init=start, record=60)
    return compared(problem, run) | {"direction": solve_svm(problem, run.selected).direction}


def _plain(sizes: Sizes, steps: int) -> Arrays:
    """Normalised gradient descent with the usual formula of the softmax gradient, a_t (g_t − Σ a_u g_u)."""
    problem, weights = _problems(sizes)
    queries = problem.queries
    assert queries is not None
    # the margin is the mean of these token values under the attention
    values = scores(problem)
    marks = np.unique(np.rint(np.geomspace(1, steps, 60)).astype(int))
    recorded = []
    for step in range(1, steps + 1):
        logits = (problem.tokens @ (queries @ weights.mT)[..., None])[..., 0]
        attention = softmax(logits)
        margin = np.sum(attention * values, axis=-1, keepdims=True)
        of_values = -values / (1 + np.exp(margin))
        of_logits = attention * (of_values - np.sum(attention * of_values, axis=-1, keepdims=True))
        gradient = (of_logits[..., None, :] @ problem.tokens)[..., 0, :].mT @ queries
        norm = np.linalg.norm(gradient, axis=(-2, -1), keepdims=True)
        weights = weights - STEP * gradient / np.where(norm > 0, norm, 1.0)
        if step in marks:
            recorded.append(weights)
    return {"steps": marks, "weights": np.stack(recorded)}


class LimitFigure(Figure):
    name = "limit"
    paper = Paper.OURS
    order = 1
    title = "Training to the limit, with and without cancellation"
    seconds = 60
    claim = (
        "Once the softmax saturates, the usual formula for its gradient loses digits, and the weights drift away from "
        "the direction that the theorem predicts. How far depends on the order of summation. With the exact gradient, "
        "the weights converge to that direction. (Median and 10-90 % range of the decided runs; both compared with the "
        "Att-SVM for the selection of the exact run.)"
    )
    criterion = (
        "19 of 20 runs are decided. Every decided run with the exact gradient ends below the stated direction "
        "error. The median with the usual formula ends at more than 1.5 times its smallest value."
    )
    full: ClassVar[Sizes] = {
        "n": 6,
        "T": 8,
        "d": 10,
        "seeds": 20,
        "steps": 1_000_000,
        "plain_steps": 40_000,
        "seed": 0,
        "error_below": 1e-6,
    }
    quick: ClassVar[Sizes] = {**full, "seeds": 4, "steps": 20_000, "plain_steps": 20_000, "error_below": 1e-3}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        exact = piece("exact", _exact, dict(sizes), sizes["steps"])
        plain = piece("plain", _plain, dict(sizes), sizes["plain_steps"])
        return {
            "steps exact": exact["steps"],
            "error exact": exact["error"],
            "undecided": exact["undecided"],
            "steps plain": plain["steps"],
            "error plain": np.asarray(direction_error(plain["weights"], exact["direction"], axis=(-2, -1))),
        }

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        decided = ~found["undecided"]
        if not decided.any():
            return Verdict(Standing.FAILS, "No run is decided.")
        exact, plain = found["error exact"][:, decided], found["error plain"][:, decided]
        median = np.median(plain, axis=1)
        passed = {
            "more than one run in 20 is undecided": decided.mean() >= 0.95,
            "a run with the exact gradient does not end at its Att-SVM": exact[-1].max() < sizes["error_below"],
            "the weights do not drift away with the usual formula": median[-1] > 1.5 * median.min(),
        }
        return verdict(
            passed,
            f"Largest direction error after {sizes['steps']:,} steps with the exact gradient: {exact[-1].max():.1e}. "
            f"The median with the usual formula reaches {median.min():.1e} and is {median[-1]:.1e} after "
            f"{sizes['plain_steps']:,} steps.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = [Row("undecided runs", f"{int(found['undecided'].sum())} of {sizes['seeds']}")]
        for name, steps in (("exact", sizes["steps"]), ("plain", sizes["plain_steps"])):
            error = number(median_of(found[f"error {name}"][-1]))
            rows.append(Row(f"{GRADIENTS[name]}, {steps:,} steps: median direction error", error))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = style.panel("steps", "direction error", 2.4, log=True)
        for name, colour, dashes in (("exact", style.BLUE, "-"), ("plain", style.VERMILLION, "--")):
            steps, errors = found[f"steps {name}"], found[f"error {name}"][:, ~found["undecided"]]
            style.spread(axis, steps, errors, colour, dashes, GRADIENTS[name])
        style.legend_above(axis, 2)
        return figure


FIGURES.register(LimitFigure.name, LimitFigure())
