"""The path of W under mirror descent, which converges to the Att-SVM of its own p."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attsvm.optimizers import mirror_descent
from attsvm.pages import number
from attsvm.papers.drawing import draw_rings, longest, panels, ring_steps, set_axes
from attsvm.papers.examples import mirror_path
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.bregman import LINES, STEP, divergences, nearest_own, own_values
from attsvm.papers.judging import undecided, with_names
from attsvm.plot import style
from attsvm.svm import solve_svm
from attsvm.training import train

PUBLISHED = {(1.75, 1500): 0.020407, (2.0, 2000): 0.010006, (3.0, 20_000): 0.003307}
"""Divergence from its own Att-SVM at the end of the published runs, by p and steps."""


def _path(p: float, powers: list[float], steps: int) -> Arrays:
    problem, start = mirror_path()
    run = train(problem, optimizer=mirror_descent(learning_rate=STEP, p=p), init=start, steps=steps, record=120)
    directions = [solve_svm(problem, run.selected, norm=power).direction for power in powers]
    weights = run.history["weights"]
    return {
        "steps": run.history["steps"],
        "entries": weights[:, 0, :2],
        "ray": directions[powers.index(p)][0, :2],
        "divergence": divergences(directions, weights, powers),
        "undecided": undecided(run.probability),
    }


def draw_along_rays(
    axis: Axes, powers: list[float], paths: Sequence[np.ndarray], rays: Sequence[np.ndarray], length: float
) -> None:
    """Draw the path of each p over the ray of its prediction, dotted."""
    for p, path, ray, (colour, dashes) in zip(powers, paths, rays, LINES, strict=True):
        end = length * ray / np.linalg.norm(ray)
        axis.plot([0, end[0]], [0, end[1]], ":", color=colour, linewidth=1)
        axis.plot(*path.T, dashes, color=colour, label=f"p = {p:g}")


class MirrorPath(Figure):
    name = "mirror-path"
    paper = Paper.MIRROR_DESCENT
    order = 1
    title = "The path of W under mirror descent"
    seconds = 10
    claim = (
        "From one start, normalised ℓp mirror descent converges to the direction of the ℓp Att-SVM, which differs "
        "for each p. (Top: two entries of W, with the same entries of the Att-SVM direction as dotted rays, up to "
        "the end of the slowest path; rings mark the ends. Bottom: the directional Bregman divergence of W from that "
        "direction.)"
    )
    criterion = (
        "Each run is decided and ends below the stated directional Bregman divergence from the Att-SVM of its own "
        "p, and closer to it than to those of the other p. The two entries end along their ray."
    )
    full: ClassVar[Sizes] = {
        "p": [1.75, 2.0, 3.0],
        "steps": [1500, 2000, 20_000],
        "divergence_below": 5e-3,
        "sine_below": 0.1,
    }
    quick: ClassVar[Sizes] = {**full, "steps": [500, 1000, 8000], "divergence_below": 3e-2, "sine_below": 0.3}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        runs = zip(sizes["p"], sizes["steps"], strict=True)
        found = joined({f"{p:g}": piece(f"p{p:g}", _path, p, sizes["p"], steps) for p, steps in runs})
        return {"p": np.array(sizes["p"]), **found}

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        powers = sizes["p"]
        final = np.stack([found[f"divergence {p:g}"][:, -1] for p in powers])
        # the same two entries of the direction make the ray, so the path must end along it, too
        off_ray = []
        for p in powers:
            end, ray = found[f"entries {p:g}"][-1], found[f"ray {p:g}"]
            off_ray.append(abs(end[0] * ray[1] - end[1] * ray[0]) / (np.linalg.norm(end) * np.linalg.norm(ray)))
        passed = {
            "a path does not end at its direction": (np.diagonal(final) < sizes["divergence_below"]).all(),
            "a path ends closer to another p's direction": nearest_own(final),
            "the two entries do not end along their ray": max(off_ray) < sizes["sine_below"],
            "a run is undecided": not any(found[f"undecided {p:g}"] for p in powers),
        }
        own = with_names(own_values(powers, final))
        return verdict(
            passed,
            f"Directional Bregman divergence from its own Att-SVM at the end: {own}. The two entries end within "
            f"{np.degrees(np.arcsin(max(off_ray))):.1f}° of their ray.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"p = {p:g}: divergence after {steps:,} steps",
                number(float(found[f"divergence {p:g}"][i, -1])),
                number(PUBLISHED[p, steps]) if (p, steps) in PUBLISHED else "",
            )
            for i, (p, steps) in enumerate(zip(sizes["p"], sizes["steps"], strict=True))
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (plane, rates) = panels(4.6, 2, height_ratios=(1.35, 1))
        paths = [found[f"entries {p:g}"] for p in sizes["p"]]
        steps = [found[f"steps {p:g}"] for p in sizes["p"]]
        # the slowest path is drawn completely; the others leave the picture along their rays
        reach = 1.1 * min(float(np.linalg.norm(path[-1])) for path in paths)
        draw_along_rays(plane, sizes["p"], paths, [found[f"ray {p:g}"] for p in sizes["p"]], 2 * reach)
        for i, (p, (colour, dashes)) in enumerate(zip(sizes["p"], LINES, strict=True)):
            rates.plot(steps[i][1:], found[f"divergence {p:g}"][i, 1:], dashes, color=colour)
        plane.plot(*paths[0][0], "o", color=style.INK, markersize=3.5)
        draw_rings(plane, list(zip(steps, paths, strict=True)), ring_steps(longest(steps)))
        style.frame(plane, [path[np.linalg.norm(path, axis=1) < reach] for path in paths], 0.06)
        set_axes(plane, "W$_{11}$", "W$_{12}$")
        set_axes(rates, "steps", "Bregman divergence", log="xy")
        style.legend_above(plane, 3)
        return figure


FIGURES.register(MirrorPath.name, MirrorPath())
