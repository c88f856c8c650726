"""``attsvm.fit``: train attention; with a fixed head, compare its weights with the Att-SVM of what it selects."""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attsvm._fit.bag_data import read_given
from attsvm._fit.bags import fit_bags
from attsvm._fit.baselines import baseline_accuracy
from attsvm._fit.comparison import compare, parts_of
from attsvm._fit.evaluation import evaluate
from attsvm._fit.layer import TrainedLayer, make_plan, train_layer
from attsvm._fit.other_norms import compare_norms
from attsvm._fit.result import Fit
from attsvm._fit.splits import split
from attsvm._utils.checks import MOST_STEPS, check_integer, check_positive, check_seed
from attsvm._utils.labels import label_names, two_classes
from attsvm._utils.progress import Callback, in_draws, reports
from attsvm.datasets import Drawing, Source, find_source
from attsvm.errors import ProblemError
from attsvm.measures import direction_error
from attsvm.norms import Lp
from attsvm.problem import Problem, check_labelled
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.training import Run, records_to_the_end

MOST_DRAWS = 1000

Keep = Callable[[Run | Fit], object]


@reports("training")
def fit(
    data: Any,
    *,
    labels: Any = None,
    bag: str | None = None,
    groups: Any = None,
    test: Any = None,
    drop: Iterable[str] = (),
    encoding: str | None = None,
    fill: str | None = None,
    options: Mapping[str, str] | None = None,
    train_head: bool | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    seeds: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    scale: str | None = None,
    device: str | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    keep: Keep | None = None,
) -> Any:
    """Train attention on labelled sequences and test it; with a fixed head, compare its weights with an Att-SVM.

    The attention is combined (W) for a problem with queries and a prompt (p) otherwise. If prompt and prediction head
    are trained together, the result is an :class:`attsvm.AttentionClassifier` with ``ensemble=False``: tokens are
    scaled, the weights have a penalty, and a tenth of the training sequences, if it contains ten of each class, decides
    when to stop. Otherwise, a problem without a prediction head gets logistic regression on the mean token, scaled to
    unit norm, as its initial head.

    Parameters
    ----------
    data : array (n, T, d), list of n arrays (T_i, d), Sequences, table, Problem, Source, Drawing, str or path
        Sequences with ``labels``; or a table with one row for each token, or its file (``.csv``, ``.tsv``, ``.jsonl``,
        ``.parquet``), with ``bag`` and ``labels``; or a problem with labels ±1 and no batch axes; or a data source, by
        name ("digits"), by its file ("problem.npz"), by an import path ``package.module:name``, or as an object. A
        source, or a drawing of a source, may define test sequences, and the token of each sequence that decides its
        label.
    labels : array (n,) or str, optional
        Numbers or words for at least two classes, only with arrays; for a table, the column with the labels. Of two
        classes, the last one in sorted order counts as +1.
    bag : str, optional
        The column of a table with the bag of each row.
    groups : array (n,) or str, optional
        The group of each bag, such as a patient; bags of one group are never split between training and testing. For a
        table, the column with the groups.
    test : path, table, or tuple of sequences and labels, optional
        The test data, in the form of ``data``; then no part of ``data`` is set apart.
    drop : iterable of str
        Columns of a table to leave out.
    encoding : str, optional
        The encoding of the file of a table, such as "latin-1"; UTF-8 by default.
    fill : {"mean", "median"}, optional
        Fill missing numbers of bags with the mean or the median of their column in the training bags, and scale by
        "columns". By default they are an error.
    options : dict of str to str, optional
        Options of a data source, in the form of the command line: ``{"classes": "3,8"}``.
    train_head : bool, optional
        Train the prediction head together with the attention, which predicts better. By default it is trained if the
        problem has none. If it is fixed, the theory for training the attention alone applies.
    test_fraction : float
        Share of each class to set apart for testing, in [0, 1), unless a drawing defines its test sequences.
    seed : int
        Seed of the split and of the classifier.
    seeds : int, optional
        Number of random draws over which the layer is compared with other classifiers, with seeds from ``seed`` on.
        There is a comparison if the source draws its data at random and knows which token decides the label. By default
        the number that the source suggests: 3 for "digits".
    steps : int, optional
        Number of steps of normalised gradient descent, or the largest number of steps of the classifier. By default
        5,000; with a fixed prediction head, 100,000 if the tokens are at most 200,000 numbers.
    learning_rate : float, optional
        Step size η; by default 0.01 for the classifier (Adam), otherwise 0.1. With a fixed prediction head, step k has
        size η (1 + k/100), because the direction converges like 1/‖p‖. If the head is trained, W and the head (or, with
        keys, prompt and head) are each normalised by their own norm.
    scale : {"columns", "common"}, optional
        "columns" divides each column of the tokens by its own spread, so that results do not depend on units; this is
        the default if the spreads differ by more than a factor of 10. A problem with a prediction head or keys keeps
        its tokens.
    device : str, optional
        As for :func:`attsvm.train`.
    callback : callable, optional
        Called with a :class:`attsvm.Progress` during the steps of all draws. Training stops when it returns True.
    progress : bool
        Show the progress: a bar in a terminal or a notebook, plain lines on stderr elsewhere.
    keep : callable, optional
        Called with the results so far: first the run, then the fit without a comparison, then, after each draw, the fit
        with the comparison over the finished draws.

    Returns
    -------
    Fit or BagFit
        A :class:`BagFit` for tables, ``Sequences``, more than two classes, and data with groups or test data: a
        classifier with default settings (an ensemble if there are few bags), without a comparison with an Att-SVM.
        After Ctrl-C, or if the callback stopped it, the result covers the steps and draws completed so far.

    Raises
    ------
    ProblemError
        If the problem cannot be trained on, or an argument is out of range.

    See Also
    --------
    attsvm.AttentionClassifier : The classifier alone, for any number of classes.
    attsvm.train : Training alone, with any optimiser.
    attsvm.datasets.find_source : Data sources with options.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Theorem 3 (fixed head).

    Examples
    --------
    In each sequence, one token carries the label:

    >>> import numpy as np
    >>> import attsvm
    >>> generator = np.random.default_rng(0)
    >>> is_ill = np.arange(60) % 2
    >>> tokens = 0.3 * generator.standard_normal((60, 5, 4))
    >>> tokens[np.arange(60), generator.integers(5, size=60), :2] += np.array([[2, -2], [2, 2]])[is_ill]
    >>> found = attsvm.fit(tokens, labels=is_ill, train_head=False, steps=3000)
    >>> found.on_test.accuracy, found.soft, found.chosen.status
    (1.0, False, <Status.OPTIMAL: 'optimal'>)
    """
    start = time.perf_counter()
    _check(seed, steps, learning_rate)
    bags = read_given(data, labels, bag=bag, groups=groups, test=test, drop=drop, encoding=encoding, fill=fill)
    if bags is not None:
        for name, value, default in (
            ("options", options or None, None),
            ("train_head", train_head, True),
            ("seeds", seeds, 1),
        ):
            if value not in (None, default):
                raise ProblemError(
                    f"{name}: expected {default} for bags, whose classifier is trained as a whole, got {value!r}"
                )
        return fit_bags(
            bags,
            test_fraction=test_fraction,
            seed=seed,
            callback=callback,
            fill=fill,
            max_steps=steps,
            learning_rate=learning_rate,
            scale=scale,
            device=device,
        )
    if fill is not None:
        raise ProblemError(f"fill: expected None for data that are no bags, got {fill!r}")
    given = _read(data, labels, options, seed, test_fraction)
    drawing = given.drawing
    check_labelled(drawing.problem)
    draws = _number_of_draws(given, seeds)
    parts = split(drawing.problem, test_fraction, seed) if drawing.test_rows is None else parts_of(drawing)
    plan = make_plan(drawing.problem, train_head, steps, learning_rate, scale, device, given.classes)
    began = time.perf_counter()
    layer = train_layer(drawing.problem, *parts, plan, seed, in_draws(callback, 0, draws))
    seconds = {"training": time.perf_counter() - began}
    if keep is not None:
        keep(layer.run)
    done = _measured(layer, given, parts, seed, {**plan.settings(), "test_fraction": test_fraction})
    done = replace(done, history=_history(done), seconds={**seconds, "everything": time.perf_counter() - start})
    if keep is not None:
        keep(done)
    source = given.drawn_from
    if source is None or done.interrupted:
        return done
    comparison = compare(
        layer,
        plan,
        lambda seed: source.drawing(seed, test_fraction),
        range(seed, seed + draws),
        callback,
        None if keep is None else lambda so_far: keep(replace(done, comparison=so_far)),
    )
    return replace(done, comparison=comparison)


