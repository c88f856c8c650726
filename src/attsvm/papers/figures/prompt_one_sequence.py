"""Paths of a prompt on one sequence from six starts, to a global and to a local direction."""

from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attsvm.measures import direction_error
from attsvm.papers.drawing import draw_rings, ring_steps, set_axes
from attsvm.papers.examples import one_sequence
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.plot import DATA, style
from attsvm.selection import is_locally_optimal
from attsvm.svm import solve_svm
from attsvm.training import train

STARTS = np.array([[0.0, y, 0.0] for y in (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)])
EXAMPLES = {"one attractor": False, "two attractors": True}


def _paths(name: str, steps: int) -> Arrays:
    problem = one_sequence(EXAMPLES[name])
    run = train(problem, steps=steps, init=STARTS, record=120)
    directions = np.stack([solve_svm(problem, [token]).direction for token in (0, 1)])
    optimal = [is_locally_optimal(problem, [token], solve_svm(problem, [token]).support) for token in (0, 1)]
    errors = direction_error(run.weights[:, None], directions, axis=-1)
    return {
        "steps": run.history["steps"],
        "paths": run.history["weights"],
        "directions": directions,
        "locally_optimal": np.array(optimal),
        "selected": run.selected[:, 0],
        "error": np.take_along_axis(errors, np.minimum(run.selected, 1), axis=1)[:, 0],
    }


def draw_paths(axis: Axes, steps: np.ndarray, paths: np.ndarray, directions: np.ndarray) -> None:
    """Paths (R, starts, d) at steps (R,) in their first two coordinates, over rays along directions (k, d)."""
    reach = 1.05 * np.abs(paths[..., :2]).max()
    rays = ((style.INK, "--"), (style.INK, ":"))
    for ray, (colour, dashes) in zip(directions, rays, strict=False):
        end = ray[:2] / np.linalg.norm(ray[:2]) * reach * 1.5
        axis.plot([0, end[0]], [0, end[1]], dashes, color=colour, linewidth=1)
    colours = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
    for i, colour in zip(range(paths.shape[1]), colours, strict=False):
        axis.plot(*paths[:, i, :2].T, color=colour, linewidth=1.1)
        axis.plot(*paths[0, i, :2], "o", color=colour, markersize=3)
    draw_rings(axis, [(steps, paths[:, i, :2]) for i in range(paths.shape[1])], ring_steps(steps))
    low, high = paths[..., :2].min(axis=(0, 1)), paths[..., :2].max(axis=(0, 1))
    room = 0.08 * (high - low).max()
    axis.set_xlim(low[0] - room, high[0] + room)
    axis.set_ylim(low[1] - room, high[1] + room)
    set_axes(axis, "p$_1$", "p$_2$")


class PromptOneSequence(Figure):
    name = "prompt-one-sequence"
    paper = Paper.TOKEN_SELECTION
    order = 1
    title = "One sequence: a global and a local direction"
    seconds = 5
    claim = (
        "Normalised gradient descent on p converges to the max-margin direction of a locally optimal token. In the "
        "first example only the best token is locally optimal, and every start converges to it. In the second "
        "example the second token is locally optimal, too, and the start decides between the two. (Paths of the "
        "first 200 steps, with a ring at the end. Dashed and dotted: the Att-SVM directions of the first and of the "
        "second token.)"
    )
    criterion = (
        "Every start ends within the stated direction error of the Att-SVM of the token that it selects, and that "
        "token is locally optimal. In the first example all starts select the first token; in the second example "
        "both tokens are selected."
    )
    full: ClassVar[Sizes] = {"steps": 100_000, "error_below": 1e-6}
    quick: ClassVar[Sizes] = {"steps": 20_000, "error_below": 1e-4}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined(each(piece, EXAMPLES, _paths, sizes["steps"]))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        one, two = (found[f"selected {name}"] for name in EXAMPLES)
        largest = max(found[f"error {name}"].max() for name in EXAMPLES)
        passed = {
            "a run does not end at its Att-SVM direction": largest < sizes["error_below"],
            "a run with one attractor does not end at the best token": (one == 0).all(),
            "with two attractors the runs do not end at both tokens": set(two.tolist()) == {0, 1},
            "a run ends at a token that is not locally optimal": all(
                found[f"locally_optimal {name}"][token] for name in EXAMPLES for token in found[f"selected {name}"]
            ),
        }
        return verdict(passed, f"The largest direction error at the end is {largest:.1e}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"{name}: starts that end at token 1 / token 2", " / ".join(str(int((kept == t).sum())) for t in (0, 1))
            )
            for name in EXAMPLES
            for kept in [found[f"selected {name}"]]
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure = Drawing(figsize=(style.WIDTH, 4.0))
        for axis, name in zip(figure.subplots(2, 1, subplot_kw=DATA), EXAMPLES, strict=True):
            steps, directions = found[f"steps {name}"], found[f"directions {name}"]
            shown = steps <= 200
            rays = directions if name == "two attractors" else directions[:1]
            draw_paths(axis, steps[shown], found[f"paths {name}"][shown], rays)
            axis.set_title(name)
        return figure


FIGURES.register(PromptOneSequence.name, PromptOneSequence())
