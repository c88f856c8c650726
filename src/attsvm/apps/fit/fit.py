"""The application: train attention; with a fixed head, compare its weights with the Att-SVM of what it selects."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attsvm._utils.checks import MOST_STEPS, check_integer, check_positive, check_seed
from attsvm._utils.progress import Callback
from attsvm.apps.fit.baseline import baseline_accuracy
from attsvm.apps.fit.comparison import Comparison, compare
from attsvm.apps.fit.history import fit_history
from attsvm.apps.fit.layer import Layer, make_plan, train_layer
from attsvm.apps.fit.result import Fit
from attsvm.datasets.source import Drawing, Source
from attsvm.datasets.splits import check_labelled, split
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.training import Run


def fit(
    problem: Problem | Drawing,
    *,
    train_head: bool | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    steps: int | None = None,
    learning_rate: float | None = None,
    device: str | None = None,
    callback: Callback | None = None,
    keep: Callable[[Run], object] | None = None,
) -> Fit:
    """Split and train; with a fixed head, compare the trained direction with the Att-SVM of the selected tokens.

    The attention is combined (W) for a problem with queries and a prompt (p) otherwise. A prompt that is trained
    together with its head is an :class:`attsvm.AttentionClassifier` with its default settings: tokens are scaled, the
    weights have a penalty, and a tenth of the training sequences decides when to stop. Otherwise a problem without a
    head gets logistic regression on the mean token, scaled to unit norm, as its initial head.

    ``problem``: with labels ±1 and no batch axes; n sequences. A drawing may name its test sequences, and the token of
    each sequence that decides its label. ``train_head``: whether to train the head together with the attention, which
    predicts better. By default it is trained if the problem has no head. With a fixed head the theory of training the
    attention alone applies. ``test_fraction``: share of each class that is set apart for testing, in [0, 1), unless a
    drawing names its test sequences. ``seed``: seed of the split and of the classifier. ``steps``: steps of normalized
    gradient descent, or the most that the classifier makes; by default 5,000; 100,000 with a fixed head, if the tokens
    are at most 200,000 numbers. ``learning_rate``: step size η; by default 0.01 for the classifier (Adam), otherwise
    0.1. With a fixed head step k has size η (1 + k/100), because the direction converges like 1/‖p‖. With a trained one
    W and head, or prompt and head if there are keys, are each normalized by their own norm. ``device``, ``callback``:
    passed on to the training. ``keep``: called with the run before anything is computed from it.

    Raises ProblemError if the problem cannot be trained on, or an argument is out of range.

    References: Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Theorem 3
    (fixed head).
    """
    start = time.perf_counter()
    drawing = problem if isinstance(problem, Drawing) else Drawing(problem)
    data, relevant = drawing.problem, drawing.relevant
    check_labelled(data)
    _check(seed, steps, learning_rate)
    train_rows, test_rows = _parts(drawing, test_fraction, seed)
    plan = make_plan(data, train_head, steps, learning_rate, device)
    began = time.perf_counter()
    layer = train_layer(data, train_rows, test_rows, plan, seed, callback)
    seconds = {"training": time.perf_counter() - began}
    run = layer.run
    if keep is not None:
        keep(run)
    on_train, on_test = layer.evaluations()
    with warnings.catch_warnings():  # the page says in words where tokens are tied
        warnings.simplefilter("ignore", UserWarning)
        best = optimal_tokens(layer.train)

    def att_svm(selected: np.ndarray | None) -> Solution | None:
        return None if plan.train_head or selected is None else solve_svm(layer.train, selected)

    deciding = None if relevant is None else {"train": relevant[train_rows], "test": relevant[test_rows]}
    done = Fit(
        train=layer.train,
        test=layer.test,
        test_rows=test_rows,
        relevant=deciding,
        run=run,
        on_train=on_train,
        on_test=on_test,
        baseline=baseline_accuracy(layer.train, layer.test),
        optimal_tokens=best,
        optimal=att_svm(best),
        chosen=att_svm(run.selected),
        relevant_svm=att_svm(None if deciding is None else deciding["train"]),
        history={},
        settings={**plan.settings(), "test_fraction": test_fraction},
        seconds=seconds,
    )
    return replace(done, history=fit_history(done), seconds={**seconds, "everything": time.perf_counter() - start})


def compare_seeds(
    done: Fit,
    source: Source,
    seed: int,
    number: int,
    device: str | None = None,
    callback: Callback | None = None,
    keep: Callable[[Comparison], object] | None = None,
) -> Comparison:
    """Compare a fit with other classifiers, over several draws of its source.

    ``done``: of the drawing for ``seed``. ``source``: its drawings name the test sequences and the tokens that decide
    the labels. ``seed``: the first seed. ``number``: how many seeds. ``device``: passed on to the training.
    ``callback``: of the steps of all draws, as :func:`attsvm._utils.progress.in_draws` counts them. ``keep``: called
    with the comparison of the finished draws, as in :func:`attsvm.apps.fit.comparison.compare`.
    """
    settings = done.settings
    plan = make_plan(done.train, settings["head"] == "trained", settings["steps"], settings["learning_rate"], device)

    def draw(seed: int) -> Drawing:
        return source.drawing(seed, settings["test_fraction"])

    return compare(Layer(done.train, done.test, done.run), plan, draw, range(seed, seed + number), callback, keep)


def _parts(drawing: Drawing, test_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The training sequences and the test sequences."""
    if drawing.test_rows is None:
        return split(drawing.problem, test_fraction, seed)
    return np.setdiff1d(np.arange(drawing.problem.num_sequences), drawing.test_rows), drawing.test_rows


def _check(seed: int, steps: int | None, learning_rate: float | None) -> None:
    check_seed(seed)
    if steps is not None:
        check_integer("steps", steps, 1, MOST_STEPS)
    if learning_rate is not None:
        check_positive("learning_rate", learning_rate)
