"""Next-token prediction with the squared loss: the direction is the graph-SVM of the tokens that are kept."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.losses import Loss
from attsvm.measures import attention_of, correlation
from attsvm.optimizers import gradient_descent, normalized_gradient_descent
from attsvm.papers.drawing import POINTS, diagonal
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers, pooled
from attsvm.papers.token_instances import attention_on_label, token_instance
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import combined_prediction, solve_svm
from attsvm.training import train

KEPT, DROPPED = 1e-2, 1e-3
"""A run counts if no probability lies between these two."""

SQUARED = Loss(lambda m: (1 - m) ** 2, lambda m: jnp.log(2 * jnp.abs(1 - m)), name="squared")
LENGTH = 0.1

PLAIN_RATE, EARLIER, LATER = 2.0, 20_000, 200_000
"""Steps of plain gradient descent between which weights are subtracted, so that what stays finite cancels."""


def _trained(embedding: str, n: int, T: int, K: int, d: int, number: int, seed: list[int], steps: int) -> Arrays:
    """Of each instance that counts: correlations of W − W_fin with two graph-SVMs, and whether these differ."""
    rng = np.random.default_rng(seed)
    instances = [token_instance(rng, embedding, n, T, K, d) for _ in range(number)]
    problem = attention_on_label(instances)
    start = rng.uniform(-(d**-0.5), d**-0.5, size=(number, d, d))
    run = train(problem, loss=SQUARED, optimizer=normalized_gradient_descent(LENGTH), steps=steps, init=start)
    attention = attention_of(problem, run.weights)[:, :, 0]
    kept = attention > KEPT
    decided = ~(~kept & (attention > DROPPED)).any(axis=(1, 2)) & ~kept.all(axis=(1, 2))
    mixed = np.flatnonzero(decided & (kept.sum(axis=2) > 1).any(axis=1))
    grown = dict(zip(mixed.tolist(), _growth(problem, mixed, start), strict=True))
    rows, once, twice = [], [], []
    for i in np.flatnonzero(decided).tolist():
        found = combined_prediction(problem[i], run.weights[i], kept[i])
        graph, weights = instances[i].graph, run.weights[i] - found.finite.weights
        of_labels = solve_svm(graph.problem(instances[i].vocabulary), graph.selected)
        if found.solution.status == of_labels.status == Status.OPTIMAL:
            labelled = graph.in_component_of_label(graph.contexts).reshape(n, T) if graph.contexts else kept[i]
            own, other = (correlation(weights, one.direction) for one in (found.solution, of_labels))
            label = instances[i].contexts == instances[i].labels[:, None]
            if i in grown and (kept[i] & label).any(axis=1).all():
                slower = (kept[i].sum(axis=1) == 1)[:, None, None]
                own_keys = instances[i].vocabulary[instances[i].contexts]
                halved = Problem(np.where(slower, own_keys, own_keys / 2), queries=own_keys[:, -1])
                once.append(correlation(grown[i], found.solution.direction))
                twice.append(correlation(grown[i], solve_svm(halved, kept[i]).direction))
            rows.append((own, other, (labelled != kept[i]).any(), (kept[i].sum(axis=-1) > 1).any()))
    own, other, differs, several = np.array(rows, float).reshape(-1, 4).T
    return {
        "kept": own,
        "labels": other,
        "differs": differs > 0,
        "several": several > 0,
        "once": np.array(once),
        "twice": np.array(twice),
        "candidates": np.array(number),
    }


def _growth(problem: Problem, some: np.ndarray, start: np.ndarray) -> np.ndarray:
    """How the weights of some instances grow between two late steps of plain gradient descent."""
    growth: np.ndarray = np.zeros((len(some), *start.shape[1:]))
    if len(some):
        run = train(
            problem[some],
            loss=SQUARED,
            optimizer=gradient_descent(PLAIN_RATE),
            steps=LATER,
            init=start[some],
            record=[EARLIER, LATER],
        )
        earlier, later = (run.history["weights"][run.history["steps"] == step][0] for step in (EARLIER, LATER))
        growth[:] = later - earlier
    return growth


class NextTokenLocal(Figure):
    name = "next-token-local"
    paper = Paper.NEXT_TOKEN
    order = 2
    title = "Squared loss: the graph-SVM of the kept tokens"
    seconds = 40
    claim = (
        "With the squared loss, gradient descent can converge locally: to the graph-SVM of the tokens that the weights "
        "end up keeping, which may differ from the tokens that the labels require. If the two differ, W has the "
        "direction of the former. If each context keeps one token, W converges. If several tokens share the attention "
        "of a context, the correlation of W − W_fin stays at about 0.98. In such a context the slope of the loss does "
        "not vanish. In a context that keeps only its label, the slope vanishes with the attention to the other "
        "tokens. So a gradient falls like exp(−margin) in the former and like exp(−2 margin) in the latter, and the "
        "margins grow at a ratio of 2 to 1. Under plain gradient descent, the growth of W has the direction of the "
        "graph-SVM with such margins. (Each point is an instance: correlation of W − W_fin with both graph-SVMs.)"
    )
    criterion = (
        "Instances count if every probability is above 1e-2 or below 1e-3, some token is dropped, and both graph-SVMs "
        "are feasible; at least 20 count. If each context keeps only its label, the selection is locally optimal "
        "(every other token has a smaller score), and the correlation with the graph-SVM exceeds 0.99. Some instances "
        "keep other tokens than the labels require; there, dropped tokens have the same score and no theorem applies. "
        "Each of these correlates more with the graph-SVM of the kept tokens than with that of the labels. For "
        "instances that keep several tokens and all labels, the growth between 20,000 and 200,000 plain steps has a "
        "median correlation above 0.999 with the graph-SVM whose margins are 2 in contexts with several tokens, and "
        "below 0.99 with the graph-SVM with equal margins."
    )
    full: ClassVar[Sizes] = {
        "n": 6,
        "T": 4,
        "K": 6,
        "d": 8,
        "embeddings": ["orthogonal", "equicorrelated", "random"],
        "instances": 200,
        "steps": 20_000,
        "seed": 0,
    }
    quick: ClassVar[Sizes] = {**full, "embeddings": ["orthogonal"], "instances": 60}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("n", "T", "K", "d", "instances")]
        seeds = {name: [sizes["seed"], place] for place, name in enumerate(sizes["embeddings"])}
        return joined({name: piece(name, _trained, name, *shape, seeds[name], sizes["steps"]) for name in seeds})

    def judge(self, sizes: Sizes, arrays: Arrays) -> Verdict:
        kept, labels, differs, several, once, twice = (
            pooled(arrays, key, sizes["embeddings"])
            for key in ("kept", "labels", "differs", "several", "once", "twice")
        )
        single = kept[~several & ~differs]
        if len(kept) < 20 or not len(single) or not len(twice):
            return verdict({"fewer than 20 instances count": False}, "")
        nearer = kept[differs] > labels[differs]
        passed = {
            "an instance that keeps its labels is off the graph-SVM": single.min() > 0.99,
            "all instances keep what the labels require": differs.any(),
            "an instance is nearer to the graph-SVM of the labels": nearer.all(),
            "the growth is off the graph-SVM with margins 1 and 2": np.median(twice) > 0.999,
            "the growth is near the graph-SVM with equal margins": np.median(once) < 0.99,
        }
        return verdict(
            passed,
            f"{len(kept)} instances count; {len(single)} of them keep only the labels. Correlation of these "
            f"with the graph-SVM of the kept tokens: median {np.median(single):.4f}, lowest {single.min():.4f}. "
            f"{int(differs.sum())} keep other tokens than the labels require; {int(nearer.sum())} of these are nearer "
            f"to the graph-SVM of the kept tokens. Growth of {len(twice)} that keep several tokens: median 1 − "
            f"correlation {1 - np.median(twice):.1e} with margins 1 and 2, {1 - np.median(once):.1e} with equal ones.",
        )

    def rows(self, sizes: Sizes, arrays: Arrays) -> list[Row]:
        rows = []
        for name in sizes["embeddings"]:
            kept, labels, differs, several = (
                arrays[f"{key} {name}"] for key in ("kept", "labels", "differs", "several")
            )
            rows.append(Row(f"{name}: instances that count", f"{len(kept)} of {int(arrays[f'candidates {name}'])}"))
            for which, what in ((~several, "one token"), (several, "several tokens")):
                if which.any():
                    summary = f"{name}: {int(which.sum())} that keep {what}, correlation, median / lowest"
                    rows.append(Row(summary, numbers((np.median(kept[which]), kept[which].min()))))
            once, twice = (arrays[f"{key} {name}"] for key in ("once", "twice"))
            if len(twice):
                of_growth = f"{name}: growth of {len(twice)} that keep several"
                medians = numbers(1 - np.median(x) for x in (twice, once))
                rows.append(Row(f"{of_growth}, median 1 − correlation, margins 1 and 2 / equal", medians))
            if differs.any():
                medians = numbers(np.median(x[differs]) for x in (kept, labels))
                summary = f"{name}: {int(differs.sum())} that keep other tokens, median correlation, kept / labels"
                rows.append(Row(summary, medians))
        return rows

    def draw(self, sizes: Sizes, arrays: Arrays) -> Drawing:
        figure, axis = style.panel("1 − correlation, labels", "1 − correlation, kept tokens", 2.6, log=True)
        for name, (colour, mark) in zip(sizes["embeddings"], POINTS, strict=False):
            x, y = (np.maximum(1 - arrays[f"{key} {name}"], 1e-8) for key in ("labels", "kept"))
            axis.plot(x, y, mark, color=colour, markersize=2.5, label=name)
        diagonal(axis)
        style.legend_above(axis, 2)
        return figure


FIGURES.register(NextTokenLocal.name, NextTokenLocal())
