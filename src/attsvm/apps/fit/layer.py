"""How ``attsvm fit`` trains a layer on the training part of a problem."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from attsvm.apps.fit.evaluation import Evaluation, evaluate
from attsvm.datasets.arrays import sequences
from attsvm.optimizers import normalized_gradient_descent
from attsvm.problem import Problem
from attsvm.results import Callback
from attsvm.training import Run, train

STEPS_FIXED_HEAD, STEPS_TRAINED_HEAD = 100_000, 5_000

MANY_NUMBERS = 200_000
"""With more numbers in the tokens, training with a fixed head takes as few steps as with a trained one."""

RECORDS = 81


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes
    ----------
    attention : str
        ``combined`` for a problem with queries, otherwise ``prompt``.
    train_head : bool
    head_from : str
        Where the initial head comes from.
    steps : int
    learning_rate : float
    device : str or None
    """

    attention: str
    train_head: bool
    head_from: str
    steps: int
    learning_rate: float
    device: str | None = None

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


def make_plan(
    problem: Problem, train_head: bool | None, steps: int | None, learning_rate: float, device: str | None = None
) -> Plan:
    """The plan for a problem; what is None is chosen as documented in :func:`attsvm.apps.fit.fit.fit`."""
    if train_head is None:
        train_head = problem.head is None
    long = not train_head and problem.tokens.size <= MANY_NUMBERS
    return Plan(
        attention="combined" if problem.has_queries else "prompt",
        train_head=train_head,
        head_from="logistic regression on the mean token" if problem.head is None else "problem file",
        steps=steps or (STEPS_FIXED_HEAD if long else STEPS_TRAINED_HEAD),
        learning_rate=learning_rate,
        device=device,
    )


@dataclass(frozen=True)
class Layer:
    """A trained layer on both parts of the data.

    Attributes
    ----------
    train, test : Problem or None
        With the final head.
    run : Run
    """

    train: Problem
    test: Problem | None
    run: Run

    def evaluations(self) -> tuple[Evaluation, Evaluation | None]:
        """Predictions and attention on the training part and on the test part."""
        weights, head = self.run.weights, self.run.parameters["v"]
        on_test = None if self.test is None else evaluate(self.test, weights, head)
        return evaluate(self.train, weights, head), on_test


def train_layer(
    problem: Problem,
    train_rows: Int[np.ndarray, " n"],
    test_rows: Int[np.ndarray, " m"],
    plan: Plan,
    seed: int,
    callback: Callback | None,
) -> Layer:
    """Train by normalised gradient descent on some sequences of a problem."""
    part = sequences(problem, train_rows)
    if problem.head is None:
        part = part.with_head("mean")
    rate = plan.learning_rate
    optimizer = (
        normalized_gradient_descent(rate, scope="each")
        if plan.train_head
        else normalized_gradient_descent(lambda step: rate * (1 + step / 100))
    )
    run = train(
        part,
        attention=plan.attention,
        optimizer=optimizer,
        steps=plan.steps,
        train_head=plan.train_head,
        seed=seed,
        record=RECORDS,
        device=plan.device,
        callback=callback,
    )
    head = run.parameters["v"]
    test = sequences(problem, test_rows).with_head(head) if len(test_rows) else None
    return Layer(part.with_head(head), test, run)
