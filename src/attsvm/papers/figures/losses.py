"""The influence of the loss: not on the direction, but on the part of the weights that stays finite."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.pages import number
from attsvm.papers.drawing import panels, set_axes
from attsvm.papers.examples import unequal_scores
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import compared, pooled, with_names
from attsvm.plot import style
from attsvm.training import train

LOG_SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda margin: np.zeros_like(margin),
    "logistic": lambda margin: -np.logaddexp(0.0, margin),
    "exponential": lambda margin: -margin,
}
"""log|ℓ'| of each loss."""


def offset(loss: str, ratio: np.ndarray) -> np.ndarray:
    """The limit of p₂, at which the gradients of the two sequences cancel.

    For a saturated softmax the gradient of sequence i is |ℓ'(γ_i)| γ_i e^{−δ_i} with its score γ = (C, 1) and the gap
    of its logits δ = p_1 ± p_2. Along p_2 the two cancel at ½ log(C |ℓ'(C)| / |ℓ'(1)|).
    """
    log_slope = LOG_SLOPES[loss]
    return np.asarray(0.5 * (np.log(ratio) + log_slope(ratio) - log_slope(np.ones_like(ratio))))


def _run(loss: str, ratio: float, steps: int) -> Arrays:
    problem = unequal_scores(ratio)
    run = train(problem, steps=steps, loss=loss, init=np.zeros(3), record=100)
    return compared(problem, run) | {"second": run.weights[1], "selected": run.selected}


class Losses(Figure):
    name = "losses"
    paper = Paper.TOKEN_SELECTION
    order = 4
    title = "Linear, logistic and exponential loss"
    seconds = 5
    claim = (
        "With every decreasing loss, p converges to the same direction, whatever the scores of the sequences. The loss "
        "determines the part of p that stays finite, and therefore how fast the direction converges. (Top: points show "
        "p₂ at the end of training; lines show where the gradients of the two sequences cancel, ½ log(C "
        "|ℓ'(C)|/|ℓ'(1)|).)"
    )
    criterion = (
        "For every loss and every C, the direction error ends below the stated one and p₂ agrees with the formula. "
        "For C ≥ 5 the linear loss ends closer than the exponential loss."
    )
    ascending: ClassVar = ("ratios",)
    full: ClassVar[Sizes] = {
        "ratios": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100],
        "steps": 100_000,
        "error_below": 1e-4,
        "offset_within": 1e-3,
    }
    quick: ClassVar[Sizes] = {"ratios": [1, 5, 10], "steps": 10_000, "error_below": 1e-4, "offset_within": 1e-2}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        ratios, steps = sizes["ratios"], sizes["steps"]
        runs = {loss: [piece(f"{loss}-C{C}", _run, loss, C, steps) for C in ratios] for loss in LOG_SLOPES}
        return joined({loss: stacked(found) for loss, found in runs.items()})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        ratios = np.array(sizes["ratios"], dtype=float)
        off = max(np.abs(found[f"second {loss}"] - offset(loss, ratios)).max() for loss in LOG_SLOPES)
        ends = {loss: found[f"error {loss}"][:, -1].max() for loss in LOG_SLOPES}
        # the linear loss weights both sequences most equally, so it is ahead after any number of steps
        moderate = ratios >= 5
        ahead = (found["error linear"][moderate, -1] <= found["error exponential"][moderate, -1]).all()
        passed = {
            "a run does not select the optimal tokens": (pooled(found, "selected", LOG_SLOPES) == 1).all(),
            "a loss does not converge to the Att-SVM direction": max(ends.values()) < sizes["error_below"],
            "p₂ does not agree with the formula": off < sizes["offset_within"],
            "for some C ≥ 5 the linear loss is not the closest": ahead,
        }
        return verdict(passed, f"Largest direction error: {with_names(ends)}. p₂ is within {off:.1e} of the formula.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        last = sizes["ratios"][-1]
        seconds = {loss: (found[f"second {loss}"][-1], offset(loss, np.array(float(last)))) for loss in LOG_SLOPES}
        ends = {loss: number(float(found[f"error {loss}"][-1, -1])) for loss in LOG_SLOPES}
        formula = "p₂, measured and by the formula"
        return [
            *(Row(f"{loss}, C = {last}: {formula}", "{:.4f}, {:.4f}".format(*both)) for loss, both in seconds.items()),
            *(Row(f"{loss}, C = {last}: direction error", end) for loss, end in ends.items()),
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (top, bottom) = panels(3.9, 2)
        ratios = np.array(sizes["ratios"], dtype=float)
        fine = np.geomspace(ratios[0], ratios[-1], 200)
        looks = ((style.GREEN, "-.", "^"), (style.BLUE, "-", "o"), (style.VERMILLION, "--", "s"))
        for loss, (colour, dashes, marker) in zip(LOG_SLOPES, looks, strict=True):
            top.plot(fine, offset(loss, fine), dashes, color=colour, linewidth=1)
            top.plot(ratios, found[f"second {loss}"], marker, color=colour, markersize=3.5, label=loss)
            shown = list(sizes["ratios"]).index(10)
            bottom.plot(found[f"steps {loss}"][shown], found[f"error {loss}"][shown], dashes, color=colour, label=loss)
        top.set_xscale("log")
        top.set_yscale("symlog", linthresh=1)
        set_axes(top, "C", "p$_2$ in the limit")
        set_axes(bottom, "steps, C = 10", "direction error", log="xy")
        figure.align_ylabels([top, bottom])
        style.legend_above(top, 3)
        return figure


FIGURES.register(Losses.name, Losses())
