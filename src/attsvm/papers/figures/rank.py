"""The rank of Frobenius and nuclear Att-SVM solutions, and what a smaller largest rank costs."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure

from attsvm.datasets import random_problem
from attsvm.measures import direction_error, margin
from attsvm.papers.drawing import shape_lines
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import undecided
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import DATA, style
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.training import train

NORMS = ("frobenius", "nuclear")
BELOW = 1e-6
"""Singular values below this fraction of the largest count as zero."""

ROOMY = 10
"""The smallest dimension in which the two ranks must differ clearly."""


def _ranks(n: int, T: int, d: int, number: int, seed: int, self_attention: bool) -> Arrays:
    problem = random_problem(n, T, d, seed, batch=(number,), self_attention=self_attention)
    selected = optimal_tokens(problem)
    found: Arrays = {}
    for norm in NORMS:
        solution = solve_svm(problem, selected, norm)
        singular = np.linalg.svd(np.nan_to_num(solution.direction), compute_uv=False)
        found[norm] = np.sum(singular > BELOW * singular[..., :1], axis=-1)
        found[f"{norm}_feasible"] = np.asarray(solution.status) != "infeasible"
        found[f"{norm}_gap"] = np.nan_to_num(solution.gap)
    return found


def _columns(m: int, n: int, T: int, d: int, number: int, seed: int, steps: int, self_attention: bool) -> Arrays:
    """The Att-SVM of rank at most m against the nuclear one, and factors of m columns that are trained."""
    problem = random_problem(n, T, d, seed, batch=(number,), self_attention=self_attention)
    selected = optimal_tokens(problem)
    nuclear, limited = (solve_svm(problem, selected, "nuclear", rank=rank) for rank in (None, m))
    singular = np.linalg.svd(np.nan_to_num(nuclear.direction), compute_uv=False)
    optimizer = limit_optimizer("factored", steps)
    run = train(problem, attention="factored", rank=m, steps=steps, seed=seed, record=1, optimizer=optimizer)
    # most runs select the optimal tokens, whose Att-SVM is known
    direction, value = limited.direction.copy(), np.array(limited.value)
    away = (run.selected != selected).any(axis=-1)
    if away.any():
        own = solve_svm(problem[away], run.selected[away], "nuclear", rank=m)
        direction[away], value[away] = own.direction, own.value
    return {
        "value": limited.value / np.asarray(nuclear.value),
        "free": np.sum(singular > BELOW * singular[..., :1], axis=-1) <= m,
        "error": np.asarray(direction_error(run.weights, direction, axis=(-2, -1))),
        # the least norm with a margin of 1 in the direction of the run, over that of the Att-SVM
        "reached": 1 / (margin(problem, run.weights, run.selected, "nuclear") * value),
        "undecided": undecided(run.probability),
    }


class RankFigure(CrossAndSelf):
    name = "rank"
    paper = Paper.TRANSFORMERS
    order = 2
    title = "Rank of the Frobenius and nuclear solutions"
    seconds = 90
    claim = (
        "Both solutions have rank at most min(n, d). The nuclear solution, to which training K and Q converges, has "
        "the lower rank. Over W of rank at most m (d = 10, the two lower panels), the value falls as m grows, and "
        "equals the nuclear value once m reaches the rank of the nuclear solution. K and Q with m columns converge to "
        "the solution of rank at most m."
    )
    criterion = (
        "Over the feasible problems (infeasible ones have no solution): no mean rank exceeds min(n, d); the nuclear "
        "mean never exceeds the Frobenius mean, and is at most 0.8 of it for d ≥ 10; all duality gaps are at most "
        "1e-8. The values over W of rank at most m never rise with m, and equal the nuclear ones, to 1e-8, exactly if "
        "the nuclear solution has at most this rank. Of the decided runs of (K, Q) with m columns, nine in ten for "
        "each m ≥ 2 and half for m = 1, which has the most local minima, end within the stated direction error of the "
        "Att-SVM of this rank for their own tokens. None ends below its value; at most one in ten is undecided."
    )
    ascending: ClassVar = ("dims",)
    full: ClassVar[Sizes] = {
        "shapes": [[5, 5], [5, 10], [5, 15], [10, 5], [15, 5]],
        "dims": [1, 2, 3, 4, 5, 10, 15, 20],
        "problems": 100,
        "seed": 0,
        "columns": {"m": [1, 2, 3, 4], "shape": [6, 8, 10], "problems": 15, "steps": 40_000},
        "error_below": 1e-3,
        "queries": {
            "cross": {},
            "self": {
                "shapes": [[5, 5]],
                "problems": 50,
                "columns": {"m": [1, 2, 3], "shape": [6, 8, 10], "problems": 10, "steps": 25_000},
            },
        },
    }
    quick: ClassVar[Sizes] = {
        **full,
        "shapes": [[5, 5], [5, 10]],
        "dims": [2, 5, 10],
        "problems": 10,
        "columns": {"m": [1, 3], "shape": [5, 5, 6], "problems": 2, "steps": 25_000},
        "error_below": 1e-2,
        "queries": {"cross": {}, "self": {}},
    }

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        shape = len(sizes["shapes"]), len(sizes["dims"])
        arrays = {
            name: np.full(shape, np.nan) for name in (*NORMS, "nuclear_largest", "feasible", "gap", "disagreeing")
        }
        for i, (n, T) in enumerate(sizes["shapes"]):
            for j, d in enumerate(sizes["dims"]):
                found = piece(f"n{n}-T{T}-d{d}", _ranks, n, T, d, sizes["problems"], sizes["seed"], self_attention)
                # an infeasible problem has no solution
                kept = found["frobenius_feasible"] & found["nuclear_feasible"]
                arrays["feasible"][i, j] = kept.mean()
                arrays["disagreeing"][i, j] = (found["frobenius_feasible"] != found["nuclear_feasible"]).sum()
                arrays["gap"][i, j] = max(found[f"{norm}_gap"].max() for norm in NORMS)
                if kept.any():
                    arrays["nuclear_largest"][i, j] = found["nuclear"][kept].max()
                    for norm in NORMS:
                        arrays[norm][i, j] = found[norm][kept].mean()
        columns = sizes["columns"]
        arguments = (*columns["shape"], columns["problems"], sizes["seed"], columns["steps"], self_attention)
        each = [piece(f"columns{m}", _columns, m, *arguments) for m in columns["m"]]
        return arrays | {f"columns {name}": np.stack([found[name] for found in each]) for name in each[0]}

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        there = np.isfinite(found["frobenius"])
        bound = np.array([[min(n, d) for d in sizes["dims"]] for n, _ in sizes["shapes"]])
        lower = (found["nuclear"] <= found["frobenius"])[there]
        # in low dimensions both have nearly full rank
        roomy = there & (np.array(sizes["dims"]) >= ROOMY)
        clearly_lower = (found["nuclear"] <= 0.8 * found["frobenius"])[roomy]
        passed = {
            "in some case the nuclear solution has the larger mean rank": lower.all(),
            "a rank exceeds min(n, d)": (found["frobenius"] <= bound)[there].all(),
            "the nuclear solutions are not clearly of lower rank": clearly_lower.all() and roomy.any(),
            "the norms disagree on which problems are feasible": not found["disagreeing"].any(),
            "a solution is inaccurate": found["gap"].max() <= 1e-8,
        }
        largest = np.nanmax(found["nuclear_largest"])
        summary = f"The largest rank of a nuclear solution is {largest:.0f}."
        return Judged(passed | self._judge_columns(sizes, found), f"{summary} {self._told(sizes, found)}")

    def _judge_columns(self, sizes: Sizes, found: Arrays) -> dict[str, bool]:
        value, free = found["columns value"], found["columns free"]
        decided = ~found["columns undecided"]
        shares = _shares(sizes, found)
        needed = np.array([0.5 if m == 1 else 0.9 for m in sizes["columns"]["m"]])
        return {
            "a value rises with m": (np.diff(value, axis=0) <= 1e-8).all() and np.isfinite(value[-1]).all(),
            "a value is not the nuclear one exactly where the nuclear rank allows it": (
                ((value <= 1 + 1e-8) == free).all() and (value >= 1 - 1e-8).all()
            ),
            "fewer runs of (K, Q) with m columns than stated end at the Att-SVM of this rank": (shares >= needed).all(),
            "a run ends below the value of its Att-SVM": (found["columns reached"][decided] >= 1 - 1e-6).all(),
            "more than one run in ten of (K, Q) with m columns is undecided": decided.mean() >= 0.9,
        }

    def _told(self, sizes: Sizes, found: Arrays) -> str:
        each = zip(sizes["columns"]["m"], np.median(found["columns value"], axis=1), _shares(sizes, found), strict=True)
        summary = "; ".join(f"m = {m}: {value:.4g}, {share:.0%}" for m, value, share in each)
        return f"Median value / nuclear value, and share of the runs with m columns that end there: {summary}."

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for i, (n, T) in enumerate(sizes["shapes"]):
            j = len(sizes["dims"]) - 1
            ranks = " and ".join(f"{found[norm][i, j]:.2f} ({norm})" for norm in NORMS)
            feasible = f"{found['feasible'][i, j]:.0%} feasible"
            rows.append(Row(f"n = {n}, T = {T}, d = {sizes['dims'][j]}: mean rank", f"{ranks}; {feasible}"))
        n, T, d = sizes["columns"]["shape"]
        for i, m in enumerate(sizes["columns"]["m"]):
            low, middle, high = np.quantile(found["columns value"][i], [0.1, 0.5, 0.9])
            value = f"n = {n}, T = {T}, d = {d}, rank at most {m}: value / nuclear value, median (10-90 %)"
            share = f"{_shares(sizes, found)[i]:.0%}"
            spread = f"{middle:.4f} ({low:.4f} to {high:.4f})"
            rows.append(Row(f"{value}; share of runs that end there", f"{spread}; {share}"))
        return rows

    def height(self, sizes: Sizes) -> float:
        return 5.9

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        parts = figure.add_gridspec(2, 1, height_ratios=(3.6, 2.3))
        upper, lower = (figure.add_subfigure(parts[i, 0]) for i in range(2))
        axes = upper.subplots(3, 1, sharex=True, height_ratios=(2, 2, 1.4), subplot_kw=DATA)
        panels = (("frobenius", "rank, Frobenius"), ("nuclear", "rank, nuclear"), ("feasible", "feasible"))
        for axis, (name, title) in zip(axes, panels, strict=True):
            for values, (shape, line) in zip(found[name], shape_lines(sizes["shapes"]), strict=True):
                axis.plot(sizes["dims"], values, **line, label=shape)
            axis.set_ylabel(title)
            axis.set_ylim(bottom=0)
        axes[1].sharey(axes[0])
        axes[-1].set_xlabel("dimension d")
        axes[-1].set_ylim(-0.05, 1.05)
        upper.align_ylabels(axes)
        style.legend_above(axes[0], 2)
        values, reached = lower.subplots(2, 1, sharex=True, height_ratios=(2, 1.2), subplot_kw=DATA)
        columns = np.array(sizes["columns"]["m"])
        style.spread(values, columns, found["columns value"], style.BLUE, "-", "", marker="o", markersize=3.5)
        values.axhline(1.0, color=style.INK, linewidth=0.6, linestyle=":")
        values.set_ylabel("value / nuclear")
        values.set_ylim(0.9, 1.05 * np.quantile(found["columns value"], 0.9, axis=1).max())
        reached.bar(columns, _shares(sizes, found), 0.5, color=style.BLUE)
        reached.grid(False, axis="x")
        reached.set_ylabel("runs there")
        reached.set_ylim(0, 1.05)
        reached.set_xticks(columns)
        reached.set_xlabel("columns m of K and Q")
        lower.align_ylabels([values, reached])


def _shares(sizes: Sizes, found: Arrays) -> np.ndarray:
    """For each m, the share of the decided runs that end at the Att-SVM of this rank."""
    decided = ~found["columns undecided"]
    there = decided & (found["columns error"] < sizes["error_below"])
    return np.asarray(there.sum(axis=1) / np.maximum(decided.sum(axis=1), 1))


FIGURES.register(RankFigure.name, RankFigure())
