"""Steps on mini-batches: normalised by the batch they leave the Att-SVM, by a running average they do not."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.measures import direction_error
from attsvm.optimizers import Optimizer, log_gradient_descent, normalized_gradient_descent
from attsvm.papers.drawing import legend_over, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens
from attsvm.theory import mini_batch_direction
from attsvm.training import train

RULES = {
    "log excess of the batch": (style.BLUE, "-", "o"),
    "norm of the batch": (style.VERMILLION, "--", "s"),
    "running average": (style.GREEN, "-.", "^"),
}
LEAST = 1e-9
"""Smaller direction errors are drawn here."""


def planted_problems(n: int, T: int, d: int, problems: int, seed: int) -> Problem:
    """Problems with more sequences than unknowns, and tokens that can be selected.

    Of 8n random sequences those are taken whose best token is farthest ahead in the logits of random weights; the value
    of a token is 1 if it is the best one, else 0.
    """
    generator, parts = np.random.default_rng(seed), []
    for _ in range(problems):
        weights = generator.standard_normal((d, d))
        keys, queries = generator.standard_normal((8 * n, T, d)), generator.standard_normal((8 * n, d))
        logits = np.einsum("ntd,de,ne->nt", keys, weights, queries)
        ordered = np.sort(logits, axis=1)
        kept = np.argsort(ordered[:, -2] - ordered[:, -1])[:n]
        parts.append((keys[kept], queries[kept], logits[kept].argmax(axis=1)))
    keys, queries, best = (np.array(part) for part in zip(*parts, strict=True))
    tokens = (best[..., None] == np.arange(T))[..., None].astype(float)
    return Problem(tokens, np.ones((problems, n)), queries=queries, head=np.ones((problems, 1)), keys=keys)


def growing(step: Any) -> Any:
    return 0.1 * (1 + step / 100)


def _optimizer(rule: str, size: int, n: int) -> Optimizer:
    if rule == "running average":
        # over about one epoch
        return normalized_gradient_descent(0.1, average=1 - 1 / (n // size + 1))
    return normalized_gradient_descent(growing) if rule == "norm of the batch" else log_gradient_descent(growing)


def _runs(size: int, rule: str, steps: int, n: int, T: int, d: int, problems: int, seed: int) -> Arrays:
    problem = planted_problems(n, T, d, problems, seed)
    selected = optimal_tokens(problem)
    run = train(
        problem,
        optimizer=_optimizer(rule, size, n),
        steps=steps,
        batch_size=None if size == n else size,
        record=[steps // 4, steps],
    )
    found = mini_batch_direction(problem, selected, size)
    weights = run.history["weights"]

    def away(direction: np.ndarray) -> np.ndarray:
        return np.asarray(direction_error(weights, np.broadcast_to(direction, weights.shape), axis=(-2, -1)))

    return {
        "to_att_svm": away(found.att_svm.direction),
        "to_batch": away(found.direction),
        "apart": np.asarray(direction_error(found, found.att_svm)),
        "assumed": (run.selected == selected).all(axis=-1) & (found.margins.min(axis=-1) > 0),
        "gap": np.asarray(found.gap),
    }


class MiniBatchesFigure(Figure):
    name = "mini-batches"
    paper = Paper.OURS
    order = 7
    title = "Normalised steps on mini-batches"
    seconds = 60
    claim = (
        "Each step uses a batch of b of n sequences. Steps divided by the excess loss of their own batch converge to "
        "the direction with the largest expected margin of a batch, which is not the Att-SVM. Steps divided by the "
        "norm of the gradient of their own batch leave the Att-SVM for another direction. Steps divided by a running "
        "average of these norms converge to the Att-SVM. (Medians over the problems. Thick grey line: the distance "
        "from the Att-SVM to the direction with the largest expected margin; errors below 1e-9 are drawn there.)"
    )
    criterion = (
        "If the run selects the optimal tokens and the direction has only positive margins, steps divided by the "
        "excess loss end within the stated error of this direction at every batch size. At the smallest batch, steps "
        "divided by the norm of the batch gradient end more than 1e-3 from it and from the Att-SVM. At every batch "
        "size, the median error to the Att-SVM of steps divided by the running average ends below the stated one, and "
        "below half of that after a quarter of the steps. Every gap is at most 1e-8."
    )
    ascending: ClassVar = ("batches",)
    full: ClassVar[Sizes] = {
        "batches": [1, 2, 4, 6, 12, 30, 60],
        "n": 60,
        "T": 4,
        "d": 4,
        "problems": 12,
        "steps": 40_000,
        "seed": 0,
        "error_below": 1e-4,
        "average_below": 1e-3,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "batches": [1, 12],
        "problems": 3,
        "steps": 5000,
        "error_below": 1e-3,
        "average_below": 5e-3,
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("steps", "n", "T", "d", "problems", "seed")]
        return joined(
            {
                rule: stacked([piece(f"{k}-{size}", _runs, size, rule, *shape) for size in sizes["batches"]])
                for k, rule in enumerate(RULES)
            }
        )

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        by_excess, by_norm, by_average = RULES
        assumed = found[f"assumed {by_excess}"]
        error = found[f"to_batch {by_excess}"][:, -1][assumed]
        nearest = min(float(np.median(found[f"{key} {by_norm}"][0, -1])) for key in ("to_batch", "to_att_svm"))
        early, late = (np.median(found[f"to_att_svm {by_average}"][:, k], axis=-1) for k in (0, -1))
        passed = {
            "no run meets the hypotheses": assumed.any(),
            "steps divided by the excess do not end at the largest expected margin": error.max(initial=0)
            < sizes["error_below"],
            "steps divided by the norm of the smallest batch end at one of the two directions": nearest > 1e-3,
            "steps divided by the running average do not approach the Att-SVM": (late < sizes["average_below"]).all(),
            "steps divided by the running average have stopped approaching it": (late < early / 2).all(),
            "a gap exceeds 1e-8": found[f"gap {by_excess}"].max() <= 1e-8,
        }
        return verdict(
            passed,
            f"Steps divided by the excess end within {error.max(initial=0):.1e} of the direction with the largest "
            f"expected margin in {assumed.sum()} of {assumed.size} runs, those that meet the hypotheses. At b = "
            f"{sizes['batches'][0]}, steps divided by the norm of the batch end at least {nearest:.1e} from both "
            f"directions. Steps divided by the running average end at most {late.max():.1e} from the Att-SVM.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for k, size in enumerate(sizes["batches"]):
            apart = np.median(found[f"apart {next(iter(RULES))}"][k])
            errors = (f"{rule} {np.median(found[f'to_att_svm {rule}'][k, -1]):.1e}" for rule in RULES)
            rows.append(Row(f"b = {size}: direction error to the Att-SVM; {apart:.1e} predicted", "; ".join(errors)))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axes = panels(4.0, 2, sharex=True)
        batches = np.array(sizes["batches"])
        keys = {"to_att_svm": "to the Att-SVM", "to_batch": "to the direction of largest expected margin"}
        for axis, (key, name) in zip(axes, keys.items(), strict=True):
            for rule, (colour, dashes, marker) in RULES.items():
                errors = np.maximum(np.median(found[f"{key} {rule}"][:, -1], axis=-1), LEAST)
                axis.plot(batches, errors, color=colour, linestyle=dashes, marker=marker, markersize=3, label=rule)
            axis.set_title(name)
            set_axes(axis, y="direction error", log="xy")
            axis.set_ylim(LEAST / 2, 0.3)
        apart = np.maximum(np.median(found[f"apart {next(iter(RULES))}"], axis=-1), LEAST)
        axes[0].plot(batches, apart, color="0.75", linewidth=4, zorder=0, label="largest expected margin")
        set_axes(axes[1], "batch size b")
        axes[1].set_xticks(batches, [str(size) for size in batches])
        axes[1].minorticks_off()
        legend_over(figure, axes[0], 2)
        return figure


FIGURES.register(MiniBatchesFigure.name, MiniBatchesFigure())
