"""The main job: train an attention classifier, and measure how close its weights came to the Att-SVM they select."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.datasets.arrays import sequences, split
from attsvm.errors import ProblemError
from attsvm.measures import direction_error, token_logits
from attsvm.norms import Lp
from attsvm.optimizers import normalized_gradient_descent
from attsvm.problem import ARRAY_NAMES, Problem
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_head, solve_svm
from attsvm.training import Run, train

SOFT_BELOW = 0.99
"""A run is soft if and only if the median largest probability is below this."""

STEPS_FIXED_HEAD, STEPS_TRAINED_HEAD = 100_000, 5_000
RECORDS = 81


@dataclass(frozen=True)
class Evaluation:
    """What a layer does on a problem, for every counted query.

    Attributes
    ----------
    correct : bool ndarray, shape (N,)
        Whether the output has the label's sign.
    largest : ndarray, shape (N,)
        Largest softmax probability.
    attention : ndarray, shape (n, Q, T)
        The softmax probabilities; 0 where a query may not attend.
    """

    correct: Bool[np.ndarray, " N"]
    largest: Float[np.ndarray, " N"]
    attention: Float[np.ndarray, "n Q T"]

    @property
    def accuracy(self) -> float:
        """Share of correct queries."""
        return float(self.correct.mean())


@dataclass(frozen=True)
class Fit:
    """A trained attention classifier and what is known about its direction.

    Attributes
    ----------
    train, test : Problem or None
        The two parts of the data, with the final head; ``test`` is None where nothing was set apart.
    test_rows : int ndarray
        Numbers of the test sequences in the source.
    run : Run
        The training run.
    on_train, on_test : Evaluation
        At the end of training.
    baseline : dict
        Accuracy of logistic regression on the mean token: ``train``, ``test``.
    optimal, plain : Solution
        Att-SVMs of the optimal tokens, and of the trained selection.
    head_svm : Solution or None
        The max-margin head on the selected tokens, where the head was trained.
    slack : bool ndarray, shape (n[, Q]), or None
        The queries that are not support vectors of that head.
    relaxed : Solution or None
        Att-SVM of the trained selection where those need margin 0 only; None where there is no such head.
    history : dict of str to ndarray
        One entry a recorded step: ``steps``, ``loss``, ``train_accuracy``, ``test_accuracy``, ``largest_low``,
        ``largest_median``, ``largest_high`` (10, 50 and 90 % quantiles), ``norm``, ``changed`` (queries whose
        selection differs from the final one), and the direction errors ``plain`` and ``relaxed`` (NaN at zero
        weights, which have no direction) unless the run is soft or their Att-SVM has no answer.
    settings : dict
        How it was trained.
    seconds : dict
        Wall time of ``training`` and of ``everything``.
    """

    train: Problem
    test: Problem | None
    test_rows: Int[np.ndarray, " n_test"]
    run: Run
    on_train: Evaluation
    on_test: Evaluation | None
    baseline: dict[str, float]
    optimal: Solution
    plain: Solution
    head_svm: Solution | None
    slack: Bool[np.ndarray, "*queries"] | None
    relaxed: Solution | None
    history: dict[str, np.ndarray]
    settings: dict[str, Any]
    seconds: dict[str, float]

    @property
    def median_largest(self) -> float:
        """Median over the training queries of the largest softmax probability."""
        return float(np.median(self.on_train.largest))

    @property
    def soft(self) -> bool:
        """Whether the attention did not saturate, so that its weights have no limit direction to compare with."""
        return self.median_largest < SOFT_BELOW

    @property
    def interrupted(self) -> bool:
        """Whether training was stopped by the user."""
        return str(self.run.status) == "interrupted"


def fit(
    problem: Problem,
    *,
    fix_head: bool = False,
    test_fraction: float = 0.25,
    seed: int = 0,
    steps: int | None = None,
    learning_rate: float = 0.1,
    callback: Callable[..., object] | None = None,
) -> Fit:
    """Split, train, and compare the trained direction with the Att-SVM of what it selects.

    With queries the attention is combined (W), else it is a prompt (p). A head in ``problem`` stays as it is; without
    one it starts as logistic regression on the mean token, at unit norm, and is trained together with the attention, or
    fixed there by ``fix_head``, where the theory of training the attention alone applies.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and no batch axes; n sequences.
    fix_head : bool
        Train the attention alone.
    test_fraction : float
        Share of each class set apart for testing, in [0, 1).
    seed : int
        Of the split.
    steps : int, optional
        Steps of normalised gradient descent; 100,000 with a fixed head, 5,000 with a trained one.
    learning_rate : float
        Step size η. With a trained head it is constant, and attention and head are each normalised by their own norm;
        with a fixed one step k has size η (1 + k/100), since the direction settles like 1/‖p‖.
    callback : callable, optional
        Passed on to :func:`attsvm.train`.

    Returns
    -------
    Fit

    Raises
    ------
    ProblemError
        If the problem cannot be trained on, or an argument is out of range.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, Theorems 3 (fixed head)
    and 5 (head and prompt together).
    """
    start = time.perf_counter()
    _check(problem, seed, steps, learning_rate)
    train_rows, test_rows = split(problem, test_fraction, seed)
    part = sequences(problem, train_rows)
    trained_head = problem.head is None and not fix_head
    if problem.head is None:
        part = with_head(part, mean_token_head(part))
    steps = steps or (STEPS_TRAINED_HEAD if trained_head else STEPS_FIXED_HEAD)
    optimizer = (
        normalized_gradient_descent(learning_rate, scope="each")
        if trained_head
        else normalized_gradient_descent(lambda step: learning_rate * (1 + step / 100))
    )
    began = time.perf_counter()
    run = train(
        part,
        attention="combined" if problem.has_queries else "prompt",
        optimizer=optimizer,
        steps=steps,
        train_head=trained_head,
        seed=seed,
        record=RECORDS,
        callback=callback,
    )
    trained_in = time.perf_counter() - began
    head = run.parameters["v"]
    part = with_head(part, head)
    test = with_head(sequences(problem, test_rows), head) if len(test_rows) else None
    optimal = solve_svm(part, optimal_tokens(part))
    plain = solve_svm(part, run.selected)
    of_head, slack, relaxed = None, None, None
    if trained_head:
        of_head = solve_head(part, run.selected)
        slack = part.canonical.active.reshape(part.query_shape) & ~of_head.support
        relaxed = solve_svm(part, run.selected, relaxed=slack) if of_head.status == "optimal" else None
    done = Fit(
        train=part,
        test=test,
        test_rows=test_rows,
        run=run,
        on_train=evaluate(part, run.weights, head),
        on_test=None if test is None else evaluate(test, run.weights, head),
        baseline=_baseline(part, test),
        optimal=optimal,
        plain=plain,
        head_svm=of_head,
        slack=slack,
        relaxed=relaxed,
        history={},
        settings={
            "attention": "combined" if problem.has_queries else "prompt",
            "head": "trained" if trained_head else "fixed",
            "head_from": "problem file" if problem.head is not None else "logistic regression on the mean token",
            "optimizer": "normalised gradient descent",
            "learning_rate": learning_rate,
            "step_size": "constant" if trained_head else "learning_rate * (1 + step / 100)",
            "loss": "logistic",
            "steps": steps,
            "test_fraction": test_fraction,
        },
        seconds={"training": trained_in},
    )
    return replace(done, history=_history(done), seconds={**done.seconds, "everything": time.perf_counter() - start})


def evaluate(problem: Problem, weights: np.ndarray, head: np.ndarray) -> Evaluation:
    """What a layer with these weights and this head does on a problem.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and no batch axes.
    weights : ndarray, shape (d_k, d_q), or (d_k,) for a prompt
    head : ndarray, shape (d,)

    Returns
    -------
    Evaluation
    """
    allowed, active = problem.canonical.allowed, problem.canonical.active
    attention = softmax(token_logits(problem, weights), allowed)
    outputs = (attention * (problem.tokens @ head)[:, None, :]).sum(axis=-1)
    labels = _labels(problem)
    return Evaluation((labels * outputs > 0)[active], attention.max(axis=-1)[active], attention)


def softmax(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis; 0 where not allowed."""
    logits = np.where(allowed, logits, -np.inf)
    highest = logits.max(axis=-1, keepdims=True)
    # a query that may attend to nothing has no largest logit
    exponentials = np.exp(logits - np.where(np.isfinite(highest), highest, 0.0))
    return exponentials / np.maximum(exponentials.sum(axis=-1, keepdims=True), np.finfo(float).tiny)


