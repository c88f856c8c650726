"""Softmax probability and direction over steps: W, and (K, Q) normalised per factor or jointly."""

from functools import cache
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.optimizers import Optimizer, normalized_gradient_descent
from attsvm.papers.drawing import LINES, set_axes
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes, each, joined
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import median_of, numbers, undecided
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import DATA, style
from attsvm.svm import solve_svm
from attsvm.training import train

NORMS = ("frobenius", "nuclear")
PUBLISHED_STEPS = 2000

PENALTY = float(np.finfo(float).eps)
"""The weight of the published penalty ‖K‖² + ‖Q‖², which keeps (K, Q) finite once the gradient has vanished."""

PUBLISHED = {"W": (3.00e-3, 0.122), "per factor": (0.125, 2.86e-3)}
"""Medians to the Frobenius and the nuclear solution after 2,000 steps of the published code, for its seeds 0 to 5."""

WAYS = {"W": "frobenius", "per factor": "nuclear", "jointly": "nuclear"}
"""The ways to train, and the norm of the Att-SVM that each is claimed to converge to."""

NAMES = {"W": "W", "per factor": "(K, Q), per factor", "jointly": "(K, Q), jointly"}


@cache  # programs compiled for it are reused
def _optimizer(way: str, steps: int) -> Optimizer:
    if way == "W":
        # as published, then growing: the direction error falls like one over the sum of the steps
        return normalized_gradient_descent(lambda step: 0.1 * (1 + jnp.maximum(step - PUBLISHED_STEPS, 0) / 100))
    if way == "per factor":
        return normalized_gradient_descent(0.1, scope="each")
    return limit_optimizer("factored", steps)


def _run(way: str, sizes: Sizes, self_attention: bool) -> Arrays:
    n, T, d, runs, seed = (sizes[name] for name in ("n", "T", "d", "runs", "seed"))
    steps = sizes["steps"][way]
    problem = random_problem(n, T, d, seed, batch=(runs,), self_attention=self_attention)
    # the published start, which is that of a linear layer
    draws = np.random.default_rng(seed + 1).uniform(-(d**-0.5), d**-0.5, size=(3, runs, d, d))
    spread = np.rint(np.geomspace(1, steps, 60)).astype(int)
    run = train(
        problem,
        attention="combined" if way == "W" else "factored",
        optimizer=_optimizer(way, steps),
        init={"W": draws[0]} if way == "W" else {"K": draws[1], "Q": draws[2]},
        penalty=PENALTY if way == "per factor" else 0.0,
        steps=steps,
        record=sorted({0, *spread.tolist(), PUBLISHED_STEPS}),
    )
    found: Arrays = {
        "steps": run.history["steps"],
        "probability": run.history["probability"].mean(axis=-1),
        "undecided": undecided(run.probability),
    }
    for norm in NORMS:
        direction = np.nan_to_num(solve_svm(problem, run.selected, norm).direction)
        found[f"to {norm}"] = np.asarray(direction_error(run.history["weights"], direction, axis=(-2, -1)))
    return found


def _published(found: Arrays, way: str) -> int:
    return int(np.flatnonzero(found[f"steps {way}"] == PUBLISHED_STEPS)[0])


