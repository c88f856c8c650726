"""A one-layer transformer: attention, value matrix and MLP, with more and more of it trained."""

from typing import ClassVar, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm._utils.linear_algebra import unit_vectors
from attsvm.heads import MLP, ValueMLP
from attsvm.pages import number
from attsvm.papers.drawing import legend_over, outer_axes, panels
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.nonlinear_head import PREDICTIONS, draw_errors, errors_of_runs_that_count
from attsvm.papers.judging import median_of, numbers
from attsvm.papers.longer_steps import longer_steps
from attsvm.problem import Problem
from attsvm.training import train


class TrainedParts(NamedTuple):
    """The parameters that keep their initial values, and the power with which the steps of W grow."""

    fixed: tuple[str, ...]
    power: float


WAYS = {
    "W": TrainedParts(("value", "hidden", "output"), 0.0),
    "W, V": TrainedParts(("hidden", "output"), 0.0),
    "W, V, MLP": TrainedParts((), 0.0),
    "W, V, MLP, W faster": TrainedParts((), 3.0),
}
"""The output of V and MLP is of degree 3: with equal steps it grows with the third power of W."""

TITLES = dict(zip(WAYS, ("W trained", "W and V trained", "W, V and MLP trained", "the same, W faster"), strict=True))
FIXED_MLP = ("W", "W, V")
EQUAL, FASTER = "W, V, MLP", "W, V, MLP, W faster"


def _candidates(sizes: list[int], number: int, seed: int) -> tuple[Problem, ValueMLP, np.ndarray]:
    """Problems without a linear head, with labels of both signs, their heads, and starts of W."""
    n, T, d, width = sizes
    generator = np.random.default_rng(seed)
    hidden = generator.standard_normal((number, width, d))
    hidden /= np.linalg.norm(hidden, axis=(-2, -1), keepdims=True)
    value = generator.normal(scale=d**-0.5, size=(number, d, d))
    output = generator.choice([-1.0, 1.0], size=(number, width))
    labels = generator.choice([-1.0, 1.0], size=(number, n))
    while (same := (labels == labels[:, :1]).all(axis=-1)).any():
        labels[same] = generator.choice([-1.0, 1.0], size=(int(same.sum()), n))
    tokens, queries = unit_vectors(generator, number, n, T, d), unit_vectors(generator, number, n, d)
    problem = Problem(tokens, labels=labels, queries=queries)
    start = generator.uniform(-(d**-0.5), d**-0.5, size=(number, d, d))
    return problem, ValueMLP(value, MLP(hidden, output)), start


def _way(name: str, sizes: list[int], number: int, seed: int, steps: int) -> Arrays:
    """Direction errors of the runs that count: decided, with a token dropped, and feasible."""
    problem, head, start = _candidates(sizes, number, seed)
    way = WAYS[name]
    run = train(
        problem,
        head=head,
        train_head=True,
        fixed=way.fixed,
        init={"W": start},
        optimizer=longer_steps(0.1, "W", way.power),
        steps=steps,
        record=30,
    )
    found, decided = errors_of_runs_that_count(problem, run)
    return found | {"decided": decided}


class OneLayerTransformer(Figure):
    name = "one-layer-transformer"
    paper = Paper.TRANSFORMERS
    order = 6.5
    title = "A one-layer transformer: attention, value matrix and MLP"
    seconds = 15
    claim = (
        "With a fixed MLP, W behaves like W_fin + R·W_mm for the kept tokens, whether the value matrix V is trained or "
        "not. If the MLP is trained as well, with steps of equal length, the output of V and MLP outgrows W, and W "
        "ends away from this prediction. If the steps of W grow, so that W outgrows them, W converges to the Att-SVM, "
        "with one token per sequence in nearly every run. (Mean direction errors over the runs that count.)"
    )
    criterion = (
        "With a fixed MLP the combined prediction has the smallest mean error, and a median below the stated one in "
        "the most saturated runs; some runs keep several tokens. With a trained MLP and equal steps the median error "
        "is ten times that with V trained. With longer steps of W every run is decided, at most one in 20 keeps "
        "several tokens, and the median error is below the stated one. Runs count if every probability is above 1e-3 "
        "or below 1e-6, some token is dropped, and the selections are feasible."
    )
    full: ClassVar[Sizes] = {
        "n, T, d, width": [3, 4, 6, 8],
        "trained": list(WAYS),
        "candidates": 600,
        "seed": 0,
        "steps": 2_000,
        "far_below": 1e-20,
        "error_below": 1e-2,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "n, T, d, width": [3, 3, 4, 4],
        "trained": ["W, V", EQUAL, FASTER],
        "candidates": 200,
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        arguments = (sizes["n, T, d, width"], sizes["candidates"], sizes["seed"], sizes["steps"])
        return joined(each(piece, sizes["trained"], _way, *arguments))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        ways = sizes["trained"]
        fixed = [name for name in FIXED_MLP if name in ways]
        ends = {name: {key: found[f"{key} {name}"][-1] for key in PREDICTIONS} for name in ways}
        mean = {name: {key: float(end.mean()) for key, end in ends[name].items()} for name in ways}
        median = {name: median_of(ends[name]["combined"]) for name in ways}
        several = {name: float(found[f"several {name}"].mean()) for name in ways}
        saturated = [ends[name]["combined"][found[f"dropped {name}"] < sizes["far_below"]] for name in fixed]
        passed = {
            "with a fixed MLP, another prediction has a smaller mean error": all(
                mean[name]["combined"] < min(mean[name]["direction"], mean[name]["one token"]) for name in fixed
            ),
            "with a fixed MLP, the most saturated runs are not close to the prediction": all(
                errors.size > 0 and np.median(errors) < sizes["error_below"] for errors in saturated
            ),
            "with a fixed MLP, no run keeps several tokens": all(several[name] > 0 for name in fixed),
            "with a trained MLP and equal steps, W ends at the prediction": median[EQUAL] > 10 * median["W, V"],
            "with longer steps of W, a run is not decided": found[f"decided {FASTER}"].all(),
            "with longer steps of W, many runs keep several tokens": several[FASTER] <= 0.05,
            "with longer steps of W, W does not end at the Att-SVM": median[FASTER] < sizes["error_below"],
        }
        summary = "; ".join(f"{name}: {median[name]:.1e} ({several[name]:.0%})" for name in ways)
        return verdict(
            passed,
            "Median error of the combined prediction, and runs that keep several tokens, by what is trained:"
            f" {summary}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for name in sizes["trained"]:
            ends = [found[f"{key} {name}"][-1] for key in PREDICTIONS]
            several = found[f"several {name}"]
            of_several = " / ".join(number(float(end[several].mean())) if several.any() else "none" for end in ends)
            rows += [
                Row(f"{name}: mean error, combined / direction / one token", numbers(end.mean() for end in ends)),
                Row(f"{name}: the same, runs that keep several tokens", of_several),
                Row(f"{name}: random problems that count", f"{several.size / found[f'decided {name}'].size:.0%}"),
            ]
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axes = panels(3.7, 2, 2, sharex=True, sharey=True)
        for axis in axes.flat[len(sizes["trained"]) :]:
            axis.set_axis_off()
        for axis, name in zip(axes.flat, sizes["trained"], strict=False):
            draw_errors(axis, found, name)
            axis.set_title(TITLES[name], pad=3)
        outer_axes(axes, "steps", "direction error")
        legend_over(figure, axes[0, 0], 3, columnspacing=1.2)
        return figure


FIGURES.register(OneLayerTransformer.name, OneLayerTransformer())
