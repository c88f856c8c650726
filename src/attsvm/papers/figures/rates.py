"""How fast optimisers converge: a power law or a poly-log law, and the rate proved for mirror descent."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.optimizers import Optimizer, gradient_descent, mirror_descent, normalized_gradient_descent, steepest_descent
from attsvm.papers.drawing import GREY, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.bregman import LINES
from attsvm.papers.judging import pooled
from attsvm.plot import style
from attsvm.theory import CLEAR, Law, divergence_of, mirror_descent_bound, observed_rates, predict_direction
from attsvm.training import train

CONSTANT = 10.0
"""The constant step. A shorter one delays the last change of the selection beyond the steps that can be made."""

SLOW: dict[str, tuple[Optimizer, float]] = {
    "mirror, p = 1.5": (mirror_descent(learning_rate=CONSTANT, p=1.5, normalize=False), 1.5),
    "gradient descent": (gradient_descent(CONSTANT), 2.0),
    "mirror, p = 3": (mirror_descent(learning_rate=CONSTANT, p=3.0, normalize=False), 3.0),
}
"""With a constant step, and the p of the bound."""

FAST: dict[str, Optimizer] = {
    "normalised GD": normalized_gradient_descent(0.1),
    "normalised mirror, p = 1.75": mirror_descent(learning_rate=0.1, p=1.75),
    "normalised mirror, p = 3": mirror_descent(learning_rate=0.1, p=3.0),
}
"""With steps that do not vanish with the gradient, under which theory of linear models has a power law."""

OTHERS: dict[str, Optimizer] = {
    "sign": steepest_descent(norm="linf", learning_rate=0.1),
    "coordinate": steepest_descent(norm="l1", learning_rate=0.1),
    "spectral": steepest_descent(norm="spectral", learning_rate=0.1),
}
"""Their rates are measured, and no claim is made about them."""

EVERY = {name: optimizer for name, (optimizer, _) in SLOW.items()} | FAST | OTHERS
RECORDS = 100
SMALL = 0.01
ROUNDING = 1e-9


def _run(name: str, steps: dict[str, int], n: int, T: int, d: int, seed: int, seeds: int) -> Arrays:
    """The error of runs from small random weights, and the laws that fit its later part."""
    problem = random_problem(n, T, d, seed, batch=(seeds,))
    start = SMALL * np.random.default_rng(seed + 1).standard_normal((seeds, d, d))
    run = train(problem, optimizer=EVERY[name], init=start, steps=steps[name], record=RECORDS)
    prediction = predict_direction(problem, run)
    found = observed_rates(problem, run, prediction)
    rates = found.get("bregman_divergence", found["margin_gap"])
    laws = {str(law): getattr(rates, law) for law in Law}
    divergence = divergence_of(prediction.norm)
    return {
        "evidence": np.asarray(rates.evidence),
        "points": np.asarray(rates.power.points),
        **{law: np.stack([rate.slope, rate.low, rate.high]) for law, rate in laws.items()},
        "steps": run.history["steps"],
        "error": np.zeros((0, seeds))
        if divergence is None
        else np.asarray(divergence(run.history["weights"], prediction.solution.direction, axis=(-2, -1))),
    }


def _bound_excess(p: float, found: Arrays, name: str) -> float:
    """The largest error over the proved bound, which touches each run at the first record of its fits."""
    steps, worst = found[f"steps {name}"], 0.0
    for error, points in zip(found[f"error {name}"].T, found[f"points {name}"], strict=True):
        ratio = error[-points:] / mirror_descent_bound(steps[-points:], p)
        worst = max(worst, float(np.max(ratio / ratio[0])))
    return worst


class RatesOfConvergence(Figure):
    name = "rates"
    paper = Paper.MIRROR_DESCENT
    order = 3.5
    title = "Rates of convergence: powers of k or of log k"
    seconds = 90
    claim = (
        "With a constant step, the directional Bregman divergence of ℓp mirror descent decreases at least as fast as "
        "the proved bound, which is a power of log k up to log log k. With normalised steps, it decreases like a power "
        "of k. (Median and range of the runs; grey: the bound, scaled to touch each median.)"
    )
    criterion = (
        "The laws are fitted to the later half, on a logarithmic scale, of the steps since the last change of the "
        "selection. There, no run with a constant step exceeds the bound that touches it at the beginning. AIC prefers "
        "the poly-log law for more than half of the runs with a constant step, and the power law for all runs with "
        "normalised steps."
    )
    full: ClassVar[Sizes] = {
        "steps": 1_000_000,
        "constant": list(SLOW),
        "normalised_steps": 100_000,
        "normalised": list(FAST),
        "others": list(OTHERS),
        "n": 6,
        "T": 8,
        "d": 10,
        "seed": 0,
        "seeds": 4,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "steps": 100_000,
        "constant": ["gradient descent"],
        "normalised_steps": 10_000,
        "normalised": ["normalised GD"],
        "others": [],
        "seeds": 2,
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("n", "T", "d", "seed", "seeds")]
        steps = dict.fromkeys(sizes["constant"], sizes["steps"])
        steps |= dict.fromkeys((*sizes["normalised"], *sizes["others"]), sizes["normalised_steps"])
        return joined(each(piece, steps, _run, steps, *shape))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        worst = max(_bound_excess(SLOW[name][1], found, name) for name in sizes["constant"])
        slow = pooled(found, "evidence", sizes["constant"])
        fast = pooled(found, "evidence", sizes["normalised"])
        passed = {
            "a run exceeds the bound": worst <= 1 + ROUNDING,
            "AIC prefers the poly-log law for less than half of the runs with a constant step": (
                np.mean(slow < -CLEAR) > 0.5
            ),
            "AIC does not prefer the power law for every normalised run": (fast > CLEAR).all(),
        }
        return verdict(
            passed,
            f"Divided by the bound that touches it, a run with a constant step is at most {worst:.3f}. AIC prefers the "
            f"poly-log law for {np.sum(slow < -CLEAR)} and the power law for {np.sum(slow > CLEAR)} of {slow.size} "
            f"runs with a constant step, and the power law for {np.sum(fast > CLEAR)} of {fast.size} normalised ones.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for name in (*sizes["constant"], *sizes["normalised"], *sizes["others"]):
            measure = "divergence" if len(found[f"error {name}"]) else "1 − margin ratio"
            power, polylog = (np.median(found[f"{law} {name}"], axis=-1) for law in Law)
            evidence = np.median(found[f"evidence {name}"])
            better = "k" if evidence > CLEAR else "log k" if evidence < -CLEAR else "neither"
            laws = "k^{:.2f} [{:.2f}, {:.2f}]; (log k)^{:.1f} [{:.1f}, {:.1f}]".format(*power, *polylog)
            rows.append(Row(f"{name}: {measure}", f"{laws}; AIC prefers {better}"))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (slow, fast) = panels(4.4, 2)
        for name, (colour, dashes) in zip(sizes["constant"], LINES, strict=False):
            steps, error = found[f"steps {name}"], found[f"error {name}"]
            style.spread(slow, steps[1:], error[1:], colour, dashes, name)
            fitted = int(found[f"points {name}"].min())
            bound = np.asarray(mirror_descent_bound(steps[-fitted:], SLOW[name][1]))
            scale = np.median(error[-fitted]) / bound[0]
            slow.plot(steps[-fitted:], scale * bound, color=GREY, linewidth=0.9)
        slow.plot([], [], color=GREY, linewidth=0.9, label="proved bound")
        for name, (colour, dashes) in zip(sizes["normalised"], LINES, strict=False):
            style.spread(fast, found[f"steps {name}"][1:], found[f"error {name}"][1:], colour, dashes, name)
        for axis, title in ((slow, "constant step"), (fast, "normalised, constant length")):
            set_axes(axis, log="xy")
            axis.set_title(title)
            axis.legend(loc="lower left")
        figure.supylabel("directional Bregman divergence", fontsize="medium")
        fast.set_xlabel("steps k")
        return figure


FIGURES.register(RatesOfConvergence.name, RatesOfConvergence())
