"""AdamW's ε is a barrier: at small decays AdamW converges to the Frobenius direction, not to that of ℓ∞."""

from typing import Any, ClassVar

import numpy as np
import optax
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.papers.drawing import LINES, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import margin_ratios, numbers
from attsvm.plot import style
from attsvm.theory import constrained_limit
from attsvm.training import train

NORMS = {"frobenius": "Frobenius", "linf": r"$\ell_\infty$"}
FIRST = 0.01
"""The first rate over the radius; the rates decrease linearly to zero."""


def _one(epsilon: float, decay: float, sizes: Sizes) -> Arrays:
    problems = random_problem(sizes["n"], sizes["T"], sizes["d"], sizes["seed"], batch=(sizes["seeds"],))
    steps = sizes["steps"]

    def rate(step: Any) -> Any:
        return FIRST / decay * (1 - step / steps)

    adamw = optax.adamw(rate, b2=0.95, eps=epsilon, weight_decay=decay)
    run = train(problems, optimizer=adamw, steps=steps, record=[steps])
    limit = constrained_limit(problems, decay=decay, norm="linf", epsilon=epsilon, start=run)
    return {
        **dict(zip(NORMS, margin_ratios(problems, run, NORMS).T, strict=True)),
        "error": np.asarray(direction_error(run.weights, limit.weights, axis=(-2, -1))),
        "residual": np.asarray(limit.gap),
    }


def _epsilon(epsilon: float, sizes: Sizes) -> Arrays:
    return stacked(_one(epsilon, decay, sizes) for decay in sizes["decays"])


class AdamWEpsilon(Figure):
    name = "adamw-epsilon"
    paper = Paper.OURS
    title = "The ε of AdamW is a barrier"
    seconds = 60
    claim = (
        "AdamW on the raw gradient ends at a stationary point of L(W) + (ε/λ) Σ [−λ|w| − log(1 − λ|w|)], because the "
        "gradient falls to the size of ε as attention saturates. At small decays λ this is a penalty on ‖W‖²_F, and "
        "the weights take the direction of the Frobenius Att-SVM instead of the ℓ∞ Att-SVM. (Trained runs; medians.)"
    )
    criterion = (
        "Each point is stationary to 1e-6. The largest median direction error between runs and points is below the "
        "stated number. At the smallest decay, the median margin ratio of the runs is larger in the Frobenius norm "
        "than in ℓ∞ for every ε."
    )
    descending: ClassVar = ("decays",)
    full: ClassVar[Sizes] = {
        "n": 6,
        "T": 8,
        "d": 10,
        "seeds": 6,
        "seed": 0,
        "steps": 50_000,
        "decays": [1.0, 0.3, 0.1, 0.03, 0.01],
        "epsilons": [1e-4, 1e-6, 1e-8],
        "error_below": 1e-3,
    }
    quick: ClassVar[Sizes] = {**full, "seeds": 2, "steps": 10_000, "decays": [0.3, 0.03], "epsilons": [1e-4]}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        parts = enumerate(sizes["epsilons"])
        return joined({f"{epsilon:g}": piece(f"epsilon-{k}", _epsilon, epsilon, dict(sizes)) for k, epsilon in parts})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        names = [f"{epsilon:g}" for epsilon in sizes["epsilons"]]
        residual = max(float(found[f"residual {name}"].max()) for name in names)
        error = max(float(np.median(found[f"error {name}"], axis=1).max()) for name in names)
        last = {norm: [float(np.median(found[f"{norm} {name}"][-1])) for name in names] for norm in NORMS}
        passed = {
            "a point is not stationary": residual <= 1e-6,
            "runs do not end at the points": error < sizes["error_below"],
            "the smallest decay does not lead to the Frobenius direction": all(
                one > other for one, other in zip(last["frobenius"], last["linf"], strict=True)
            ),
        }
        return verdict(
            passed,
            f"Largest residual {residual:.1e}; largest median direction error between run and point {error:.1e}. "
            f"At λ = {sizes['decays'][-1]:g} the median margin ratios are {numbers(last['frobenius'])} (Frobenius) and "
            f"{numbers(last['linf'])} (ℓ∞).",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for epsilon in sizes["epsilons"]:
            for norm in NORMS:
                middle = np.median(found[f"{norm} {epsilon:g}"], axis=1)
                rows.append(Row(f"ε = {epsilon:g}: margin ratio in {norm} at each decay", numbers(middle)))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = panels(2.6, 1)
        set_axes(axis, r"weight decay $\lambda$", "margin ratio", log="x")
        decays = np.array(sizes["decays"])
        for (colour, dashes), epsilon in zip(LINES, sizes["epsilons"], strict=False):
            for norm, look in (("frobenius", {"marker": "o"}), ("linf", {"marker": "s", "fillstyle": "none"})):
                middle = np.median(found[f"{norm} {epsilon:g}"], axis=1)
                axis.plot(decays, middle, color=colour, linestyle=dashes, markersize=3.5, **look)
            axis.plot([], [], color=colour, linestyle=dashes, label=rf"$\varepsilon = {_power(epsilon)}$")
        axis.plot([], [], "o", color="0.4", markersize=3.5, label="in Frobenius")
        axis.plot([], [], "s", color="0.4", markersize=3.5, fillstyle="none", label=r"in $\ell_\infty$")
        axis.set_ylim(0, 1.02)
        axis.set_xticks(decays, [f"{decay:g}" for decay in decays])
        axis.minorticks_off()
        style.legend_above(axis, 3)
        return figure


def _power(number: float) -> str:
    """A number as the text of a formula, a power of ten if it is one."""
    exponent = round(np.log10(number))
    return f"10^{{{exponent}}}" if np.isclose(number, 10.0**exponent, rtol=1e-12) else f"{number:g}"


FIGURES.register(AdamWEpsilon.name, AdamWEpsilon())
