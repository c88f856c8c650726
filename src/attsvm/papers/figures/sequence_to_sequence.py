"""A query at every position: self-attention over whole sequences, and causal self-attention."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.papers.drawing import panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import compared, median_of, numbers, with_names
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.regularization import regularization_path
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.training import train

KINDS = ("whole", "causal")
NORMS = {"combined": "frobenius", "factored": "nuclear"}
NAMES = {"combined": "W", "factored": "(K, Q)"}
LINES = {"whole": (style.BLUE, "-"), "causal": (style.VERMILLION, "--")}


def self_attention(n: int, T: int, d: int, seed: int, runs: int, causal: bool) -> Problem:
    """Random problems in which every token is also a query with its own label."""
    data = random_problem(n, T, d, seed, num_queries=T, batch=(runs,), self_attention=True)
    mask = np.broadcast_to(np.tril(np.ones((T, T), dtype=bool)), (n, T, T)) if causal else None
    return Problem(data.tokens, labels=data.labels, queries=data.queries, head=data.head, mask=mask)


def _run(kind: str, attention: str, n: int, T: int, d: int, seed: int, runs: int, steps: int) -> Arrays:
    problem = self_attention(n, T, d, seed, runs, kind == "causal")
    optimizer = limit_optimizer(attention, steps)
    run = train(problem, attention=attention, steps=steps, record=60, seed=seed, optimizer=optimizer)
    return compared(problem, run, NORMS[attention])


def _path(kind: str, attention: str, n: int, T: int, d: int, seed: int, problems: int, radii: list[float]) -> Arrays:
    """The path at multiples of the value of the Att-SVM of the optimal tokens."""
    problem = self_attention(n, T, d, seed, problems, kind == "causal")
    solution = solve_svm(problem, optimal_tokens(problem), NORMS[attention])
    values = np.nan_to_num(np.asarray(solution.value), nan=1.0)
    paths = [
        regularization_path(problem[i], value * np.array(radii), attention=attention) for i, value in enumerate(values)
    ]
    weights = np.stack([path.weights for path in paths], axis=1)
    return {
        "path": np.asarray(direction_error(weights, np.nan_to_num(solution.direction), axis=(-2, -1))),
        "solved": np.stack([path.solved for path in paths], axis=1),
    }


class SequenceToSequence(Figure):
    name = "sequence-to-sequence"
    paper = Paper.TRANSFORMERS
    order = 8
    title = "A query at every position: whole and causal sequences"
    seconds = 90
    claim = (
        "With one query and one label at every position, W converges to the Frobenius Att-SVM of all selected tokens, "
        "and (K, Q) to the nuclear one, by training (left) and along the regularisation path (right, where radii are "
        "multiples of the value of the Att-SVM of the optimal tokens). (Median and 10-90 % range.)"
    )
    criterion = (
        "Nine in ten runs end decided (no dropped probability above 1e-6), and their selections are feasible. The "
        "direction error of every decided run of W, and of nine in ten of (K, Q), is below the stated one. Every "
        "radius of a path is solved, and every path ends within the stated direction error of the Att-SVM of the "
        "optimal tokens."
    )
    full: ClassVar[Sizes] = {
        "n": 4,
        "T": 5,
        "d": 20,
        "runs": {"combined": 100, "factored": 12},
        "steps": {"combined": 20_000, "factored": 40_000},
        "seed": 0,
        "error_below": {"combined": 1e-6, "factored": 1e-3},
        "path": {"shape": [3, 4, 12], "problems": 3, "radii": [1, 10, 100, 1e3, 1e4], "error_below": 1e-6},
    }
    quick: ClassVar[Sizes] = {
        **full,
        "n": 2,
        "T": 3,
        "d": 6,
        "runs": {"combined": 4, "factored": 2},
        "steps": {"combined": 3_000, "factored": 6_000},
        "error_below": {"combined": 1e-4, "factored": 1e-2},
        "path": {"shape": [2, 3, 6], "problems": 1, "radii": [1, 100, 1e4], "error_below": 1e-6},
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        found, path = {}, sizes["path"]
        for attention in NORMS:
            shape = [sizes[name] for name in ("n", "T", "d", "seed")]
            arguments = (*shape, sizes["runs"][attention], sizes["steps"][attention])
            of_path = (*path["shape"], sizes["seed"], path["problems"], path["radii"])
            for kind in KINDS:
                run = piece(f"{kind}-{attention}", _run, kind, attention, *arguments)
                follow = piece(f"path-{kind}-{attention}", _path, kind, attention, *of_path)
                found[f"{kind} {attention}"] = run | follow
        return joined(found)

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        passed: dict[str, Any] = {}
        worst, left = {}, 0
        needed = {"combined": 1.0, "factored": 0.9}
        for attention, name in NAMES.items():
            for kind in KINDS:
                case, summary = f"{kind} {attention}", f"{kind}, {name}"
                decided = ~found[f"undecided {case}"]
                left += int(found[f"undecided {case}"].sum())
                ends = found[f"error {case}"][-1][decided]
                worst[summary] = ends.max(initial=0.0)
                there = np.mean(ends < sizes["error_below"][attention]) if ends.size else 0.0
                passed[f"{summary}: decided runs do not end at their Att-SVM"] = there >= needed[attention]
                passed[f"{summary}: more than a tenth of the runs are undecided"] = decided.mean() >= 0.9
                passed[f"{summary}: a selection is infeasible"] = found[f"feasible {case}"][decided].all()
                passed[f"{summary}: a path does not end at the Att-SVM"] = (
                    found[f"path {case}"][-1].max() < sizes["path"]["error_below"]
                )
                passed[f"{summary}: a radius of a path is not solved"] = found[f"solved {case}"].all()
        summary = with_names(worst)
        paths = max(float(found[f"path {kind} {attention}"][-1].max()) for kind in KINDS for attention in NORMS)
        return verdict(
            passed,
            f"Largest direction error of the decided runs: {summary}; of the paths: {paths:.1e}. Undecided runs:"
            f" {left}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"{kind}, {name}: median direction error at the end, runs / paths",
                numbers(median_of(found[f"{key} {kind} {attention}"][-1]) for key in ("error", "path")),
            )
            for attention, name in NAMES.items()
            for kind in KINDS
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axes = panels(3.5, 2, 2, sharey=True, sharex="col")
        radii = np.array(sizes["path"]["radii"])
        for row, (attention, name) in zip(axes, NAMES.items(), strict=True):
            for kind, (colour, dashes) in LINES.items():
                case = f"{kind} {attention}"
                style.spread(row[0], found[f"steps {case}"], found[f"error {case}"], colour, dashes, kind)
                style.spread(row[1], radii, found[f"path {case}"], colour, dashes, kind, marker="o", markersize=3)
            row[0].set_ylabel(f"direction error, {name}")
        for axis, label in zip(axes[-1], ("steps", "radius / value"), strict=True):
            set_axes(axis, label, log="xy")
        style.legend_above(axes[0, 0], 2)
        return figure


FIGURES.register(SequenceToSequence.name, SequenceToSequence())
