"""The share of sequences with support tokens, compared with the errors on new sequences."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.papers.drawing import panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.svm import Solution, solve_svm

KINDS = {"hard margins": (style.BLUE, "o"), "soft margins": (style.VERMILLION, "s")}


def _taught(number: int, size: int, sizes: Sizes, random: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, queries, and the tokens to select: those of largest logit of random weights, or random ones."""
    T, d, generator = sizes["T"], sizes["d"], np.random.default_rng([sizes["seed"], size])
    weights = generator.standard_normal((number, d, d))
    tokens, queries = generator.standard_normal((number, size, T, d)), generator.standard_normal((number, size, d))
    best = np.einsum("pntk,pkq,pnq->pnt", tokens, weights, queries).argmax(axis=-1)
    other = generator.integers(T, size=best.shape)
    return tokens, queries, np.where(generator.random(best.shape) < random, other, best)


def _errors(kind: str, n: int, sizes: Sizes) -> Arrays:
    """The bound of each problem of n sequences, and the error of the Att-SVM of n − 1 of them on new sequences."""
    soft = kind == "soft margins"
    number, slack = sizes["problems"], sizes["slack"] if soft else None
    tokens, queries, selected = _taught(number, n + sizes["new"], sizes, sizes["random"] if soft else 0.0)

    def solved(size: int) -> Solution:
        return solve_svm(Problem(tokens[:, :size], queries=queries[:, :size]), selected[:, :size], slack=slack)

    logits = np.einsum("pntk,pkq,pnq->pnt", tokens[:, n:], solved(n - 1).direction, queries[:, n:])
    wrong = logits.argmax(axis=-1) != selected[:, n:]
    return {"bound": np.asarray(solved(n).leave_one_out), "error": wrong.mean(axis=-1)}


class LeaveOneOut(Figure):
    name = "leave-one-out"
    paper = Paper.OURS
    order = 9
    title = "A bound on the errors on new sequences"
    seconds = 45
    claim = (
        "The token to select is the one of largest logit of a teacher, random weights. On average over the problems, "
        "the share of n sequences that have support tokens is at least the share of new sequences whose token the "
        "Att-SVM of n − 1 sequences does not select. With soft margins, a tenth of the tokens are random. (Means "
        "over the problems, and their 95 % confidence intervals.)"
    )
    criterion = (
        "At each n, the mean bound is at least the mean error, and all solutions are optimal. At the largest n, the "
        "bound is at most three times the error, the error is at most half of that of a random token, and with hard "
        "margins the bound is at most half of that at the smallest n."
    )
    ascending: ClassVar = ("n",)
    full: ClassVar[Sizes] = {
        "n": [5, 10, 20, 40, 80],
        "T": 5,
        "d": 4,
        "new": 1000,
        "problems": 40,
        "slack": 1.0,
        "random": 0.1,
        "seed": 110_011,
    }
    quick: ClassVar[Sizes] = {**full, "n": [5, 40], "problems": 10}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        own = {name: sizes[name] for name in sizes if name != "n"}
        return joined(
            {
                kind: stacked([piece(f"{k}-{n}", _errors, kind, n, own) for n in sizes["n"]])
                for k, kind in enumerate(KINDS)
            }
        )

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        passed, words = {}, []
        for kind in KINDS:
            bound, error = (found[f"{key} {kind}"].mean(axis=1) for key in ("bound", "error"))
            passed[f"{kind}: a solution is not optimal"] = np.isfinite(bound).all()
            passed[f"{kind}: a mean bound is below the mean error"] = (bound >= error).all()
            passed[f"{kind}: the bound exceeds three times the error"] = bound[-1] <= 3 * error[-1]
            passed[f"{kind}: the error is that of chance"] = error[-1] <= (1 - 1 / sizes["T"]) / 2
            if kind == "hard margins":
                passed[f"{kind}: the bound does not fall"] = bound[-1] <= bound[0] / 2
            words.append(f"{bound[-1]:.3f} and {error[-1]:.3f} ({kind})")
        return verdict(passed, f"At n = {sizes['n'][-1]}, the mean bound and the mean error are {' and '.join(words)}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for kind in KINDS:
            means = (found[f"{key} {kind}"].mean(axis=1) for key in ("bound", "error"))
            for n, bound, error in zip(sizes["n"], *means, strict=True):
                rows.append(Row(f"{kind}, n = {n}: bound / error", f"{bound:.3f} / {error:.3f}"))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axis = panels(2.4, 1)
        for kind, (colour, marker) in KINDS.items():
            for key, dashes, name in (("bound", "-", "bound"), ("error", "--", "error")):
                style.spread(
                    axis,
                    np.array(sizes["n"]),
                    found[f"{key} {kind}"],
                    colour,
                    dashes,
                    f"{name}, {kind}",
                    middle=np.mean,
                    limits=style.interval_of_mean,
                    marker=marker,
                    markersize=3,
                )
        set_axes(axis, "sequences n", "share of sequences", log="xy")
        axis.set_xticks(sizes["n"], [str(n) for n in sizes["n"]])
        axis.set_yticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
        axis.minorticks_off()
        style.legend_above(axis, 2)
        return figure


FIGURES.register(LeaveOneOut.name, LeaveOneOut())