class _FitData(NamedTuple):
    """The data of a fit."""

    drawing: Drawing
    name: str  # what the page calls them
    source: Source | None = None
    classes: tuple[Any, Any] | None = None  # names of the labels +1 and −1

    @property
    def drawn_from(self) -> Source | None:
        """The source of the draws of the comparison with other classifiers; None if there is no comparison."""
        return None if self.drawing.relevant is None or self.drawing.test_rows is None else self.source


def _read(data: Any, labels: Any, options: Mapping[str, str] | None, seed: int, test_fraction: float) -> _FitData:
    is_arrays = not isinstance(data, Problem | Drawing | Source | str | os.PathLike)
    if is_arrays != (labels is not None):
        expected = "the label of each sequence" if is_arrays else "none beside data that have labels"
        raise ProblemError(f"labels: expected {expected}, got {'none' if is_arrays else 'some'}")
    if options and (is_arrays or isinstance(data, Problem | Drawing)):
        raise ProblemError("options: expected None with arrays or a problem, because only data sources have options")
    if is_arrays:
        truth = np.asarray(labels)
        if truth.dtype.kind == "O":  # as a column of words in pandas
            truth = truth.astype(str)
        classes = two_classes(truth)
        if classes is not None:
            truth = np.where(truth == classes[1], 1.0, -1.0)
        make = Problem.from_sequences if isinstance(data, list | tuple) else Problem
        return _FitData(Drawing(make(data, labels=truth)), "arrays", classes=label_names(classes))
    if isinstance(data, Problem | Drawing):
        return _FitData(data if isinstance(data, Drawing) else Drawing(data), "problem")
    source = find_source(data, options)
    name = source.name if isinstance(data, Source) else os.fspath(data)
    return _FitData(source.drawing(seed, test_fraction), name, source, source.label_names())


