"""Several tokens kept under a ReLU head, predicted by finite part and direction, by the direction, or by one token."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure
from scipy.stats import spearmanr

from attsvm._utils.linear_algebra import unit_vectors
from attsvm.heads import MLP
from attsvm.measures import attention_of, direction_error
from attsvm.papers.drawing import legend_over, set_axes
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes, joined
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import median_of, numbers
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.plot import DATA, style
from attsvm.problem import Problem
from attsvm.svm import combined_prediction, solve_svm
from attsvm.training import Run, train

DROPPED, KEPT = 1e-6, 1e-3
"""A run counts if no probability lies between these two."""

PREDICTIONS = {
    "combined": r"$W_\mathrm{fin} + R\,W_\mathrm{mm}$",
    "direction": r"$W_\mathrm{mm}$",
    "one token": "one token",
}
LINES = ((style.BLUE, "-"), (style.GREEN, "-."), (style.VERMILLION, "--"))
DIMENSION_MARKS = ((style.BLUE, "v"), (style.GREEN, "o"), (style.VERMILLION, "d"), (style.PURPLE, "^"))


def _candidates(
    n: int, T: int, d: int, number: int, seed: list[int], self_attention: bool
) -> tuple[Problem, MLP, np.ndarray]:
    """Problems without a linear head, their ReLU heads, and starts; at least one label of each problem is −1."""
    generator = np.random.default_rng(seed)
    hidden = generator.standard_normal((number, d, d))
    hidden /= np.linalg.norm(hidden, axis=(-2, -1), keepdims=True)
    labels = generator.choice([-1.0, 1.0], size=(number, n))
    while (allplus := (labels > 0).all(axis=-1)).any():
        # as in the published comparison, problems whose labels are all +1 are left out
        labels[allplus] = generator.choice([-1.0, 1.0], size=(int(allplus.sum()), n))
    tokens, queries = unit_vectors(generator, number, n, T, d), unit_vectors(generator, number, n, d)
    problem = Problem(tokens, labels=labels, queries=tokens[:, :, 0] if self_attention else queries)
    return problem, MLP(hidden), generator.uniform(-(d**-0.5), d**-0.5, size=(number, d, d))


def errors_of_runs_that_count(problem: Problem, run: Run) -> tuple[Arrays, np.ndarray]:
    """Direction errors to each of :data:`PREDICTIONS`, and which runs are decided.

    A run counts if it is decided, drops a token, and both Att-SVMs are feasible.
    """
    attention = attention_of(problem, run.weights)[..., 0, :]
    kept = attention > KEPT
    decided = ~(~kept & (attention > DROPPED)).any(axis=(-2, -1))
    # if nothing is dropped the weights converge, and have no direction
    chosen = np.flatnonzero(decided & ~kept.all(axis=(-2, -1)))
    if not chosen.size:
        raise ValueError("expected a run that is decided, got none")
    problem, attention, kept = problem[chosen], attention[chosen], kept[chosen]
    combined = combined_prediction(problem, run.weights[chosen], kept)
    single = solve_svm(problem, attention.argmax(axis=-1))
    feasible = (np.asarray(combined.solution.status) == "optimal") & (np.asarray(single.status) == "optimal")
    predicted = (combined.weights, combined.solution.direction, single.direction)
    weights = run.history["weights"][1:, chosen[feasible]]
    found: Arrays = {
        name: np.asarray(direction_error(weights, prediction[feasible], axis=(-2, -1)))
        for name, prediction in zip(PREDICTIONS, predicted, strict=True)
    }
    found["dropped"] = np.where(kept, 0.0, attention).max(axis=(-2, -1))[feasible]
    found["several"] = (kept.sum(axis=-1) > 1).any(axis=-1)[feasible]
    return found | {"steps": run.history["steps"][1:]}, np.asarray(decided)


def draw_errors(axis: Axes, found: Arrays, name: object) -> None:
    """Draw the mean errors of the runs against the steps."""
    for (key, label), (colour, dashes) in zip(PREDICTIONS.items(), LINES, strict=True):
        axis.plot(found[f"steps {name}"], found[f"{key} {name}"].mean(axis=1), dashes, color=colour, label=label)
    set_axes(axis, log="xy")


def _some(d: int, number: int, seed: list[int], sizes: Sizes, self_attention: bool) -> Arrays:
    """Direction errors of the decided and feasible candidates."""
    problem, head, start = _candidates(sizes["n"], sizes["T"], d, number, seed, self_attention)
    run = train(problem, head=head, init=start, steps=sizes["steps"], record=40)
    return errors_of_runs_that_count(problem, run)[0] | {"candidates": np.asarray(number)}


def _dimension(d: int, candidates: int, sizes: Sizes, self_attention: bool) -> Arrays:
    """The first runs that count. Candidates are drawn in rounds until there are enough."""
    rounds: list[Arrays] = []
    runs = sizes["runs"]
    while sum(found["dropped"].size for found in rounds) < runs:
        rounds.append(_some(d, candidates, [sizes["seed"], d, len(rounds)], sizes, self_attention))
    joined = {name: np.concatenate([found[name] for found in rounds], axis=-1)[..., :runs] for name in PREDICTIONS}
    joined |= {name: np.concatenate([found[name] for found in rounds])[:runs] for name in ("dropped", "several")}
    accepted = sum(found["dropped"].size for found in rounds) / sum(int(found["candidates"]) for found in rounds)
    return joined | {"steps": rounds[0]["steps"], "accepted": np.asarray(accepted)}


def _ends(found: Arrays, d: int) -> dict[str, np.ndarray]:
    return {name: found[f"{name} {d}"][-1] for name in PREDICTIONS}


class NonlinearHead(CrossAndSelf):
    name = "nonlinear-head"
    paper = Paper.TRANSFORMERS
    order = 6
    title = "A nonlinear prediction head keeps several tokens"
    seconds = 150
    claim = (
        "With a nonlinear prediction head, W behaves like W_fin + R·W_mm: a finite part that distributes the attention "
        "among the kept tokens, and the Att-SVM direction of these sets of tokens. This sum predicts W better than the "
        "direction alone, which in turn is better than the Att-SVM of one token per sequence. The error falls with the "
        "dropped probabilities. (Means over the runs. Bottom: each run at its end; probabilities below 1e-60 are drawn "
        "at 1e-60.)"
    )
    criterion = (
        "In each dimension the combined prediction has the smallest mean error, and a larger error than the "
        "direction alone in at most one run of 20. The mean error of the direction is below that of one token. The "
        "error falls to a fifth over the run and has a rank correlation above 0.5 with the largest dropped "
        "probability; its median over the most saturated runs is below the stated one. Runs count if every "
        "probability is above 1e-3 or below 1e-6, some token is dropped, and the selections are feasible."
    )
    full: ClassVar[Sizes] = {
        "n": 3,
        "T": 4,
        "dims": [4, 6, 8, 10],
        "runs": 500,
        "candidates": [2000, 2000, 5000, 8000],
        "steps": 2000,
        "seed": 0,
        "far_below": 1e-30,
        "error_below": 1e-2,
        "queries": {"cross": {}, "self": {"dims": [4, 8], "runs": 200, "candidates": [1000, 2000]}},
    }
    quick: ClassVar[Sizes] = {
        **full,
        "dims": [6],
        "runs": 40,
        "candidates": [400],
        "far_below": 1e-20,
        "queries": {"cross": {}, "self": {}},
    }

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        dims = zip(sizes["dims"], sizes["candidates"], strict=True)
        return joined({f"{d}": piece(f"d{d}", _dimension, d, drawn, dict(sizes), self_attention) for d, drawn in dims})

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        dims = sizes["dims"]
        if any(found[f"several {d}"].sum() < sizes["runs"] / 10 for d in dims):
            return Judged({"too few runs keep several tokens": False}, "")
        ends = {d: _ends(found, d) for d in dims}
        mean = {d: {name: float(end.mean()) for name, end in ends[d].items()} for d in dims}
        ranks = {d: spearmanr(found[f"dropped {d}"], ends[d]["combined"]).statistic for d in dims}
        saturated = {d: ends[d]["combined"][found[f"dropped {d}"] < sizes["far_below"]] for d in dims}
        passed = {
            "the combined prediction does not have the smallest mean error": all(
                mean[d]["combined"] < min(mean[d]["direction"], mean[d]["one token"]) for d in dims
            ),
            "in more than one run of 20 it has a larger error than the direction alone": all(
                np.mean(ends[d]["combined"] <= ends[d]["direction"] * (1 + 1e-9)) >= 0.95 for d in dims
            ),
            "the direction of the kept sets is not better than that of single tokens": all(
                mean[d]["direction"] < mean[d]["one token"] for d in dims
            ),
            "the error does not fall over the run": all(
                found[f"combined {d}"][-1].mean() < 0.2 * found[f"combined {d}"][0].mean() for d in dims
            ),
            "the error does not fall with the largest dropped probability": all(rank > 0.5 for rank in ranks.values()),
            "the most saturated runs are not close to the prediction": all(
                errors.size > 0 and np.median(errors) < sizes["error_below"] for errors in saturated.values()
            ),
        }
        summary = "; ".join(
            f"d = {d}: {mean[d]['combined']:.2g}, {mean[d]['direction']:.2g}, {mean[d]['one token']:.2g}" for d in dims
        )
        low, high = min(ranks.values()), max(ranks.values())
        spread = f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
        return Judged(
            passed,
            f"Mean errors at the end of the combined prediction, the direction and one token: {summary}. Rank "
            f"correlation between the error and the largest dropped probability: {spread}.",
        )

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for d in sizes["dims"]:
            several, accepted = found[f"several {d}"].mean(), float(found[f"accepted {d}"])
            counted = f"d = {d}: random problems that count; share of them that keep several tokens"
            rows += [
                Row(
                    f"d = {d}: median error, combined / direction / one token",
                    numbers(median_of(end) for end in _ends(found, d).values()),
                ),
                Row(counted, f"{accepted:.1%}; {several:.0%}"),
            ]
        return rows

    def height(self, sizes: Sizes) -> float:
        return 1.35 * -(-len(sizes["dims"]) // 2) + 2.6

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        dims = sizes["dims"]
        rows = -(-len(dims) // 2)
        grid = figure.add_gridspec(rows + 1, 2, height_ratios=[1.0] * rows + [1.5])
        first: Axes | None = None
        for i, d in enumerate(dims):
            axis = figure.add_subplot(grid[divmod(i, 2)], sharex=first, sharey=first, **DATA)
            first = first or axis
            draw_errors(axis, found, d)
            axis.set_title(f"d = {d}", pad=3)
            axis.tick_params(labelbottom=i >= len(dims) - 2, labelleft=i % 2 == 0)
            if i % 2 == 0:
                axis.set_ylabel("direction error")
            if i >= len(dims) - 2:
                axis.set_xlabel("steps")
        assert first is not None
        legend_over(figure, first, 3, columnspacing=1.2)
        scatter = figure.add_subplot(grid[rows, :], **DATA)
        for d, (colour, mark) in zip(dims, DIMENSION_MARKS, strict=False):
            dropped, errors = np.maximum(found[f"dropped {d}"], 1e-60), np.maximum(found[f"combined {d}"][-1], 1e-8)
            look: dict[str, Any] = {"color": colour, "markersize": 2, "alpha": 0.5, "markeredgewidth": 0}
            scatter.plot(dropped, errors, mark, **look, label=f"d = {d}")
        set_axes(scatter, "largest dropped probability", "direction error", log="xy")
        scatter.set_xticks([10.0**power for power in range(-60, 0, 10)])
        legend = scatter.legend(loc="upper left", handletextpad=0.2, markerscale=1.6)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1.0)


FIGURES.register(NonlinearHead.name, NonlinearHead())