class SaturationFigure(CrossAndSelf):
    name = "saturation"
    paper = Paper.TRANSFORMERS
    order = 3
    title = "Softmax and direction over steps: W and (K, Q)"
    seconds = 60
    claim = (
        "The softmax saturates; W converges to the Frobenius Att-SVM of the selected tokens, and (K, Q) to the "
        "nuclear one. The published comparison ends at 2,000 steps (dotted line). With more steps, W and the "
        "jointly normalised (K, Q) converge; if each factor is normalised by itself, with a penalty of 2.2e-16 as "
        "published, (K, Q) stay at a small distance. (Direction errors: median and 10-90 % range.)"
    )
    criterion = (
        "In each case 19 of 20 runs are decided. After 2,000 steps the mean largest probability exceeds 0.99, and "
        "19 of 20 decided runs are closer to the solution of their own norm than to the other. At the end, every "
        "decided run of W and of the jointly normalised (K, Q) is within the stated direction error, and the median "
        "with normalised factors is above 1e-3."
    )
    full: ClassVar[Sizes] = {
        "n": 6,
        "T": 8,
        "d": 10,
        "runs": 100,
        "steps": {"W": 22_000, "per factor": 40_000, "jointly": 120_000},
        "seed": 0,
        "error_below": {"W": 1e-6, "jointly": 1e-4},
        "published": True,
        "queries": {"cross": {}, "self": {"runs": 40, "published": False}},
    }
    quick: ClassVar[Sizes] = {
        **full,
        "runs": 4,
        "steps": {"W": 4_000, "per factor": 3_000, "jointly": 16_000},
        "error_below": {"W": 1e-4, "jointly": 1e-3},
        "queries": {"cross": {}, "self": {"published": False}},
    }

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        return joined(each(piece, sizes["steps"], _run, dict(sizes), self_attention))

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        decided = {way: ~found[f"undecided {way}"] for way in WAYS}
        if not all(some.any() for some in decided.values()):
            return Judged({"for one way of training no run is decided": False}, "")
        passed = {
            "more than one run in 20 is undecided": all(some.mean() >= 0.95 for some in decided.values()),
            "a softmax is not saturated after 2,000 steps": all(
                found[f"probability {way}"][_published(found, way)].mean() > 0.99 for way in WAYS
            ),
        }
        own, worst = {}, {}
        for way, norm in WAYS.items():
            other = NORMS[1 - NORMS.index(norm)]
            row = _published(found, way)
            nearer = (found[f"to {norm} {way}"][row] < found[f"to {other} {way}"][row])[decided[way]]
            passed[f"{NAMES[way]}: after 2,000 steps not closer to the {norm} solution"] = nearer.mean() >= 0.95
            own[way] = found[f"to {norm} {way}"][-1][decided[way]]
            worst[way] = own[way].max()
        for way, below in sizes["error_below"].items():
            passed[f"{NAMES[way]}: a decided run does not end at its Att-SVM"] = worst[way] < below
        stalled = median_of(own["per factor"])
        passed["normalised per factor, (K, Q) converge, too"] = stalled > 1e-3
        return Judged(
            passed,
            f"Largest direction error of the decided runs at the end: {worst['W']:.1e} (W), {worst['jointly']:.1e} "
            f"((K, Q), jointly). Normalised per factor, the median is {stalled:.1e} after "
            f"{sizes['steps']['per factor']:,} steps.",
        )

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for way in WAYS:
            decided = ~found[f"undecided {way}"]
            for name, at in ((f"{PUBLISHED_STEPS:,}", _published(found, way)), (f"{sizes['steps'][way]:,}", -1)):
                errors = numbers(median_of(found[f"to {norm} {way}"][at][decided]) for norm in NORMS)
                published = numbers(PUBLISHED.get(way, ()) if at != -1 and sizes["published"] else ())
                summary = f"{NAMES[way]}, {name} steps: median to the Frobenius / nuclear solution"
                rows.append(Row(summary, errors, published))
            rows.append(Row(f"{NAMES[way]}: undecided", f"{int((~decided).sum())} of {sizes['runs']}"))
        return rows

    def height(self, sizes: Sizes) -> float:
        return 4.6

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        axes = figure.subplots(3, 1, sharex=True, subplot_kw=DATA)
        panels = (
            ("probability", "softmax probability"),
            ("to frobenius", "error to Frobenius"),
            ("to nuclear", "error to nuclear"),
        )
        for axis, (key, label) in zip(axes, panels, strict=True):
            for way, (colour, dashes) in zip(WAYS, LINES, strict=False):
                steps, values = found[f"steps {way}"][1:], found[f"{key} {way}"][1:]
                style.spread(axis, steps, values, colour, dashes, NAMES[way])
            axis.axvline(PUBLISHED_STEPS, color=style.INK, linewidth=0.6, linestyle=":")
            set_axes(axis, y=label, log="x")
            if key != "probability":
                axis.set_yscale("log")
        axes[0].set_ylim(0, 1.03)
        axes[-1].set_xlabel("steps")
        figure.align_ylabels(axes)
        style.legend_above(axes[0], 2)


FIGURES.register(SaturationFigure.name, SaturationFigure())