def _number_of_draws(given: _FitData, seeds: int | None) -> int:
    most = 1 if given.source is None else given.source.draws
    if seeds is not None:
        check_integer("seeds", seeds, 1, MOST_DRAWS)
        if seeds > 1 and most == 1:
            raise ProblemError(f"seeds: expected 1 for {given.name}, whose data are not random, got {seeds}")
    return 1 if given.drawn_from is None else seeds or most


def _measured(
    layer: TrainedLayer, given: _FitData, parts: tuple[np.ndarray, np.ndarray], seed: int, settings: dict[str, Any]
) -> Fit:
    """The fit without its history and its times: accuracies, and with a fixed head the Att-SVMs."""
    relevant, (train_rows, test_rows) = given.drawing.relevant, parts
    deciding = None if relevant is None else {"train": relevant[train_rows], "test": relevant[test_rows]}
    is_fixed = settings["head"] == "fixed"
    on_train, on_test = layer.evaluations()
    with warnings.catch_warnings():  # the page says in words where tokens are tied
        warnings.simplefilter("ignore", UserWarning)
        best = optimal_tokens(layer.train)

    def att_svm(selected: np.ndarray | None) -> Solution | None:
        return solve_svm(layer.train, selected) if is_fixed and selected is not None else None

    optimal, decided = att_svm(best), att_svm(None if deciding is None else deciding["train"])
    other_norms = None
    if deciding is not None:
        other_norms = compare_norms(layer.train, "relevant", deciding["train"], decided)
    elif given.drawing.problem.head is not None:
        other_norms = compare_norms(layer.train, "optimal", best, optimal)
    return Fit(
        problem=given.drawing.problem,
        train=layer.train,
        test=layer.test,
        test_rows=test_rows,
        relevant=deciding,
        run=layer.run,
        on_train=on_train,
        on_test=on_test,
        baseline=baseline_accuracy(layer.train, layer.test),
        optimal_tokens=best,
        optimal=optimal,
        chosen=att_svm(layer.run.selected),
        relevant_svm=decided,
        other_norms=other_norms,
        history={},
        comparison=None,
        seed=seed,
        settings=settings,
        seconds={},
        data=given.name,
        source=given.source,
        classes=given.classes,
        classifier=layer.classifier,
    )


def _history(done: Fit) -> dict[str, np.ndarray]:
    """One entry for each recorded step, as documented in :class:`Fit`."""
    records = records_to_the_end(done.run)
    steps, weights = records["steps"], records["weights"]
    heads = records.get("v", np.broadcast_to(done.run.parameters["v"], (len(steps), done.train.dim)))
    intercepts = records.get("b", np.zeros(len(steps)))
    layers = list(zip(weights, heads, intercepts, strict=True))
    on_train = [evaluate(done.train, *layer) for layer in layers]
    low, median, high = np.quantile([found.largest for found in on_train], [0.1, 0.5, 0.9], axis=1)
    axes = 2 if done.train.has_queries else 1
    history = {
        "steps": steps,
        "loss": records["loss"],
        "train_accuracy": np.array([found.accuracy for found in on_train]),
        "largest_low": low,
        "largest_median": median,
        "largest_high": high,
        "norm": Lp(2.0).values(weights, axes),
        "changed": (records["selected"] != done.run.selected).reshape(len(steps), -1).sum(axis=-1),
    }
    if done.test is not None:
        history["test_accuracy"] = np.array([evaluate(done.test, *layer).accuracy for layer in layers])
    if done.chosen is not None and not done.soft and done.chosen.value > 0:
        errors = direction_error(weights, done.chosen.direction, axis=tuple(range(-axes, 0)))
        history["direction_error"] = np.where(history["norm"] > 0, errors, np.nan)
    return history


def _check(seed: int, steps: int | None, learning_rate: float | None) -> None:
    check_seed(seed)
    if steps is not None:
        check_integer("steps", steps, 1, MOST_STEPS)
    if learning_rate is not None:
        check_positive("learning_rate", learning_rate)
