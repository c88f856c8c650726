"""The regularisation path and the training run, compared at equal norms."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.pages import number
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import median_of, undecided
from attsvm.plot import style
from attsvm.regularization import regularization_path
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.training import train

RECORDS = 24
# the path to a local direction is restricted to this cone around it
CORRELATION = 0.99


def _measured(sizes: Sizes) -> Arrays:
    problem = random_problem(sizes["n"], sizes["T"], sizes["d"], sizes["seed"], batch=(sizes["seeds"],))
    optimizer = normalized_gradient_descent(lambda k: 0.1 * (1 + k / 100))
    run = train(problem, steps=sizes["steps"], record=RECORDS, optimizer=optimizer)
    trained = run.history["weights"][1:]
    lengths = np.linalg.norm(trained, axis=(-2, -1))
    solution = solve_svm(problem, run.selected)
    at_best = (run.selected == optimal_tokens(problem)).all(axis=-1)
    followed = []
    for i in range(sizes["seeds"]):
        cone = None if at_best[i] else (solution.direction[i], CORRELATION)
        followed.append(regularization_path(problem[i], lengths[:, i], cone=cone))
    weights = np.stack([path.weights for path in followed], axis=1)
    return {
        "norm": lengths,
        "at_best": at_best,
        "undecided": undecided(run.probability),
        "converged": np.stack([path.solved for path in followed], axis=1),
        "error run": np.asarray(direction_error(trained, solution.direction, axis=(-2, -1))),
        "error path": np.asarray(direction_error(weights, solution.direction, axis=(-2, -1))),
        "apart": np.asarray(direction_error(trained, weights, axis=(-2, -1))),
    }


class PathFigure(Figure):
    name = "path"
    paper = Paper.OURS
    order = 2
    title = "The regularisation path and the training run"
    seconds = 20
    claim = (
        "Gradient descent from W = 0 and the minimisers of the loss in balls of the same norm start in the same "
        "direction, differ in between, and end in the same direction: the Att-SVM of the tokens that the run selects. "
        "Runs that end at non-optimal tokens are compared with the minimisers in a cone around their limit. (Median "
        "and 10-90 % range over the seeds, at equal norms. Path and run: direction error to that Att-SVM.)"
    )
    criterion = (
        "Every run is decided and every radius of a path converged. At the end, path and run are within the stated "
        "direction error of the Att-SVM and of each other. A run that ends at the optimal tokens is within 1e-2 of "
        "its path at the first record."
    )
    full: ClassVar[Sizes] = {"n": 6, "T": 8, "d": 10, "seeds": 20, "steps": 20_000, "seed": 0, "error_below": 1e-6}
    quick: ClassVar[Sizes] = {**full, "seeds": 3, "steps": 5_000, "error_below": 1e-4}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return piece("path", _measured, dict(sizes))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        ends = {name: float(found[name][-1].max()) for name in ("error run", "error path", "apart")}
        passed = {
            "a run is undecided": not found["undecided"].any(),
            "a radius of a path did not converge": found["converged"].all(),
            "a path does not end at the Att-SVM": ends["error path"] < sizes["error_below"],
            "a run does not end at the Att-SVM": ends["error run"] < sizes["error_below"],
            "a path and its run do not end in the same direction": ends["apart"] < sizes["error_below"],
            "a run to optimal tokens and its path do not start in the same direction": float(
                found["apart"][0][found["at_best"]].max(initial=0.0)
            )
            < 1e-2,
        }
        away = int((~found["at_best"]).sum())
        return verdict(
            passed,
            f"Largest direction errors at the end: path to Att-SVM {ends['error path']:.1e}, run to Att-SVM "
            f"{ends['error run']:.1e}, run to path {ends['apart']:.1e}. {away} of {sizes['seeds']} runs end at "
            f"non-optimal tokens and are compared with a path in a cone.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        middle = found["apart"].max(axis=0)
        return [
            Row("runs that end at the optimal tokens", f"{int(found['at_best'].sum())} of {sizes['seeds']}"),
            Row("norm at the end: median", number(median_of(found["norm"][-1]))),
            Row("run to path, largest error over the run: median", number(median_of(middle))),
            Row("run to path, at the end: median", number(median_of(found["apart"][-1]))),
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = style.panel(r"$\|W\|_F$", "direction error", 2.5, log=True)
        best = found["at_best"]
        for name, label, which, colour, dashes in (
            ("error path", "path", best, style.BLUE, "-"),
            ("error run", "run", best, style.VERMILLION, "--"),
            ("apart", "run to path", best, style.GREEN, "-."),
            ("apart", "run to path, in a cone", ~best, style.PURPLE, ":"),
        ):
            if not which.any():
                continue
            lengths = np.median(found["norm"][:, which], axis=1)
            style.spread(axis, lengths, found[name][:, which], colour, dashes, label)
        style.legend_above(axis, 2)
        return figure


FIGURES.register(PathFigure.name, PathFigure())
