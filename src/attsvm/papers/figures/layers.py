"""Several attention layers: the path through them, and the relaxed Att-SVM that each layer converges to."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.papers.drawing import panels
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Standing, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers
from attsvm.plot import draw_layers, style
from attsvm.stack import Stack
from attsvm.svm import Solution, solve_svm

SATURATED = 0.99


def _layers(number: int, problems: int, size: list[int], seed: int, steps: int) -> Arrays:
    n, T, d = size
    stack = Stack(random_problem(n, T, d, seed, batch=(problems,)), number)
    run = stack.train(steps=steps, loss="exponential", seed=seed, record=1)
    layers = [stack.layer(run, i) for i in range(number)]
    weights = list(run.weights.values())
    plain = [solve_svm(layer.problem, layer.selected) for layer in layers]
    margins = stack.margins(run)

    def errors(solutions: Sequence[Solution]) -> np.ndarray:
        # an infeasible Att-SVM has no direction, and the direction error to zeros is 1
        directions = [np.nan_to_num(one.direction) for one in solutions]
        return np.array([direction_error(W, D, axis=(-2, -1)) for W, D in zip(weights, directions, strict=True)])

    return {
        "error": errors(stack.solve(run)),
        "plain": errors(plain),
        "saturated": np.asarray(stack.saturation(run)) > SATURATED,
        "apart": margins.max(axis=-1) / margins.min(axis=-1) - 1.0,
        "path": np.stack(stack.path(run), axis=1),
        "reads": np.stack([layer.selected for layer in layers[:-1]], axis=1),
        "last": layers[-1].selected,
    }


class Layers(Figure):
    name = "layers"
    paper = Paper.OURS
    order = 6.4
    title = "Several layers: the hierarchical Att-SVM"
    seconds = 20
    claim = (
        "Self-attention layers with residuals and a last layer with a query are trained together, with one norm over "
        "all gradients. Each layer converges to its relaxed Att-SVM: a margin of 1 at the positions on the selected "
        "path, and of 0 elsewhere. All layers reach the same margin. (Above: the paths of one problem; dots are "
        "positions, and an edge joins a position to a position that it reads. Below: median direction error of each "
        "layer, with the 10-90 % range; crosses: to the Att-SVM with a margin of 1 at all positions.)"
    )
    criterion = (
        "The stated share of the problems saturates on the path. On these, the median direction error of each layer is "
        "below the stated one. In the self-attention layers together, it is also below the median direction error to "
        "the Att-SVM of all positions. The median difference between the margins of the layers is below the stated "
        "one."
    )
    full: ClassVar[Sizes] = {
        "layers": [2, 3, 4],
        "problems": 16,
        "size": [3, 4, 10],
        "seed": 4000,
        "steps": 30_000,
        "saturated": 0.9,
        "error_below": 1e-4,
        "apart_below": 0.01,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "layers": [2],
        "problems": 6,
        "steps": 5000,
        "error_below": 1e-2,
        "apart_below": 0.05,
    }
    ascending = ("layers",)

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        given = sizes["problems"], sizes["size"], sizes["seed"], sizes["steps"]
        return joined({str(L): piece(f"L{L}", _layers, L, *given) for L in sizes["layers"]})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        shares, errors, plain, apart = [], [], [], []
        for L in sizes["layers"]:
            kept = found[f"saturated {L}"]
            shares.append(float(kept.mean()))
            if not kept.any():
                return Verdict(Standing.FAILS, f"No problem with L = {L} saturates on the path.")
            errors.append(np.median(found[f"error {L}"][:, kept], axis=1))
            plain.append(np.median(found[f"plain {L}"][:-1, kept]))
            apart.append(float(np.median(found[f"apart {L}"][kept])))
        passed = {
            "too few problems saturate": min(shares) >= sizes["saturated"],
            "a layer does not end at its relaxed Att-SVM": max(map(np.max, errors)) < sizes["error_below"],
            "layers end equally near to the Att-SVM of all positions": all(
                x[:-1].max() < y for x, y in zip(errors, plain, strict=True)
            ),
            "the margins of the layers differ": max(apart) < sizes["apart_below"],
        }
        return verdict(
            passed,
            f"Smallest share of problems that saturate: {min(shares):.0%}. Largest median direction error of a layer: "
            f"{max(map(np.max, errors)):.1e}; to the Att-SVM of all positions at least {min(plain):.1e}. Median "
            f"difference of the margins: at most {max(apart):.2%}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for L in sizes["layers"]:
            kept = found[f"saturated {L}"]
            rows += [
                Row(f"L = {L}: problems that saturate on the path", f"{kept.sum()} of {len(kept)}"),
                Row(
                    f"L = {L}: median direction error of each layer",
                    numbers(np.median(found[f"error {L}"][:, kept], axis=1)),
                ),
                Row(
                    f"L = {L}: to the Att-SVM of all positions",
                    numbers(np.median(found[f"plain {L}"][:, kept], axis=1)),
                ),
            ]
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (above, below) = panels(3.6, 2)
        L = sizes["layers"][-1]
        # the problem whose path has the most tokens
        shown = int(found[f"path {L}"].sum(axis=(1, 2, 3)).argmax())
        of_one = {name: found[f"{name} {L}"][shown] for name in ("path", "reads", "last")}
        draw_layers(above, **of_one)
        colours = (style.BLUE, style.ORANGE, style.GREEN)
        for place, (number, colour) in enumerate(zip(sizes["layers"], colours, strict=False)):
            kept = found[f"saturated {number}"]
            error, plain = (found[f"{name} {number}"][:, kept] for name in ("error", "plain"))
            middle = np.median(error, axis=1)
            low, high = np.quantile(error, [0.1, 0.9], axis=1)
            x = np.arange(number) + 0.12 * (place - (len(sizes["layers"]) - 1) / 2)
            below.errorbar(x, middle, [middle - low, high - middle], fmt="o", color=colour, label=f"L = {number}")
            below.plot(x, np.median(plain, axis=1), "x", color=colour)
        below.plot([], [], "x", color=style.INK, label="Att-SVM of all positions")
        below.set_yscale("log")
        below.set_xticks(range(L))
        below.set_xlim(-0.3, L - 0.7)
        below.set_xlabel("layer")
        below.set_ylabel("direction error")
        style.legend_above(below, 2)
        return figure


FIGURES.register(Layers.name, Layers())
