"""Prompt and head trained together: the limit of each, with and without slack in a label."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.papers.drawing import LINES, legend_over, panels, set_axes
from attsvm.papers.examples import joint_prompt
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers, pooled
from attsvm.problem import Problem
from attsvm.svm import solve_svm
from attsvm.training import train

EXAMPLES = {"no slack": False, "slack": True}
P0, V0 = np.array([0.0, -1.0]), np.array([-1.0, 0.0])
SELECTED = np.ones(3, dtype=int)
ERRORS = {"head_error": "v", "plain_error": "p, plain", "relaxed_error": "p, relaxed"}


def _run(name: str, steps: int) -> Arrays:
    data = joint_prompt(EXAMPLES[name])
    assert data.labels is not None
    problem = Problem(data.tokens, labels=data.labels, head=V0)
    optimizer = normalized_gradient_descent(0.1, scope="each")
    run = train(problem, steps=steps, init={"p": P0, "v": V0}, train_head=True, record=120, optimizer=optimizer)
    kept = data.labels[:, None] * data.tokens[:, 1]
    pairs = Problem(np.stack([kept, np.zeros_like(kept)], axis=1))
    head = solve_svm(pairs, np.zeros(3, dtype=int))
    relaxed = ~head.support[:, 1]
    plain = solve_svm(data, SELECTED)
    limit = solve_svm(data, SELECTED, relaxed=relaxed)
    p, v = run.history["weights"], run.history["v"]
    scores = np.einsum("rd,nd->rn", v, kept) * run.history["probability"]
    return {
        "steps": run.history["steps"],
        "p": p,
        "v": v,
        "attention": run.history["probability"],
        "correct": 1 / (1 + np.exp(-scores)),
        "head_error": direction_error(v, head.direction, axis=-1),
        "plain_error": direction_error(p, plain.direction, axis=-1),
        "relaxed_error": direction_error(p, limit.direction, axis=-1),
        "relaxed_queries": relaxed,
        "selected": run.selected,
    }


class JointPrompt(Figure):
    name = "joint-prompt"
    paper = Paper.TOKEN_SELECTION
    order = 3
    title = "Prompt and prediction head trained together"
    seconds = 5
    claim = (
        "v converges to the max-margin head of the selected tokens. p converges to their Att-SVM if every label is "
        "a support vector of v, and otherwise to the relaxed Att-SVM, in which labels with slack have margin 0."
    )
    criterion = (
        "The token of each label is selected. v ends within the stated direction error, and so does p without "
        "slack. With slack, p ends closer to the relaxed Att-SVM than to the plain one. How close depends on the "
        "growth of ‖v‖ and ‖p‖, which the theorem prescribes and normalised steps do not."
    )
    full: ClassVar[Sizes] = {"steps": 100_000, "error_below": 1e-2}
    quick: ClassVar[Sizes] = {"steps": 10_000, "error_below": 5e-2}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined(each(piece, EXAMPLES, _run, sizes["steps"]))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        heads = [found[f"head_error {name}"][-1] for name in EXAMPLES]
        plain, without = found["plain_error no slack"][-1], found["plain_error slack"][-1]
        relaxed, slack = found["relaxed_error slack"][-1], found["relaxed_queries slack"]
        passed = {
            "the token of a label is not selected": (pooled(found, "selected", EXAMPLES) == SELECTED[0]).all(),
            "v does not end at its max-margin direction": max(heads) < sizes["error_below"],
            "without slack, p does not end at the plain Att-SVM": plain < sizes["error_below"],
            "with slack, p does not end closer to the relaxed Att-SVM than to the plain one": relaxed < without,
            "another label than the third one of the second example has slack, or that one has none": (
                slack.tolist() == [False, False, True] and not found["relaxed_queries no slack"].any()
            ),
        }
        return verdict(
            passed,
            f"Direction errors at the end: v {max(heads):.1e}; p without slack {plain:.1e} (plain Att-SVM); p with "
            f"slack {without:.1e} (plain Att-SVM) and {relaxed:.1e} (relaxed Att-SVM).",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"{name}: smallest attention and label probability",
                numbers((found[f"{key} {name}"][-1].min() for key in ("attention", "correct")), ", "),
            )
            for name in EXAMPLES
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axes = panels(4.6, 3, 2, sharex=True, sharey="row")
        for column, name in zip(axes.T, EXAMPLES, strict=True):
            steps = found[f"steps {name}"][1:]
            for i, (colour, dashes) in enumerate(LINES[:3]):
                for axis, key in ((column[0], "attention"), (column[1], "correct")):
                    axis.plot(steps, found[f"{key} {name}"][1:, i], dashes, color=colour, label=f"sequence {i}")
            for (key, label), (colour, dashes) in zip(ERRORS.items(), LINES, strict=False):
                # without slack the relaxed Att-SVM is the plain one
                if key != "relaxed_error" or name == "slack":
                    column[2].plot(steps, found[f"{key} {name}"][1:], dashes, color=colour, label=label)
            column[0].set_title(name)
            column[0].set_xscale("log")
            set_axes(column[2], "steps", log="y")
        for axis, label in zip(axes[:, 0], ("attention", "P(label)", "direction error"), strict=True):
            axis.set_ylabel(label)
        axes[2, 0].set_ylim(1e-17, 10)  # below that there is rounding alone
        legend_over(figure, axes[0, 0], 3, handlelength=2)
        below: Any = "outside lower center"
        figure.legend(*axes[2, 1].get_legend_handles_labels(), loc=below, ncols=3, handlelength=2)
        figure.align_ylabels(axes[:, 0])
        return figure


FIGURES.register(JointPrompt.name, JointPrompt())
