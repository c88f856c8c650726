"""How many tokens attention keeps under the head v'o − λ‖o‖²."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure

from attsvm._utils.linear_algebra import softmax, unit_vectors
from attsvm.heads import Quadratic
from attsvm.optimizers import normalized_gradient_descent
from attsvm.pages import number
from attsvm.papers.drawing import set_axes
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes, each, stacked
from attsvm.papers.figures import FIGURES
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.plot import DATA, style
from attsvm.problem import Problem
from attsvm.selection import scores
from attsvm.training import train

KEPT = 1e-3

OPTIMIZER = normalized_gradient_descent(lambda step: 0.3 / (1 + step / 50))
"""The shares converge only if the steps vanish; the other tokens are dropped because the sum of the steps diverges."""


def orthonormal_problem(T: int, d: int, runs: int, seed: int, self_attention: bool = False) -> Problem:
    """Problems of one sequence of orthonormal tokens, label 1, and a head of norm 1; a query of norm 1, or z = x_1."""
    generator = np.random.default_rng(seed)
    tokens = np.linalg.qr(generator.standard_normal((runs, 1, d, T)))[0].mT
    head, query = unit_vectors(generator, 2, runs, d)
    queries = tokens[:, :, 0] if self_attention else query[:, None]
    return Problem(tokens, labels=np.ones((runs, 1)), queries=queries, head=head)


def best_attention(gamma: np.ndarray, curvature: float) -> np.ndarray:
    """The attention that maximises Σ γ_t a_t − λ Σ a_t², the output of the head on orthonormal tokens.

    For λ > 0 that is the point of the simplex nearest to γ/(2λ), found by sorting; for λ = 0 the best token.
    """
    if curvature == 0:
        return np.where(gamma == gamma.max(axis=-1, keepdims=True), 1.0, 0.0)
    goal = gamma / (2 * curvature)
    falling = -np.sort(-goal, axis=-1)
    counts = np.arange(1, goal.shape[-1] + 1)
    excess = np.cumsum(falling, axis=-1) - 1
    size = np.sum(falling * counts > excess, axis=-1, keepdims=True)
    return np.asarray(np.maximum(goal - np.take_along_axis(excess, size - 1, axis=-1) / size, 0.0))


def _kept(curvature: float, T: int, d: int, runs: int, seed: int, steps: int, self_attention: bool) -> Arrays:
    problem = orthonormal_problem(T, d, runs, seed, self_attention)
    run = train(problem, head=Quadratic(curvature), steps=steps, record=1, optimizer=OPTIMIZER)
    assert problem.queries is not None
    logits = (problem.tokens @ (problem.queries @ run.weights.mT)[..., None])[..., 0]
    attention = softmax(logits)
    best = best_attention(scores(problem), curvature)
    return {
        "kept": np.sum(attention > KEPT, axis=-1)[:, 0],
        "predicted": np.sum(best > 0, axis=-1)[:, 0],
        "same": np.all((attention > KEPT) == (best > 0), axis=(-2, -1)),
        "error": np.abs(attention - best).max(axis=(-2, -1)),
    }


class TokensKept(CrossAndSelf):
    name = "tokens-kept"
    paper = Paper.TRANSFORMERS
    order = 7
    title = "Tokens kept with the prediction head v'o − λ‖o‖²"
    seconds = 30
    claim = (
        "On orthonormal tokens, the prediction head v'o − λ‖o‖² makes attention keep more tokens for larger λ, from "
        "one token to all (mean and 10-90 % range). The optimal attention is known exactly: it is the point of the "
        "simplex closest to γ/(2λ), where γ are the token scores."
    )
    criterion = (
        "The mean number of tokens kept (probability above 1e-3) grows with every λ, and in 19 of 20 runs no larger "
        "λ keeps fewer tokens. λ = 0 keeps one token and the largest λ keeps all. Nine in ten runs keep exactly the "
        "tokens of the optimum, and no probability differs from the optimum by more than stated."
    )
    ascending: ClassVar = ("lambda",)
    full: ClassVar[Sizes] = {
        "T": 10,
        "d": 10,
        "runs": 100,
        "lambda": [0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        "steps": 4000,
        "seed": 0,
        "error_below": 0.05,
        "queries": {"cross": {}, "self": {}},
    }
    quick: ClassVar[Sizes] = {
        **full,
        "runs": 20,
        "lambda": [0.0, 0.5, 5.0],
        "queries": {"cross": {}, "self": {"lambda": [0.0, 5.0]}},
    }

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        arguments = [sizes[name] for name in ("T", "d", "runs", "seed", "steps")]
        return stacked(each(piece, sizes["lambda"], _kept, *arguments, self_attention).values())

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        mean = found["kept"].mean(axis=1)
        rising = np.diff(found["kept"], axis=0)
        passed = {
            "the mean number of tokens kept does not grow with λ": (np.diff(mean) > 0).all(),
            "in more than one run of 20 a larger λ keeps fewer tokens": (rising >= 0).all(axis=0).mean() >= 0.95,
            "λ = 0 keeps more than one token": sizes["lambda"][0] == 0 and (found["kept"][0] == 1).all(),
            "the largest λ does not keep all": (found["kept"][-1] == sizes["T"]).all(),
            "more than one run in ten keeps other tokens than the optimum": found["same"].mean() >= 0.9,
            "an attention differs from the optimum by more than stated": found["error"].max() < sizes["error_below"],
        }
        return Judged(
            passed,
            f"The mean number of tokens kept grows from {mean[0]:.2f} at λ = {sizes['lambda'][0]:g} to {mean[-1]:.2f} "
            f"at λ = {sizes['lambda'][-1]:g}. {found['same'].mean():.1%} of the runs keep the tokens of the optimum; "
            f"the largest difference between an attention and the optimum is {found['error'].max():.1e}.",
        )

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        return [
            Row(
                f"λ = {curvature:g}: mean number kept / in the optimum",
                f"{number(kept.mean())} / {number(predicted.mean())}",
            )
            for curvature, kept, predicted in zip(sizes["lambda"], found["kept"], found["predicted"], strict=True)
        ]

    def height(self, sizes: Sizes) -> float:
        return 2.3

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        axis = figure.subplots(subplot_kw=DATA)
        set_axes(axis, "λ", "tokens kept")
        curvatures = np.array(sizes["lambda"])
        name, kept = "after training", found["kept"]
        style.spread(axis, curvatures, kept, style.BLUE, "-", name, middle=np.mean, marker="o", markersize=3.5)
        axis.plot(
            curvatures, found["predicted"].mean(axis=1), "--", color=style.VERMILLION, label="optimum of the head"
        )
        axis.set_xscale("symlog", linthresh=float(curvatures[1]), linscale=0.5)
        axis.set_xticks(curvatures, [f"{curvature:g}" for curvature in curvatures])
        axis.set_xlim(curvatures[0], curvatures[-1] * 1.05)
        axis.set_ylim(0, sizes["T"] + 0.5)
        style.legend_above(axis, 2)


FIGURES.register(TokensKept.name, TokensKept())
