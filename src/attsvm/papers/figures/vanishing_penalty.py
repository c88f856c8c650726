"""Vanishing penalties compared with growing balls: the same limits, for W, (K, Q) and ℓp."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.pages import number
from attsvm.papers.drawing import GREY, LINES
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers, pooled
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.regularization import penalty_path, regularization_path
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm

# what bounds or penalises the weights; the norm of the limit; the power of the norm in the penalty, and its factor
KINDS: dict[str, tuple[dict[str, Any], str | float, float, float]] = {
    "W": ({}, "frobenius", 2.0, 1.0),
    "(K, Q)": ({"attention": "factored"}, "nuclear", 1.0, 2.0),
    "ℓ1.5": ({"norm": 1.5}, 1.5, 1.5, 1.0),
    "ℓ3": ({"norm": 3.0}, 3.0, 3.0, 1.0),
}
LABELS = {
    "W": r"$\lambda\|W\|_F^2$",
    "(K, Q)": r"$\lambda(\|K\|^2 + \|Q\|^2)$",
    "ℓ1.5": r"$\lambda\|W\|_{1.5}^{1.5}$",
    "ℓ3": r"$\lambda\|W\|_3^3$",
}
# half the relative distance between the radii whose losses give the slope of the ball path
STEP = 1e-4


def _slopes(problem: Problem, radii: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """Log of −dL(W_R)/dR of the ball path, by differences of its log excess."""
    pairs = np.stack([radii * (1 - STEP), radii * (1 + STEP)], axis=1)
    path = regularization_path(problem, pairs.reshape(-1), **options)
    low, high = path.log_excess.reshape(-1, 2).T
    return np.asarray((low + high) / 2 + np.log((low - high) / (2 * STEP * radii)))


def _one(seed: int, kind: str, sizes: Sizes) -> Arrays:
    options, norm, power, scale = KINDS[kind]
    problem = random_problem(sizes["n"], sizes["T"], sizes["d"], seed)
    penalties = np.array(sizes["log_penalties"])
    path = penalty_path(problem, penalties, **options)
    ball = regularization_path(problem, path.size, **options)
    directions = [solve_svm(problem, optimal_tokens(problem), other).direction for _, other, *_ in KINDS.values()]
    mismatch = _slopes(problem, path.size, options) - (
        penalties + np.log(scale * power) + (power - 1) * np.log(path.size)
    )
    return {
        "solved": path.solved & ball.solved,
        "size": path.size / solve_svm(problem, optimal_tokens(problem), norm).value,
        "optimal": (path.selected[-1] == optimal_tokens(problem)).all(),
        "penalty": np.stack([direction_error(path.weights, one, axis=(-2, -1)) for one in directions], axis=1),
        "ball": np.stack([direction_error(ball.weights, one, axis=(-2, -1)) for one in directions], axis=1),
        "apart": np.asarray(direction_error(path.weights, ball.weights, axis=(-2, -1))),
        "mismatch": np.abs(mismatch),
    }


def _kind(kind: str, sizes: Sizes) -> Arrays:
    found = [_one(seed, kind, sizes) for seed in range(sizes["seed"], sizes["seed"] + sizes["seeds"])]
    return stacked(found)


class VanishingPenalty(Figure):
    name = "vanishing-penalty"
    paper = Paper.TRANSFORMERS
    order = 1.5
    title = "Vanishing penalties compared with growing balls"
    seconds = 15
    claim = (
        "As λ → 0, the minimisers of the loss plus λ‖W‖² converge to the Frobenius Att-SVM. With λ(‖K‖² + ‖Q‖²), KQ' "
        "converges to the nuclear Att-SVM, and with λ‖W‖_p^p, W converges to the ℓp Att-SVM. Each minimiser also "
        "minimises the loss in the ball of its own radius R, and dL/dR there is minus the slope of the penalty. The "
        "radius grows like log(1/λ). (Medians over the seeds; lines: penalties, markers: balls of the same radius.)"
    )
    criterion = (
        "Every penalty and ball is solved and the optimal tokens are selected. At the smallest penalty, penalty and "
        "ball are within the stated direction error of the Att-SVM in their own norm, and more than 1e-3 from those in "
        "the other norms; the radius is within 5 % of log(1/λ) times the value of the Att-SVM. At all penalties "
        "both directions agree to 1e-9, and the logarithms of both slopes to 1e-4."
    )
    descending: ClassVar = ("log_penalties",)
    full: ClassVar[Sizes] = {
        "n": 3,
        "T": 4,
        "d": 4,
        "seeds": 2,
        "seed": 0,
        "log_penalties": [-10.0, -30.0, -100.0, -300.0, -1e3, -1e4],
        "error_below": 1e-6,
        "kinds": list(KINDS),
    }
    quick: ClassVar[Sizes] = {**full, "seeds": 1, "log_penalties": [-30.0, -300.0, -1e4], "kinds": ["W", "(K, Q)"]}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined({kind: piece(f"kind-{place}", _kind, kind, dict(sizes)) for place, kind in _named(sizes)})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        kinds = sizes["kinds"]
        own, other, apart, mismatch, radius = 0.0, np.inf, 0.0, 0.0, 0.0
        for place, kind in _named(sizes):
            for name in ("penalty", "ball"):
                ends = found[f"{name} {kind}"][:, -1]
                own = max(own, float(ends[:, place].max()))
                other = min(other, float(np.delete(ends, place, axis=1).min()))
            apart = max(apart, float(found[f"apart {kind}"].max()))
            mismatch = max(mismatch, float(found[f"mismatch {kind}"].max()))
            relative = found[f"size {kind}"][:, -1] / -sizes["log_penalties"][-1]
            radius = max(radius, float(np.abs(relative - 1).max()))
        passed = {
            "a penalty or a ball is not solved": pooled(found, "solved", kinds).all(),
            "a path does not select the optimal tokens": pooled(found, "optimal", kinds).all(),
            "a path does not end at the Att-SVM of its norm": own < sizes["error_below"],
            "a path ends at the Att-SVM of another norm": other > 1e-3,
            "the radius does not grow like log(1/λ)": radius < 0.05,
            "a penalty and its ball have other minimisers": apart < 1e-9,
            "the slopes of loss and penalty differ": mismatch < 1e-4,
        }
        return verdict(
            passed,
            f"At λ = exp({sizes['log_penalties'][-1]:g}) the largest direction error to the Att-SVM in the own norm is "
            f"{own:.1e}, the smallest to one in another norm {other:.1e}. Penalty to ball: at most {apart:.1e}. "
            f"Logarithms of both slopes differ by at most {mismatch:.1e}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for place, kind in _named(sizes):
            errors = np.median(found[f"penalty {kind}"][:, :, place], axis=0)
            shown = numbers(errors[k] for k in (0, len(errors) // 2, -1))
            rows.append(Row(f"{kind}: direction error at the largest, a middle and the smallest penalty", shown))
            grown = np.median(found[f"size {kind}"][:, -1]) / -sizes["log_penalties"][-1]
            rows.append(Row(f"{kind}: radius at the end over log(1/λ) times the value", number(float(grown))))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = style.panel(r"$\log(1/\lambda)$", "direction error", 2.5, log=True)
        steps = -np.array(sizes["log_penalties"])
        for place, kind in _named(sizes):
            colour, dashes = LINES[place]
            for name, look in (
                ("penalty", {"linestyle": dashes, "label": LABELS[kind]}),
                ("ball", {"linestyle": "", "marker": "o", "markersize": 3.5, "fillstyle": "none"}),
            ):
                axis.plot(steps, np.median(found[f"{name} {kind}"][:, :, place], axis=0), color=colour, **look)
        axis.plot([], [], "o", color=GREY, fillstyle="none", markersize=3.5, label="ball of the same radius")
        style.legend_above(axis, 2)
        return figure


def _named(sizes: Sizes) -> list[tuple[int, str]]:
    """The kinds to measure, with their place among all."""
    return [(place, kind) for place, kind in enumerate(KINDS) if kind in sizes["kinds"]]


FIGURES.register(VanishingPenalty.name, VanishingPenalty())
