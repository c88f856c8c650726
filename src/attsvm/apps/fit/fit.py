"""The application: train attention, and measure how close its weights came to the Att-SVM of what it selects."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from attsvm.apps.fit.baseline import baseline_accuracy, mean_token_head
from attsvm.apps.fit.evaluation import evaluate
from attsvm.apps.fit.history import fit_history
from attsvm.apps.fit.result import Fit
from attsvm.checks import MOST_STEPS, check_integer, check_positive, check_seed
from attsvm.datasets.arrays import check_labelled, sequences, split, with_head
from attsvm.optimizers import normalized_gradient_descent
from attsvm.problem import Problem
from attsvm.results import Callback, Status
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_head, solve_svm
from attsvm.training import Run, train

STEPS_FIXED_HEAD, STEPS_TRAINED_HEAD = 100_000, 5_000
RECORDS = 81


def fit(
    problem: Problem,
    *,
    train_head: bool | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    steps: int | None = None,
    learning_rate: float = 0.1,
    callback: Callback | None = None,
    keep: Callable[[Run], object] | None = None,
) -> Fit:
    """Split, train, and compare the trained direction with the Att-SVM of the selected tokens.

    The attention is combined (W) for a problem with queries and a prompt (p) otherwise. A problem without a head gets
    logistic regression on the mean token, scaled to unit norm, as its initial head.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and no batch axes; n sequences.
    train_head : bool, optional
        Whether to train the head together with the attention. By default it is trained if the problem has no head. With
        a fixed head the theory of training the attention alone applies.
    test_fraction : float
        Share of each class that is set apart for testing, in [0, 1).
    seed : int
        Seed of the split.
    steps : int, optional
        Steps of normalized gradient descent; by default 100,000 with a fixed head and 5,000 with a trained one.
    learning_rate : float
        Step size η. With a trained head it is constant, and attention and head are each normalized by their own norm.
        With a fixed head step k has size η (1 + k/100), because the direction converges like 1/‖p‖.
    callback : callable, optional
        Passed on to :func:`attsvm.train`.
    keep : callable, optional
        Called with an interrupted run before anything is computed from it.

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
    check_labelled(problem)
    _check(seed, steps, learning_rate)
    train_rows, test_rows = split(problem, test_fraction, seed)
    part = sequences(problem, train_rows)
    plan = _plan(problem, train_head, steps, learning_rate)
    if problem.head is None:
        part = with_head(part, mean_token_head(part))
    began = time.perf_counter()
    run = _train(part, plan, seed, callback)
    seconds = {"training": time.perf_counter() - began}
    if keep is not None and run.status == Status.INTERRUPTED:
        keep(run)
    head = run.parameters["v"]
    part = with_head(part, head)
    test = with_head(sequences(problem, test_rows), head) if len(test_rows) else None
    done = Fit(
        train=part,
        test=test,
        test_rows=test_rows,
        run=run,
        on_train=evaluate(part, run.weights, head),
        on_test=None if test is None else evaluate(test, run.weights, head),
        baseline=baseline_accuracy(part, test),
        **_att_svms(part, run, plan.train_head),
        history={},
        settings={**plan.settings(), "test_fraction": test_fraction},
        seconds=seconds,
    )
    return replace(done, history=fit_history(done), seconds={**seconds, "everything": time.perf_counter() - start})


@dataclass(frozen=True)
class _Plan:
    """How to train."""

    attention: str
    train_head: bool
    head_from: str
    steps: int
    learning_rate: float

    def settings(self) -> dict[str, Any]:
        """The settings as ``result.json`` has them."""
        return {
            "attention": self.attention,
            "head": "trained" if self.train_head else "fixed",
            "head_from": self.head_from,
            "optimizer": "normalised gradient descent",
            "learning_rate": self.learning_rate,
            "step_size": "constant" if self.train_head else "learning_rate * (1 + step / 100)",
            "loss": "logistic",
            "steps": self.steps,
        }


def _plan(problem: Problem, train_head: bool | None, steps: int | None, learning_rate: float) -> _Plan:
    if train_head is None:
        train_head = problem.head is None
    return _Plan(
        attention="combined" if problem.has_queries else "prompt",
        train_head=train_head,
        head_from="logistic regression on the mean token" if problem.head is None else "problem file",
        steps=steps or (STEPS_TRAINED_HEAD if train_head else STEPS_FIXED_HEAD),
        learning_rate=learning_rate,
    )


def _train(part: Problem, plan: _Plan, seed: int, callback: Callback | None) -> Run:
    rate = plan.learning_rate
    optimizer = (
        normalized_gradient_descent(rate, scope="each")
        if plan.train_head
        else normalized_gradient_descent(lambda step: rate * (1 + step / 100))
    )
    return train(
        part,
        attention=plan.attention,
        optimizer=optimizer,
        steps=plan.steps,
        train_head=plan.train_head,
        seed=seed,
        record=RECORDS,
        callback=callback,
    )


def _att_svms(part: Problem, run: Run, train_head: bool) -> dict[str, Any]:
    """The Att-SVMs that the run is compared with, by their names in :class:`Fit`."""
    optimal = solve_svm(part, optimal_tokens(part))
    plain = solve_svm(part, run.selected)
    head, slack, relaxed = None, None, None
    if train_head:
        head = solve_head(part, run.selected)
        slack = part.canonical.active.reshape(part.query_shape) & ~head.support
        relaxed = solve_svm(part, run.selected, relaxed=slack) if head.status == Status.OPTIMAL else None
    return {"optimal": optimal, "plain": plain, "head_svm": head, "slack": slack, "relaxed": relaxed}


def _check(seed: int, steps: int | None, learning_rate: float) -> None:
    check_seed(seed)
    if steps is not None:
        check_integer("steps", steps, 1, MOST_STEPS)
    check_positive("learning_rate", learning_rate)
