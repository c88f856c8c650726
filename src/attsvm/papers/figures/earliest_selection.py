"""No selection before step k: the step at which runs select all their tokens, against the proved bound."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.optimizers import momentum, normalized_gradient_descent, spectral_descent, steepest_descent
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.plot import style
from attsvm.theory import earliest_selection
from attsvm.training import train


class DrawnOptimizer(NamedTuple):
    """An optimiser with steps of constant length, and how it is drawn."""

    optimizer: Callable[[], Any]
    colour: str
    marker: str
    factored: bool = False


OPTIMIZERS: dict[str, DrawnOptimizer] = {
    "normalised GD": DrawnOptimizer(lambda: normalized_gradient_descent(0.1), style.BLUE, "o"),
    "momentum": DrawnOptimizer(lambda: momentum(normalized_gradient_descent(0.1)), style.SKY, "s"),
    "sign": DrawnOptimizer(lambda: steepest_descent(norm="linf", learning_rate=0.02), style.VERMILLION, "^"),
    "spectral": DrawnOptimizer(lambda: steepest_descent(norm="spectral", learning_rate=0.1), style.GREEN, "v"),
    "nuclear": DrawnOptimizer(lambda: steepest_descent(norm="nuclear", learning_rate=0.2), style.PURPLE, "D"),
    "(K, Q)": DrawnOptimizer(lambda: normalized_gradient_descent(0.1), style.ORANGE, "P", factored=True),
    "(K, Q), spectral": DrawnOptimizer(lambda: spectral_descent(0.03), style.INK, "x", factored=True),
}

MISS = 0.01
START = 0.1
"""Size of the initial factors, relative to entries N(0, 1/d)."""

SHOWN = 100
"""Runs of each optimiser that are drawn."""


def first_steps(name: str, problems: int, steps: int, n: int, T: int, d: int, seed: int) -> Arrays:
    """The first steps at which each query and all queries of a run have selected, ∞ if never; and their bounds."""
    problem = random_problem(n, T, d, seed, batch=(problems,))
    optimizer, _, _, factored = OPTIMIZERS[name]
    optimizer = optimizer()
    init, attention = None, "combined"
    if factored:
        generator, attention = np.random.default_rng(seed), "factored"
        init = tuple(START * generator.standard_normal((problems, d, d)) / np.sqrt(d) for _ in range(2))
    run = train(problem, attention=attention, optimizer=optimizer, steps=steps, init=init, record=range(steps + 1))
    has_selected = (run.history["probability"] >= 1 - MISS) & (run.history["selected"] == run.selected)
    bound = earliest_selection(problem, optimizer, selected=run, factored=factored, init=init, miss=MISS)
    return {
        "of_query": _first(has_selected),
        "query_bound": bound.steps,
        "of_all": _first(has_selected.all(axis=-1)),
        "all_bound": np.asarray(bound.all_steps),
    }


def _first(happened: np.ndarray) -> np.ndarray:
    return np.where(happened.any(axis=0), happened.argmax(axis=0), np.inf)


def ratios(actual: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Actual step over its bound, of the runs that got there."""
    there = np.isfinite(actual)
    return np.asarray(actual[there] / bound[there])


class EarliestSelectionFigure(Figure):
    name = "earliest-selection"
    paper = Paper.OURS
    order = 6.8
    title = "No selection before step k"
    seconds = 60
    claim = (
        "If the steps have lengths η_k in a norm N, no token receives the attention 1 − δ before Σ η_k reaches log((1 "
        "− δ)/δ) times the value of the Att-SVM in N. For factors, the product of the lengths of K and Q replaces the "
        "sum, and the induced norm of KQ' replaces N. In the median, runs need less than twice as many steps. (The "
        "step at which all queries of a run have selected, against the bound for all of them; no run lies in the grey "
        "region. Constant steps from W = 0, or from small K and Q; δ = 0.01. The bound for a single query is farther "
        "from its actual step, because the other queries use up length.)"
    )
    criterion = (
        "No query, and no run as a whole, selects before its bound. For every optimiser, the median of the actual step "
        "divided by the bound, for all queries of a run, is at most the stated number. The stated share of the runs "
        "select within their steps."
    )
    full: ClassVar[Sizes] = {
        "optimizers": list(OPTIMIZERS),
        "problems": 200,
        "steps": 500,
        "n": 6,
        "T": 8,
        "d": 10,
        "seed": 0,
        "median": 2.0,
        "share": 0.9,
    }
    quick: ClassVar[Sizes] = {**full, "optimizers": ["normalised GD", "sign"], "problems": 20}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("problems", "steps", "n", "T", "d", "seed")]
        return stacked([piece(f"{k}", first_steps, name, *shape) for k, name in enumerate(sizes["optimizers"])])

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        early = sum(int((found[of] < found[bound]).sum()) for of, bound in _PAIRS.values())
        medians = [np.median(ratios(*each)) for each in zip(found["of_all"], found["all_bound"], strict=True)]
        share = np.isfinite(found["of_all"]).mean(axis=1).min()
        passed = {
            "a query or a run selects before its bound": early == 0,
            "a median is too large": max(medians) <= sizes["median"],
            "too few runs select within their steps": share >= sizes["share"],
        }
        number = found["of_all"].size
        return verdict(
            passed,
            f"{early} of {number:,} runs select before their bound. The medians of actual step / bound are "
            f"{min(medians):.2f} to {max(medians):.2f}. At least {share:.0%} of the runs of each optimiser select "
            f"within {sizes['steps']} steps.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for k, name in enumerate(sizes["optimizers"]):
            words = []
            for label, (of, bound) in _PAIRS.items():
                low, middle, high = np.quantile(ratios(found[of][k], found[bound][k]), [0.1, 0.5, 0.9])
                words.append(f"{label} {middle:.2f} (10-90 %: {low:.2f} to {high:.2f})")
            rows.append(Row(f"{name}, actual step / bound", "; ".join(words)))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = style.panel("bound on the step", "actual step", 2.9, log=True)
        for k, name in enumerate(sizes["optimizers"]):
            way, x, y = OPTIMIZERS[name], found["all_bound"][k, :SHOWN], found["of_all"][k, :SHOWN]
            axis.plot(x, y, way.marker, color=way.colour, markersize=2, alpha=0.6, label=name)
        low, high = 0.9 * found["all_bound"].min(), 1.1 * found["all_bound"].max()
        axis.plot([low, high], [low, high], "-", color=style.INK, linewidth=1)
        axis.fill_between([low, high], [low, high], low, color=style.INK, alpha=0.15, linewidth=0)
        for scale, ticks in ((axis.set_xticks, (50, 100, 200)), (axis.set_yticks, (50, 100, 200, 400))):
            scale(ticks, [str(tick) for tick in ticks])
            scale([], minor=True)
        axis.set_xlim(low, high)
        axis.set_ylim(low, sizes["steps"])
        style.legend_above(axis, 2)
        return figure


_PAIRS = {"all queries": ("of_all", "all_bound"), "each query": ("of_query", "query_bound")}

FIGURES.register(EarliestSelectionFigure.name, EarliestSelectionFigure())
