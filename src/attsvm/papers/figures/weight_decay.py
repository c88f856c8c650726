"""The logit gap and the probability that decoupled weight decay leaves, with their caps and the closed form."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error, token_logits
from attsvm.optimizers import steepest_descent
from attsvm.papers.drawing import LINES, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers, pooled
from attsvm.plot import style
from attsvm.theory import constrained_limit
from attsvm.training import train

NORMS = {"frobenius": "Frobenius", "linf": r"$\ell_\infty$", "spectral": "spectral"}
FIRST = {"frobenius": 0.1, "linf": 0.01, "spectral": 0.03}
"""The first rate over the radius; the rates decrease linearly to zero."""
LONGER = {"frobenius": 1, "linf": 5, "spectral": 1}
"""How many times the steps: sign descent converges more slowly."""
FAR = 8.0
"""The closed form is for R/V from here on."""
ROUNDING = 1e-9


def _one(norm: str, decay: float, sizes: Sizes) -> Arrays:
    problems = random_problem(sizes["n"], sizes["T"], sizes["d"], sizes["seed"], batch=(sizes["seeds"],))
    first, steps = FIRST[norm] / decay, LONGER[norm] * sizes["steps"]

    def rate(step: Any) -> Any:
        return first * (1 - step / steps)

    optimizer = steepest_descent(norm=norm, learning_rate=rate, weight_decay=decay)
    run = train(problems, optimizer=optimizer, steps=steps, record=[steps])
    # the caps and the closed form of the tokens that the run selects
    limit = constrained_limit(problems, decay=decay, norm=norm, start=run)
    ordered = np.sort(token_logits(problems, run.weights)[:, :, 0], axis=-1)
    least_of = np.where(np.isfinite(limit.closed_form), limit.closed_form, np.inf).min(axis=(1, 2))
    return {
        "ratio": np.asarray(limit.ratio),
        "gap": (ordered[..., -1] - ordered[..., -2]).min(axis=-1),
        "closed": np.where(np.isfinite(least_of), least_of, np.nan),
        "probability": run.probability.min(axis=-1),
        "cap": np.asarray(limit.cap),
        "error": np.asarray(direction_error(run.weights, limit.weights, axis=(-2, -1))),
        "same": (limit.selected == run.selected).all(axis=-1),
    }


def _norm(norm: str, sizes: Sizes) -> Arrays:
    return stacked(_one(norm, decay, sizes) for decay in sizes["decays"])


class WeightDecayFigure(Figure):
    name = "weight-decay"
    paper = Paper.OURS
    title = "The logit gap under decoupled weight decay"
    seconds = 60
    claim = (
        "Steps of length one in a norm N with decoupled weight decay λ end at a stationary point of the loss in the "
        "ball N(W) ≤ R = 1/λ. With the value V of the Att-SVM, the smallest gap between the logits of the selected and "
        "the other tokens is at most R/V, and the smallest probability at most 1/(1 + exp(−R/V)). For small λ, a "
        "closed form in the multipliers of the Att-SVM gives the gap. (Markers: trained; lines: caps; crosses: closed "
        "form; medians.)"
    )
    criterion = (
        "No trained run exceeds the caps of its tokens. The median direction error between run and limit is below the "
        "stated number in each norm at each decay, and at the smallest decay the median error of the closed form is "
        "below half a logit."
    )
    descending: ClassVar = ("decays",)
    full: ClassVar[Sizes] = {
        "n": 6,
        "T": 8,
        "d": 10,
        "seeds": 8,
        "seed": 0,
        "steps": 20_000,
        "decays": [1.0, 0.3, 0.1, 0.03, 0.01],
        "error_below": 1e-2,
        "norms": list(NORMS),
    }
    quick: ClassVar[Sizes] = {**full, "seeds": 3, "steps": 5_000, "decays": [0.3, 0.03], "norms": ["frobenius", "linf"]}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined({norm: piece(f"norm-{norm}", _norm, norm, dict(sizes)) for norm in sizes["norms"]})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        norms = sizes["norms"]
        same = pooled(found, "same", norms)
        over = pooled(found, "gap", norms) > pooled(found, "ratio", norms) * (1 + ROUNDING)
        likely = pooled(found, "probability", norms) > pooled(found, "cap", norms) + ROUNDING
        errors = {norm: float(np.median(found[f"error {norm}"], axis=1).max()) for norm in norms}
        closed = {norm: float(_closed_errors(found, norm)[-1]) for norm in norms}
        passed = {
            "a logit gap is above its cap": not (over & same).any(),
            "a probability is above its cap": not (likely & same).any(),
            "runs do not end at the limit": max(errors.values()) < sizes["error_below"],
            "the closed form is wrong at the smallest decay": max(closed.values()) < 0.5,
        }
        return verdict(
            passed,
            f"{int((over & same).sum())} of {int(same.sum())} runs exceed a cap. Largest median direction error of a "
            f"run to its limit: {max(errors.values()):.1e}. Median error of the closed form at the smallest decay: at "
            f"most {max(closed.values()):z.2f} logits.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for norm in sizes["norms"]:
            gaps, ratios = (np.median(found[f"{key} {norm}"], axis=1) for key in ("gap", "ratio"))
            rows.append(Row(f"{norm}: logit gap at each decay", numbers(gaps)))
            rows.append(Row(f"{norm}: its cap R/V", numbers(ratios)))
            closed = numbers(_closed_errors(found, norm)[-1:])
            rows.append(Row(f"{norm}: error of the closed form at the smallest decay", closed))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (upper, lower) = panels(4.2, 2, sharex=True)
        set_axes(upper, y="smallest logit gap", log="xy")
        set_axes(lower, x=r"weight decay $\lambda$", y="smallest probability", log="x")
        decays = np.array(sizes["decays"])
        for (colour, dashes), norm in zip(LINES, sizes["norms"], strict=False):
            middle = {
                key: np.nanmedian(found[f"{key} {norm}"], axis=1)
                for key in ("gap", "ratio", "closed", "probability", "cap")
            }
            marks = {"color": colour, "linestyle": "", "marker": "o", "markersize": 3.5}
            upper.plot(decays, middle["ratio"], color=colour, linestyle=dashes, label=NORMS[norm])
            upper.plot(decays, middle["gap"], **marks)
            far = middle["ratio"] >= FAR
            upper.plot(decays[far], middle["closed"][far], color="0.2", linestyle="", marker="x", markersize=5)
            lower.plot(decays, middle["cap"], color=colour, linestyle=dashes)
            lower.plot(decays, middle["probability"], **marks)
        upper.plot([], [], color="0.4", linestyle="", marker="o", markersize=3.5, label="trained")
        upper.plot([], [], color="0.2", linestyle="", marker="x", markersize=5, label="closed form")
        lower.set_xticks(decays, [f"{decay:g}" for decay in decays])
        lower.minorticks_off()
        style.legend_above(upper, 3)
        return figure


def _closed_errors(found: Arrays, norm: str) -> np.ndarray:
    """The median error of the closed form at each decay; NaN where no Att-SVM has one."""
    apart = np.abs(found[f"closed {norm}"] - found[f"gap {norm}"])
    known = np.isfinite(apart).any(axis=1)
    return np.array([np.nanmedian(row) if there else np.nan for row, there in zip(apart, known, strict=True)])


FIGURES.register(WeightDecayFigure.name, WeightDecayFigure())