def mean_tokens(problem: Problem) -> Float[np.ndarray, "N d"]:
    """Mean of the tokens that each counted query may attend to."""
    allowed, active = problem.canonical.allowed, problem.canonical.active
    means = allowed @ problem.tokens / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    return means[active]


def mean_token_head(problem: Problem) -> Float[np.ndarray, " d"]:
    """Logistic regression on the mean token, through the origin as the layer's own head is, at unit norm.

    Parameters
    ----------
    problem : Problem
        To train on.

    Raises
    ------
    ProblemError
        If the mean tokens tell nothing of the labels, so that the regression is zero.
    """
    from sklearn.linear_model import LogisticRegression

    features = mean_tokens(problem)
    # the penalty acts on features of unit size, whatever units the tokens are in; it only keeps v finite
    scale = np.abs(features).max() or 1.0
    regression = LogisticRegression(C=1e4, fit_intercept=False, max_iter=10_000)
    head = regression.fit(features / scale, _counted_labels(problem)).coef_[0]
    length = np.linalg.norm(head)
    if not length > 0:
        raise ProblemError(
            "tokens: their means tell nothing of the labels, so there is no head to start from; give one (head)"
        )
    return head / length


def with_head(problem: Problem, head: np.ndarray | None) -> Problem:
    """The same problem under another head."""
    arrays = {name: getattr(problem, name) for name in ARRAY_NAMES}
    return Problem(**{**arrays, "head": head})


