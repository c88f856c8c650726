"""A query at every position: self-attention over whole sequences, and causal self-attention."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.problem import Problem
from attsvm.report import style
from attsvm.report.words import number
from attsvm.reproduce.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.reproduce.figures import FIGURES
from attsvm.svm import solve_svm
from attsvm.training import train

KINDS = ("whole", "causal")
SATURATED = 1e-6


def self_attention(n: int, T: int, d: int, seed: int, runs: int, causal: bool) -> Problem:
    """Random problems in which every token is also a query with its own label."""
    data = random_problem(n, T, d, seed, num_queries=T, batch=(runs,))
    mask = np.broadcast_to(np.tril(np.ones((T, T), dtype=bool)), (n, T, T)) if causal else None
    return Problem(data.tokens, labels=data.labels, queries=data.tokens, head=data.head, mask=mask)


def _run(kind: str, n: int, T: int, d: int, seed: int, runs: int, steps: int) -> Arrays:
    problem = self_attention(n, T, d, seed, runs, kind == "causal")
    # the direction error falls like 1/‖W‖, so growing steps need fewer of them
    optimizer = normalized_gradient_descent(lambda step: 0.1 * (1 + step / 100))
    run = train(problem, steps=steps, record=60, optimizer=optimizer)
    solution = solve_svm(problem, run.selected)
    weights = run.history["weights"][1:]
    return {
        "steps": run.history["steps"][1:],
        "error": direction_error(weights, solution.direction, axis=(-2, -1)),
        "undecided": (1 - run.probability).max(axis=(-2, -1)) > SATURATED,
        "feasible": np.asarray(solution.status) == "optimal",
    }


class SequenceToSequence(Figure):
    """A query at every position: whole and causal sequences."""

    name = "sequence-to-sequence"
    paper = Paper.TRANSFORMERS
    order = 8
    title = "A query at every position: whole and causal sequences"
    claim = (
        "With one query and one label at every position, W still converges to the Att-SVM of all selected tokens "
        "(median and 10-90 % range)."
    )
    criterion = (
        "Nine in ten runs end decided (no dropped probability above 1e-6). Their selections are feasible, and the "
        "direction error of every decided run is below the stated one."
    )
    full: ClassVar[Sizes] = {"n": 4, "T": 5, "d": 20, "runs": 100, "steps": 20_000, "seed": 0, "error_below": 1e-6}
    quick: ClassVar[Sizes] = {**full, "runs": 4, "steps": 3_000, "error_below": 1e-4}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        arguments = [sizes[name] for name in ("n", "T", "d", "seed", "runs", "steps")]
        found = {kind: piece(kind, _run, kind, *arguments) for kind in KINDS}
        return joined(found)

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        passed, worst, left = {}, {}, 0
        for kind in KINDS:
            decided = ~found[f"undecided {kind}"]
            left += int(found[f"undecided {kind}"].sum())
            worst[kind] = found[f"error {kind}"][-1][decided].max(initial=0.0)
            passed[f"{kind}: a decided run does not end at its Att-SVM"] = bool(worst[kind] < sizes["error_below"])
            passed[f"{kind}: more than a tenth of the runs are undecided"] = bool(decided.mean() > 0.9)
            passed[f"{kind}: a selection is infeasible"] = bool(found[f"feasible {kind}"][decided].all())
        told = ", ".join(f"{error:.1e} ({kind})" for kind, error in worst.items())
        return verdict(passed, f"Largest direction error of the decided runs: {told}. {left} runs are undecided.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(f"{kind}: median direction error at the end", number(float(np.median(found[f"error {kind}"][-1]))))
            for kind in KINDS
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = style.panel("steps", "direction error", 2.4, log=True)
        for kind, colour, dashes in zip(KINDS, (style.BLUE, style.VERMILLION), ("-", "--"), strict=True):
            steps, errors = found[f"steps {kind}"], found[f"error {kind}"]
            style.spread(axis, steps, errors, colour, dashes, f"{kind} sequence")
        style.legend_above(axis, 2)
        return figure


FIGURES.register(SequenceToSequence.name, SequenceToSequence())
