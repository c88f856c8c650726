"""Compare the layer with other classifiers on the same sequences, over several seeds."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from attsvm._fit.baselines import accuracy_on, fixed_features, kernel_mean_accuracy
from attsvm._fit.layer import Plan, TrainedLayer, columns_scaled, train_layer
from attsvm._utils.progress import Callback, in_draws
from attsvm._utils.shapes import Float
from attsvm.datasets import Drawing
from attsvm.results import Status

LAYER = "this layer"
KERNEL_MEANS = "mean of random Fourier features of the tokens"
LARGEST_CLASS = "always the largest class"
RIGHT_TOKEN = "the right token alone"
"""Names of four classifiers of a comparison; the others are logistic regression on the features that they name."""


class Scores(NamedTuple):
    """The results of a classifier on the test sequences, for each seed."""

    accuracy: Float[np.ndarray, " S"]
    # share of the sequences in which the token that decides the label has the largest attention; None without attention
    right: Float[np.ndarray, " S"] | None


class ClassifierComparison(NamedTuple):
    """Several classifiers on the same training and test sequences."""

    seeds: tuple[int, ...]  # S seeds
    num_test: int  # test sequences of each seed
    scores: dict[str, Scores]  # by classifier
    seconds: float  # wall time of the comparison, without the training of the first layer
    draws: int  # number of seeds that were asked for

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it: the remaining seeds are left out."""
        return len(self.seeds) < self.draws


def compare(
    first: TrainedLayer,
    plan: Plan,
    draw: Callable[[int], Drawing],
    seeds: Sequence[int],
    callback: Callback | None = None,
    keep: Callable[[ClassifierComparison], object] | None = None,
) -> ClassifierComparison:
    """Train and test every classifier on what is drawn for each seed.

    ``first``: the layer that was trained for the first seed. ``plan``: how layers are trained. ``draw``: from a seed to
    a drawing with ``test_rows`` and ``relevant``. ``seeds``: if training is interrupted, the remaining seeds are left
    out. ``callback``: of the steps of all draws, as :func:`attsvm._utils.progress.in_draws` counts them. ``keep``:
    called after each draw with the comparison of the finished draws, as it is if nothing follows.
    """
    began = time.perf_counter()
    found: list[dict[str, tuple[float, float | None]]] = []

    def finished() -> ClassifierComparison:
        return ClassifierComparison(
            tuple(seeds[: len(found)]),
            len(test_rows),
            {name: _scores([of_seed[name] for of_seed in found]) for name in found[0]},
            time.perf_counter() - began,
            len(seeds),
        )

    for i, seed in enumerate(seeds):
        drawing = draw(seed)
        train_rows, test_rows = parts_of(drawing)
        layer = first
        if found:
            counted = in_draws(callback, i, len(seeds))
            layer = train_layer(drawing.problem, train_rows, test_rows, plan, seed, counted)
            if layer.run.status == Status.INTERRUPTED:
                break
        # logistic regression scales its features, and the kernel has one width for all columns
        problem = drawing.problem if plan.scale == "common" else columns_scaled(drawing.problem, train_rows)
        found.append(_one(layer, drawing._replace(problem=problem), train_rows, test_rows, seed))
        if keep is not None:
            keep(finished())
    return finished()


def parts_of(drawing: Drawing) -> tuple[np.ndarray, np.ndarray]:
    """The training and the test sequences of a drawing that separates them."""
    assert drawing.test_rows is not None
    return np.setdiff1d(np.arange(drawing.problem.num_sequences), drawing.test_rows), drawing.test_rows


def _one(
    layer: TrainedLayer, drawing: Drawing, train_rows: np.ndarray, test_rows: np.ndarray, seed: int
) -> dict[str, tuple[float, float | None]]:
    """Accuracy, and share of right tokens, of every classifier for one seed."""
    problem, relevant = drawing.problem, drawing.relevant
    assert relevant is not None
    assert problem.labels is not None
    labels = problem.labels
    _, on_test = layer.evaluations()
    assert on_test is not None
    truth = relevant[test_rows]
    right = float((on_test.attention[:, 0].argmax(axis=-1) == truth).mean())
    found: dict[str, tuple[float, float | None]] = {LAYER: (on_test.accuracy, right)}
    of_features = {**fixed_features(problem), RIGHT_TOKEN: problem.tokens[np.arange(len(relevant)), relevant]}
    for name, features in of_features.items():
        rows = {"train": train_rows, "test": test_rows}
        parts = {part: (features[chosen], labels[chosen]) for part, chosen in rows.items()}
        found[name] = accuracy_on(parts)["test"], None
    train, test = ((problem.tokens[rows], labels[rows]) for rows in (train_rows, test_rows))
    found[KERNEL_MEANS] = kernel_mean_accuracy(*train, *test, seed), None
    usual = 1 if labels[train_rows].mean() > 0 else -1
    found[LARGEST_CLASS] = float((labels[test_rows] == usual).mean()), None
    # the classifier that uses the right token comes last
    found[RIGHT_TOKEN] = found.pop(RIGHT_TOKEN)
    return found


def _scores(of_seeds: list[tuple[float, float | None]]) -> Scores:
    accuracy, right = zip(*of_seeds, strict=True)
    return Scores(np.array(accuracy), None if right[0] is None else np.array(right))