def _history(done: Fit) -> dict[str, np.ndarray]:
    """What each recorded step looked like: see :class:`Fit`."""
    records = _records(done.run)
    steps, weights = records["steps"], records["weights"]
    heads = records.get("v", np.broadcast_to(done.run.parameters["v"], (len(steps), done.train.dim)))
    on_train = [evaluate(done.train, *at) for at in zip(weights, heads, strict=True)]
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
        history["test_accuracy"] = np.array(
            [evaluate(done.test, *at).accuracy for at in zip(weights, heads, strict=True)]
        )
    if not done.soft:
        for name, solution in (("plain", done.plain), ("relaxed", done.relaxed)):
            if solution is not None and solution.value > 0:
                errors = direction_error(weights, solution.direction, axis=tuple(range(-axes, 0)))
                history[name] = np.where(history["norm"] > 0, errors, np.nan)
    return history


def _records(run: Run) -> dict[str, np.ndarray]:
    """The run's history up to where it ended, and its end: an interrupted run ends between two records."""
    made = run.history["steps"] <= run.step
    records = {name: np.asarray(values)[made] for name, values in run.history.items()}
    if records["steps"][-1] < run.step:
        end = {
            "steps": run.step,
            **{name: getattr(run, name) for name in ("loss", "probability", "weights", "selected")},
        }
        end |= run.parameters
        records = {name: np.concatenate([values, [end[name]]]) for name, values in records.items()}
    return records


def _baseline(train: Problem, test: Problem | None) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression

    scale = np.abs(mean_tokens(train)).max() or 1.0
    regression = LogisticRegression(max_iter=10_000).fit(mean_tokens(train) / scale, _counted_labels(train))
    parts = {"train": train} if test is None else {"train": train, "test": test}
    return {
        name: float(regression.score(mean_tokens(part) / scale, _counted_labels(part))) for name, part in parts.items()
    }


def _labels(problem: Problem) -> Float[np.ndarray, "n Q"]:
    assert problem.labels is not None
    return problem.labels.reshape(problem.canonical.active.shape)


def _counted_labels(problem: Problem) -> Float[np.ndarray, " N"]:
    return _labels(problem)[problem.canonical.active]


def _check(problem: Problem, seed: int, steps: int | None, learning_rate: float) -> None:
    if problem.labels is None:
        raise ProblemError("problem: has no labels, so there is nothing to train on; solve_svm needs none")
    if problem.batch_shape or problem.num_classes is not None:
        found = f"batch axes {problem.batch_shape}" if problem.batch_shape else f"{problem.num_classes} classes"
        raise ProblemError(f"problem: {found} found, one problem with labels ±1 wanted")
    if seed < 0:
        raise ProblemError(f"seed: {seed} found, at least 0 wanted")
    if steps is not None and steps < 1:
        raise ProblemError(f"steps: {steps} found, at least 1 wanted")
    if not (np.isfinite(learning_rate) and learning_rate > 0):
        raise ProblemError(f"learning_rate: {learning_rate:g} found, a positive number wanted")
