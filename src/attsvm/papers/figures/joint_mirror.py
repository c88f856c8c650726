"""W and head trained together by mirror descent: the limit of each, for three p."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing
from scipy.special import expit

from attsvm.measures import attention_of, bregman_divergence
from attsvm.optimizers import mirror_descent
from attsvm.pages import number
from attsvm.papers.drawing import draw_rings, legend_over, longest, panels, ring_steps, set_axes
from attsvm.papers.examples import joint_mirror
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.bregman import LINES, STEP, divergences, nearest_own, own_values
from attsvm.papers.figures.mirror_path import draw_along_rays
from attsvm.papers.judging import numbers, with_names
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.svm import solve_head, solve_svm
from attsvm.training import train

PUBLISHED = {1.75: "1, 0; 1, 1", 2.0: "1, 0; 1, 1", 3.0: "0, 0; 1, 1"}
"""Selected tokens, and attention and label probability to the published digits, by p."""


def _run(p: float, powers: list[float], steps: int) -> Arrays:
    data = joint_mirror()
    # from W = 0 and v = 0, as published: the first step is v's alone, since W's gradient is exactly zero
    problem = Problem(data.tokens, labels=data.labels, queries=data.queries, head=np.zeros(2))
    optimizer = mirror_descent(learning_rate=STEP, p=p, scope="each")
    run = train(problem, optimizer=optimizer, train_head=True, steps=steps, record=120)
    head = solve_head(data, run.selected, p)
    directions = [solve_svm(data, run.selected, norm=power).direction for power in powers]
    weights, v = run.history["weights"], run.history["v"]
    assert data.labels is not None
    attention = attention_of(data, weights)[..., 0, :]
    margins = data.labels * np.einsum("rnt,ntd,rd->rn", attention, data.tokens, v)
    return {
        "steps": run.history["steps"],
        "W": weights,
        "v": v,
        "divergence": divergences(directions, weights, powers),
        "head_divergence": np.asarray(bregman_divergence(head.direction, v, p, axis=-1)),
        "ray": directions[powers.index(p)],
        "head_ray": head.direction,
        "head_support": head.support,
        "attention": run.history["probability"],
        "correct": expit(margins),
        "selected": run.selected,
    }


class JointMirror(Figure):
    name = "joint-mirror"
    paper = Paper.MIRROR_DESCENT
    order = 3
    title = "Mirror descent on W and the prediction head together"
    seconds = 5
    claim = (
        "If ℓp mirror descent trains both, v converges to the ℓp max-margin head of the selected tokens, and W to "
        "their ℓp Att-SVM. Attention and label probabilities tend to 1. (Top: two entries of W, and v, with the "
        "predicted rays dotted, up to the end of the slowest path; rings mark the ends. Bottom: the smaller "
        "probability of the two sequences.)"
    )
    criterion = (
        "W ends below the stated directional Bregman divergence from its own Att-SVM, and closer to it than to "
        "those of the other p; v ends below its stated divergence. Every attention and label probability ends above "
        "0.999. Both labels are support vectors of v, so no margin of the Att-SVM is relaxed."
    )
    full: ClassVar[Sizes] = {
        "p": [1.75, 2.0, 3.0],
        "steps": [1500, 2000, 20_000],
        "divergence_below": 1e-3,
        "head_divergence_below": 2e-3,
    }
    quick: ClassVar[Sizes] = full

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        runs = zip(sizes["p"], sizes["steps"], strict=True)
        return joined({f"{p:g}": piece(f"p{p:g}", _run, p, sizes["p"], steps) for p, steps in runs})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        powers = sizes["p"]
        final = np.stack([found[f"divergence {p:g}"][:, -1] for p in powers])
        heads = [found[f"head_divergence {p:g}"][-1] for p in powers]
        smallest = min(found[f"{kind} {p:g}"][-1].min() for p in powers for kind in ("attention", "correct"))
        passed = {
            "W does not end at its Att-SVM": (np.diagonal(final) < sizes["divergence_below"]).all(),
            "W ends closer to another p's Att-SVM": nearest_own(final),
            "v does not end at its max-margin direction": max(heads) < sizes["head_divergence_below"],
            "a probability does not approach 1": smallest > 0.999,
            "a label has slack, so the prediction for W is another one": all(
                found[f"head_support {p:g}"].all() for p in powers
            ),
        }
        of_weights = with_names(own_values(powers, final))
        return verdict(
            passed,
            f"Directional Bregman divergence at the end: W {of_weights}; v at most {max(heads):.1e}. The smallest "
            f"attention or label probability is {number(float(smallest))}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for p, steps in zip(sizes["p"], sizes["steps"], strict=True):
            kept = ", ".join(map(str, found[f"selected {p:g}"]))
            least = numbers((found[f"{kind} {p:g}"][-1].min() for kind in ("attention", "correct")), ", ")
            name = f"p = {p:g}, {steps:,} steps: tokens; smallest attention, P(label)"
            rows.append(Row(name, f"{kept}; {least}", PUBLISHED[p]))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, ((of_weights, of_head), (attention, correct)) = panels(3.7, 2, 2, height_ratios=(1.3, 1))
        for axis, key, ray, labels in (
            (of_weights, "W", "ray", ("W$_{11}$", "W$_{12}$")),
            (of_head, "v", "head_ray", ("v$_1$", "v$_2$")),
        ):
            paths = [found[f"{key} {p:g}"].reshape(-1, 2 * (1 + (key == "W")))[:, :2] for p in sizes["p"]]
            # the slowest path is shown whole; the others leave the picture along their rays
            reach = 1.1 * min(np.abs(path).max() for path in paths)
            rays = [found[f"{ray} {p:g}"].ravel()[:2] for p in sizes["p"]]
            draw_along_rays(axis, sizes["p"], paths, rays, 3 * reach)
            steps = [found[f"steps {p:g}"] for p in sizes["p"]]
            draw_rings(axis, list(zip(steps, paths, strict=True)), ring_steps(longest(steps)))
            style.frame(axis, [path[np.abs(path).max(axis=1) <= reach] for path in paths], 0.08)
            set_axes(axis, labels[0], labels[1])
        for axis, key, name in ((attention, "attention", "attention"), (correct, "correct", "P(label)")):
            for p, (colour, dashes) in zip(sizes["p"], LINES, strict=True):
                axis.plot(found[f"steps {p:g}"][1:], found[f"{key} {p:g}"][1:].min(axis=1), dashes, color=colour)
            axis.set_xscale("log")
            axis.set_ylim(-0.05, 1.05)
            set_axes(axis, "steps", f"smallest {name}")
        legend_over(figure, of_weights, 3)
        return figure


FIGURES.register(JointMirror.name, JointMirror())
