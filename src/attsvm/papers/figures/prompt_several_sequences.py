"""Path and growth of a prompt on several sequences under normalised and under plain gradient descent."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.measures import direction_error
from attsvm.optimizers import gradient_descent, normalized_gradient_descent
from attsvm.pages import number
from attsvm.papers.drawing import panels, set_axes
from attsvm.papers.examples import several_sequences
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.prompt_one_sequence import draw_paths
from attsvm.papers.judging import pooled, with_names
from attsvm.plot import style
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.training import train

STARTS = np.array([[x, 0.0, 0.0] for x in (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)])
OPTIMIZERS = {"normalised GD": lambda: normalized_gradient_descent(0.1), "GD": lambda: gradient_descent(1.0)}


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


def _row_index(found: Arrays, name: str, step: float) -> int:
    """Row of the errors closest to a step; step 0 has no error."""
    return int(np.argmin(np.abs(found[f"steps {name}"][1:] - step)))


class PromptSeveralSequences(Figure):
    name = "prompt-several-sequences"
    paper = Paper.TOKEN_SELECTION
    order = 2
    title = "Several sequences: direction, saturation and growth"
    seconds = 5
    claim = (
        "If the non-optimal tokens of each sequence have equal scores, every start converges to the global "
        "direction. The softmax saturates, and ‖p‖ grows much faster with normalised steps than with a constant "
        "step size. (Top: the first 300 steps of normalised gradient descent, with a ring at the end. "
        "Dashed: the Att-SVM direction.)"
    )
    criterion = (
        "From all six starts both optimisers select the optimal tokens. Normalised gradient descent ends within the "
        "stated direction error. The direction error of gradient descent, whose ‖p‖ grows logarithmically, still "
        "falls over the last two decades of steps. The two norms ‖p‖ differ by more than a factor of ten."
    )
    full: ClassVar[Sizes] = {"steps": 100_000, "error_below": 1e-6}
    quick: ClassVar[Sizes] = {"steps": 5_000, "error_below": 1e-3}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined(each(piece, OPTIMIZERS, _run, sizes["steps"]))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        ends = {name: found[f"error {name}"][-1].max() for name in OPTIMIZERS}
        tenth = {
            name: found[f"error {name}"][_row_index(found, name, sizes["steps"] / 100)].max() for name in OPTIMIZERS
        }
        ratio = found["norm normalised GD"][-1].min() / found["norm GD"][-1].max()
        passed = {
            "a run does not select the optimal tokens": pooled(found, "at_best", OPTIMIZERS).all(),
            "normalised GD does not end at the Att-SVM": ends["normalised GD"] < sizes["error_below"],
            "GD's direction error does not fall over the last two decades": ends["GD"] < tenth["GD"],
            "‖p‖ is not ten times larger under normalised GD": ratio > 10,
        }
        summary = with_names(ends)
        return verdict(
            passed, f"Direction error at the end: {summary}. ‖p‖ is {ratio:.3g} times larger under normalised GD."
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"{name}: ‖p‖ and mean largest probability",
                f"{number(found[f'norm {name}'][-1].mean())}, {number(found[f'probability {name}'][-1].mean())}",
            )
            for name in OPTIMIZERS
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (paths, probability, norm) = panels(5.4, 3, height_ratios=(2, 1.1, 1.1))
        shown = found["steps normalised GD"] <= 300
        steps, of_prompt = (found[f"{key} normalised GD"][shown] for key in ("steps", "paths"))
        draw_paths(paths, steps, of_prompt, found["direction normalised GD"][None])
        lines = zip(OPTIMIZERS, (style.BLUE, style.VERMILLION), ("-", "--"), strict=True)
        for name, colour, dashes in lines:
            steps = found[f"steps {name}"]
            for axis, key in ((probability, "probability"), (norm, "norm")):
                values = found[f"{key} {name}"][1:]
                axis.plot(steps[1:], values.mean(axis=1), dashes, color=colour, label=name)
                axis.set_xscale("log")
        probability.set_ylabel("largest probability")
        probability.set_ylim(0, 1.03)
        set_axes(norm, "steps", "‖p‖", log="y")
        style.legend_above(probability, 2)
        return figure


FIGURES.register(PromptSeveralSequences.name, PromptSeveralSequences())
