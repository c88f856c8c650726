"""The rank of Frobenius and nuclear Att-SVM solutions."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.report import style
from attsvm.reproduce.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, verdict
from attsvm.reproduce.figures import FIGURES
from attsvm.reproduce.grid import GRID_LINES, label
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm

NORMS = ("frobenius", "nuclear")
BELOW = 1e-6
"""Singular values below this fraction of the largest count as zero."""

ROOMY = 10
"""The smallest dimension in which the two ranks must differ clearly."""


def _ranks(n: int, T: int, d: int, number: int, seed: int) -> Arrays:
    problem = random_problem(n, T, d, seed, batch=(number,))
    selected = optimal_tokens(problem)
    found: Arrays = {}
    for norm in NORMS:
        solution = solve_svm(problem, selected, norm)
        singular = np.linalg.svd(np.nan_to_num(solution.direction), compute_uv=False)
        found[norm] = np.sum(singular > BELOW * singular[..., :1], axis=-1)
        found[f"{norm}_feasible"] = np.asarray(solution.status) != "infeasible"
        found[f"{norm}_gap"] = np.nan_to_num(solution.gap)
    return found


class Rank(Figure):
    """Rank of the Frobenius and nuclear solutions."""

    name = "rank"
    paper = Paper.TRANSFORMERS
    order = 2
    title = "Rank of the Frobenius and nuclear solutions"
    claim = (
        "Both solutions have rank at most min(n, d). The nuclear solution, to which training K and Q converges, has "
        "the lower rank."
    )
    criterion = (
        "Over the feasible problems (infeasible ones have no solution): no mean rank exceeds min(n, d); the nuclear "
        "mean never exceeds the Frobenius mean, and is at most 0.8 of it for d ≥ 10; all duality gaps are at most "
        "1e-8."
    )
    full: ClassVar[Sizes] = {
        "shapes": [[5, 5], [5, 10], [5, 15], [10, 5], [15, 5]],
        "dims": [1, 2, 3, 4, 5, 10, 15, 20],
        "problems": 100,
        "seed": 0,
    }
    quick: ClassVar[Sizes] = {"shapes": [[5, 5], [5, 10]], "dims": [2, 5, 10], "problems": 10, "seed": 0}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = len(sizes["shapes"]), len(sizes["dims"])
        arrays = {
            name: np.full(shape, np.nan) for name in (*NORMS, "nuclear_largest", "feasible", "gap", "disagreeing")
        }
        for i, (n, T) in enumerate(sizes["shapes"]):
            for j, d in enumerate(sizes["dims"]):
                found = piece(f"n{n}-T{T}-d{d}", _ranks, n, T, d, sizes["problems"], sizes["seed"])
                # an infeasible problem has no solution
                kept = found["frobenius_feasible"] & found["nuclear_feasible"]
                arrays["feasible"][i, j] = kept.mean()
                arrays["disagreeing"][i, j] = (found["frobenius_feasible"] != found["nuclear_feasible"]).sum()
                arrays["gap"][i, j] = max(found[f"{norm}_gap"].max() for norm in NORMS)
                if kept.any():
                    arrays["nuclear_largest"][i, j] = found["nuclear"][kept].max()
                    for norm in NORMS:
                        arrays[norm][i, j] = found[norm][kept].mean()
        return arrays

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        there = np.isfinite(found["frobenius"])
        bound = np.array([[min(n, d) for d in sizes["dims"]] for n, _ in sizes["shapes"]])
        lower = (found["nuclear"] <= found["frobenius"])[there]
        # in low dimensions both have nearly full rank
        roomy = there & (np.array(sizes["dims"]) >= ROOMY)
        passed = {
            "in some case the nuclear solution has the larger mean rank": bool(lower.all()),
            "a rank exceeds min(n, d)": bool((found["frobenius"] <= bound)[there].all()),
            "the nuclear solutions are not clearly of lower rank": bool(
                (found["nuclear"] <= 0.8 * found["frobenius"])[roomy].all() and roomy.any()
            ),
            "the norms disagree on which problems are feasible": not found["disagreeing"].any(),
            "a solution is inaccurate": bool(found["gap"].max() <= 1e-8),
        }
        largest = np.nanmax(found["nuclear_largest"])
        return verdict(passed, f"The largest rank of a nuclear solution is {largest:.0f}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for i, (n, T) in enumerate(sizes["shapes"]):
            j = len(sizes["dims"]) - 1
            ranks = " and ".join(f"{found[norm][i, j]:.2f} ({norm})" for norm in NORMS)
            rows.append(
                Row(
                    f"n = {n}, T = {T}, d = {sizes['dims'][j]}: mean rank",
                    f"{ranks}; {found['feasible'][i, j]:.0%} feasible",
                )
            )
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure = Drawing(figsize=(style.WIDTH, 3.6))
        axes = figure.subplots(3, 1, sharex=True, height_ratios=(2, 2, 1.4))
        panels = (("frobenius", "rank, Frobenius"), ("nuclear", "rank, nuclear"), ("feasible", "feasible"))
        for axis, (name, title) in zip(axes, panels, strict=True):
            for (n, T), values, line in zip(sizes["shapes"], found[name], GRID_LINES, strict=False):
                axis.plot(sizes["dims"], values, **line, label=label(n, T))
            axis.set_ylabel(title)
            axis.set_ylim(bottom=0)
        axes[1].sharey(axes[0])
        axes[-1].set_xlabel("dimension d")
        axes[-1].set_ylim(-0.05, 1.05)
        figure.align_ylabels(axes)
        style.legend_above(axes[0], 2)
        return figure


FIGURES.register(Rank.name, Rank())
