"""Class labels: two classes are labels ±1, and more of them keep several tokens."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.papers.drawing import LINES, legend_over, outer_axes, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import median_of, numbers
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.svm import solve_svm
from attsvm.theory import predict_direction
from attsvm.training import Run, train

RATE = 0.03
"""Longer steps oscillate around the minimum."""
CHECKED = ("drops", "separable", "minimum", "attainable", "kept_apart", "locally_optimal")
"""The hypotheses of the prediction that a run has to meet."""
SMALL = 1e-4
"""The largest error where single tokens are kept."""
WITHOUT, WHOLE, SINGLE = "W − W_fin", "W", "W to one token"
ERRORS = {WITHOUT: LINES[0], WHOLE: LINES[2], SINGLE: LINES[1]}
"""The errors that are compared."""


def _problem(num_classes: int, sizes: Sizes) -> Problem:
    n, T, d, number = (sizes[name] for name in ("n", "T", "d", "problems"))
    generator = np.random.default_rng([sizes["seed"], num_classes])
    tokens, queries = generator.standard_normal((number, n, T, d)), generator.standard_normal((number, n, d))
    head = generator.standard_normal((number, num_classes, d))
    return Problem(tokens, generator.integers(num_classes, size=(number, n)), queries, head)


def _trained(problem: Problem, loss: str, steps: int) -> Run:
    return train(problem, loss=loss, optimizer=normalized_gradient_descent(RATE), steps=steps, record=40)


def _measured(num_classes: int, sizes: Sizes) -> Arrays:
    """Direction errors to the Att-SVM of what is kept; with two classes, from runs with labels ±1, too."""
    problem = _problem(num_classes, sizes)
    run = _trained(problem, "cross_entropy", sizes["steps"])
    steps, weights = run.history["steps"][1:], run.history["weights"][1:]
    found = [predict_direction(problem[i], run[i]) for i in range(sizes["problems"])]
    direction = np.stack([np.asarray(one.direction) for one in found])
    arrays = {"steps": steps, WHOLE: np.asarray(direction_error(weights, direction, axis=(-2, -1)))}
    if num_classes == 2:
        twin = _trained(problem.binary, "logistic", sizes["steps"])
        return arrays | {"twin": np.asarray(direction_error(run.weights, twin.weights, axis=(-2, -1)))}
    finite = np.stack([np.asarray(one.finite) for one in found])
    single = np.nan_to_num(solve_svm(problem, run.selected).direction)
    return arrays | {
        WITHOUT: np.asarray(direction_error(weights - finite, direction, axis=(-2, -1))),
        SINGLE: np.asarray(direction_error(weights, single, axis=(-2, -1))),
        "several": np.array([(one.selected.sum(axis=-1) > 1).any() for one in found]),
        "holds": np.array([all(row.holds is True for row in one.hypotheses if row.name in CHECKED) for one in found]),
    }


class Classes(Figure):
    name = "classes"
    paper = Paper.OURS
    order = 6.7
    title = "Several classes keep several tokens"
    seconds = 30
    claim = (
        "With C ≥ 3 classes and the cross-entropy, a query may keep several tokens, the support of a convex minimum. "
        "W behaves like W_fin + R·W_mm, a finite part and the Att-SVM of these sets. The Att-SVM of the token of "
        "largest logit is another direction. Two classes are as labels ±1 and keep one token. (Runs that keep several "
        "tokens: median error to the Att-SVM of the sets of W − W_fin and of W, and to that of one token of W, with "
        "10-90 % ranges.)"
    )
    criterion = (
        "Runs count if the hypotheses of the prediction hold, and a query keeps several tokens. For each C ≥ 3 the "
        "hypotheses hold in at least three quarters of all runs, and half of them count. Their median error of "
        "W − W_fin is at most the stated one, below that of W, at most a quarter of that to the Att-SVM of one token, "
        "and below that after a tenth of the steps. Where only single tokens are kept, and with two classes, every "
        "error is at most 1e-4; runs with two classes and with labels ±1 have the same direction up to 1e-9."
    )
    ascending: ClassVar = ("classes",)
    full: ClassVar[Sizes] = {
        "classes": [2, 3, 4, 10],
        "n": 3,
        "T": 4,
        "d": 8,
        "problems": 60,
        "steps": 50_000,
        "seed": 110_013,
        "error_below": 0.03,
    }
    quick: ClassVar[Sizes] = {**full, "classes": [2, 4], "problems": 8, "steps": 20_000, "error_below": 0.05}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        own = {name: sizes[name] for name in sizes if name not in ("classes", "error_below")}
        return joined(each(piece, sizes["classes"], _measured, own))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        passed, words = dict[str, Any](), list[str]()
        for C in sizes["classes"]:
            ends = found[f"{WHOLE} {C}"][-1]
            if C == 2:
                apart = found["twin 2"].max()
                passed["2 classes: an error exceeds 1e-4"] = ends.max() <= SMALL
                passed["2 classes: labels ±1 have another direction"] = apart <= 1e-9
                words.append(f"With 2 classes, the largest error is {ends.max():.1e}")
                continue
            holds, several = found[f"holds {C}"], found[f"several {C}"]
            counts, single = holds & several, holds & ~several
            passed |= {
                f"{C} classes: the hypotheses fail in more than a quarter of the runs": holds.mean() >= 0.75,
                f"{C} classes: too few runs keep several tokens": counts.mean() >= 0.5,
                f"{C} classes: a run that keeps single tokens ends elsewhere": (ends[single] <= SMALL).all(),
            }
            if not counts.any():
                continue
            without, whole, one = (median_of(found[f"{name} {C}"][-1][counts]) for name in ERRORS)
            steps = found[f"steps {C}"]
            early = median_of(found[f"{WITHOUT} {C}"][np.searchsorted(steps, steps[-1] / 10)][counts])
            passed |= {
                f"{C} classes: the error is too large": without <= sizes["error_below"],
                f"{C} classes: the error of W is as small": without < whole,
                f"{C} classes: one token is as near": without <= one / 4,
                f"{C} classes: the error does not fall": without < early,
            }
            words.append(f"with {C}, the median is {without:.1e} over {int(counts.sum())} of {counts.size} runs")
        return verdict(passed, f"{'; '.join(words)}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for C in sizes["classes"]:
            ends = {name: found[f"{name} {C}"][-1] for name in ERRORS if f"{name} {C}" in found}
            if C == 2:
                rows.append(
                    Row("2 classes: median / largest error", numbers((median_of(ends[WHOLE]), ends[WHOLE].max())))
                )
                continue
            counts = found[f"holds {C}"] & found[f"several {C}"]
            if counts.any():
                medians = numbers(median_of(ends[name][counts]) for name in ERRORS)
                rows.append(Row(f"{C} classes: median error of W − W_fin / W / to one token", medians))
                largest = numbers((ends[WITHOUT][counts].max(), ends[WITHOUT].max()))
                rows.append(Row(f"{C} classes: largest error of W − W_fin, runs that count / all", largest))
            shares = f"{int(found[f'holds {C}'].sum())} / {int(counts.sum())} of {counts.size}"
            rows.append(Row(f"{C} classes: runs whose hypotheses hold / that count", shares))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        number = len(sizes["classes"])
        figure, axes = panels(0.4 + 1.7 * ((number + 1) // 2), (number + 1) // 2, 2, sharex=True, squeeze=False)
        for C, axis in zip(sizes["classes"], axes.flat, strict=False):
            counts = found[f"holds {C}"] & found[f"several {C}"] if C > 2 else ...
            for name, (colour, dashes) in ERRORS.items():
                if f"{name} {C}" in found:
                    style.spread(axis, found[f"steps {C}"], found[f"{name} {C}"][:, counts], colour, dashes, name)
            axis.set_title(f"{C} classes")
            set_axes(axis, log="xy")
        for axis in axes.flat[number:]:
            axis.set_visible(False)
        outer_axes(axes, "steps", "direction error")
        legend_over(figure, axes.flat[number - 1], 3)
        return figure


FIGURES.register(Classes.name, Classes())
