"""Where a prompt goes on several sequences, and how fast, by normalised and by plain gradient descent."""

import numpy as np
from matplotlib.figure import Figure

from attsvm.datasets.papers import several_sequences
from attsvm.measures import direction_error
from attsvm.optimizers import gradient_descent, normalized_gradient_descent
from attsvm.report import style
from attsvm.report.fit.words import number
from attsvm.reproduce.figure import Arrays, Experiment, Paper, Piece, Row, Sizes, Verdict, verdict
from attsvm.reproduce.figures.prompt_one_sequence import draw_paths
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.training import train

STARTS = np.array([[x, 0.0, 0.0] for x in (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)])
OPTIMIZERS = {
    "normalised GD": lambda: normalized_gradient_descent(0.1),
    "GD": lambda: gradient_descent(1.0),
}


def _run(name: str, steps: int) -> Arrays:
    problem = several_sequences()
    best = optimal_tokens(problem)
    direction = solve_svm(problem, best).direction
    run = train(problem, steps=steps, init=STARTS, record=120, optimizer=OPTIMIZERS[name]())
    norms = np.linalg.norm(run.history["weights"], axis=-1)
    with np.errstate(invalid="ignore"):
        errors = direction_error(run.history["weights"][1:], direction, axis=-1)
    return {
        "steps": run.history["steps"],
        "paths": run.history["weights"],
        "probability": run.history["probability"].mean(axis=-1),
        "norm": norms,
        "error": errors,
        "direction": direction,
        "at_best": (run.selected == best).all(axis=-1),
    }


def _measure(sizes: Sizes, piece: Piece) -> Arrays:
    found = {name: piece(name.replace(" ", "-"), _run, name, sizes["steps"]) for name in OPTIMIZERS}
    return {f"{key} {name}": array for name, arrays in found.items() for key, array in arrays.items()}


def _judge(sizes: Sizes, found: Arrays) -> Verdict:
    ends = {name: found[f"error {name}"][-1].max() for name in OPTIMIZERS}
    tenth = {name: found[f"error {name}"][_at(found, name, sizes["steps"] / 100)].max() for name in OPTIMIZERS}
    ratio = found["norm normalised GD"][-1].min() / found["norm GD"][-1].max()
    passed = {
        "a run does not select the optimal tokens": all(found[f"at_best {name}"].all() for name in OPTIMIZERS),
        "normalised GD ends away from the Att-SVM": bool(ends["normalised GD"] < sizes["error_below"]),
        "GD's direction error does not fall over the last two decades": bool(ends["GD"] < tenth["GD"]),
        "‖p‖ does not grow faster under normalised GD": bool(ratio > 10),
    }
    told = ", ".join(f"{error:.1e} ({name})" for name, error in ends.items())
    return verdict(passed, f"Direction error at the end: {told}; ‖p‖ is {ratio:.3g} times larger under normalised GD.")


def _at(found: Arrays, name: str, step: float) -> int:
    """Row of the errors nearest to a step; they lack step 0."""
    return int(np.argmin(np.abs(found[f"steps {name}"][1:] - step)))


def _rows(sizes: Sizes, found: Arrays) -> list[Row]:
    return [
        Row(
            f"{name}: ‖p‖ and mean largest probability",
            f"{number(found[f'norm {name}'][-1].mean())}, {number(found[f'probability {name}'][-1].mean())}",
        )
        for name in OPTIMIZERS
    ]


def _draw(sizes: Sizes, found: Arrays) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 5.4))
    paths, probability, norm = figure.subplots(3, 1, height_ratios=(2, 1.1, 1.1))
    shown = found["steps normalised GD"] <= 300
    draw_paths(paths, found["paths normalised GD"][shown], found["direction normalised GD"][None])
    lines = zip(OPTIMIZERS, (style.BLUE, style.VERMILLION), ("-", "--"), strict=True)
    for name, colour, dashes in lines:
        steps = found[f"steps {name}"]
        for axis, key in ((probability, "probability"), (norm, "norm")):
            values = found[f"{key} {name}"][1:]
            axis.plot(steps[1:], values.mean(axis=1), dashes, color=colour, label=name)
            axis.set_xscale("log")
    probability.set_ylabel("largest probability")
    probability.set_ylim(0, 1.03)
    norm.set_yscale("log")
    norm.set_ylabel("‖p‖")
    norm.set_xlabel("steps")
    style.legend_above(probability, 2)
    return figure


EXPERIMENT = Experiment(
    name="prompt-several-sequences",
    paper=Paper.TOKEN_SELECTION,
    title="Several sequences: direction, saturation and growth",
    claim="With equal scores among the non-optimal tokens every start goes to the one global direction; the softmax "
    "saturates, and ‖p‖ grows much faster under normalised steps than under a constant step. (Above: the first 300 "
    "steps of normalised gradient descent; dashed, the Att-SVM direction.)",
    criterion="From all six starts both optimisers select the optimal tokens; normalised GD ends within the stated "
    "direction error; GD, which moves like log steps, still comes closer over its last two decades; ‖p‖ differs by "
    "more than a factor of ten.",
    full={"steps": 100_000, "error_below": 1e-6},
    quick={"steps": 5_000, "error_below": 1e-3},
    measure=_measure,
    judge=_judge,
    rows=_rows,
    draw=_draw,
)
