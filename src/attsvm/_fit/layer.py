"""How ``attsvm fit`` trains a layer on the training part of a problem."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attsvm._fit.evaluation import LayerEvaluation, evaluate
from attsvm._utils.progress import Callback
from attsvm._utils.shapes import Int
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator import LEARNING_RATES, AttentionClassifier, Coordinates, units_differ
from attsvm.optimizers import Limit, Steps, normalized_gradient_descent
from attsvm.problem import Problem, take_sequences
from attsvm.training import Run, train

STEPS_FIXED_HEAD, STEPS_TRAINED_HEAD = 100_000, 5_000

MANY_NUMBERS = 200_000
"""With more numbers in the tokens, training with a fixed head takes as few steps as with a trained one."""

RECORDS = 81


@dataclass(frozen=True)
class Plan:
    """How a layer is trained."""

    attention: str  # ``combined`` for a problem with queries, otherwise ``prompt``
    train_head: bool
    # whether the layer is an AttentionClassifier: a prompt over the tokens themselves that is trained with its head
    classifier: bool
    head_from: str  # where the initial head comes from
    steps: int
    learning_rate: float
    scale: str  # of the tokens: each column by its own spread (``columns``), or one number for all (``common``)
    device: str | None = None
    classes: tuple[Any, Any] = (1, -1)  # names of the labels +1 and −1, for the classifier

    def settings(self) -> dict[str, Any]:
        """The settings as ``result.json`` has them."""
        return {
            "attention": self.attention,
            "head": "trained" if self.train_head else "fixed",
            "head_from": self.head_from,
            "optimizer": "Adam, as in AttentionClassifier" if self.classifier else "normalised gradient descent",
            "learning_rate": self.learning_rate,
            "step_size": "constant" if self.train_head else "learning_rate * (1 + step / 100)",
            "loss": "logistic",
            "scale": self.scale,
            "steps": self.steps,
        }


def make_plan(
    problem: Problem,
    train_head: bool | None,
    steps: int | None,
    learning_rate: float | None,
    scale: str | None = None,
    device: str | None = None,
    classes: tuple[Any, Any] | None = None,
) -> Plan:
    """The plan for a problem; what is None is chosen as documented in :func:`attsvm.fit`.

    Raises ProblemError if ``scale`` is neither, or columns with coordinates that are given, too, should be scaled.
    """
    if train_head is None:
        train_head = problem.head is None
    long = not train_head and problem.tokens.size <= MANY_NUMBERS
    classifier = train_head and not problem.has_queries and problem.keys is None
    first = "logistic regression on the mean token" if problem.head is None else "problem file"
    return Plan(
        attention="combined" if problem.has_queries else "prompt",
        train_head=train_head,
        classifier=classifier,
        head_from="zeros" if classifier else first,
        steps=steps or (STEPS_FIXED_HEAD if long else STEPS_TRAINED_HEAD),
        learning_rate=learning_rate or (LEARNING_RATES["adam"] if classifier else 0.1),
        scale=_scale(problem, scale),
        device=device,
        classes=(1, -1) if classes is None else _numbers(classes),
    )


def _numbers(classes: tuple[Any, Any]) -> tuple[Any, Any]:
    """Names of labels, as the integers that they are, if both are some."""
    try:
        return int(classes[0]), int(classes[1])
    except ValueError:
        return classes


def _scale(problem: Problem, scale: str | None) -> str:
    if scale not in (None, "columns", "common"):
        raise ProblemError(f"scale: expected 'columns', 'common' or None, got {scale!r}")
    if problem.head is not None or problem.keys is not None:
        if scale == "columns":
            raise ProblemError(
                "scale: expected 'common' or None for a problem with a head or keys, which belong to these tokens, "
                "got 'columns'"
            )
        return "common"
    return scale or ("columns" if units_differ(_sequences(problem)) else "common")


def _sequences(problem: Problem) -> Sequences:
    return Sequences.from_padded(problem.tokens, problem.mask)


def columns_scaled(problem: Problem, rows: Int[np.ndarray, " n"]) -> Problem:
    """The problem with columns that are centred and scaled as those of some of its sequences."""
    coordinates = Coordinates.of(_sequences(take_sequences(problem, rows)), by_column=True)
    return replace(problem, tokens=(problem.tokens - coordinates.centre) / coordinates.scale)


@dataclass(frozen=True)
class TrainedLayer:
    """A trained layer on both parts of the data."""

    # train, test: with the final head; scaled tokens, unless a classifier scales them
    train: Problem
    test: Problem | None
    run: Run
    classifier: AttentionClassifier | None = None

    def evaluations(self) -> tuple[LayerEvaluation, LayerEvaluation | None]:
        """Predictions and attention on the training part and on the test part."""
        parameters = self.run.parameters
        head, intercept = parameters["v"], float(parameters.get("b", 0.0))
        on_test = None if self.test is None else evaluate(self.test, self.run.weights, head, intercept)
        return evaluate(self.train, self.run.weights, head, intercept), on_test


def train_layer(
    problem: Problem,
    train_rows: Int[np.ndarray, " n"],
    test_rows: Int[np.ndarray, " m"],
    plan: Plan,
    seed: int,
    callback: Callback | None,
) -> TrainedLayer:
    """Train on some sequences of a problem."""
    if plan.scale == "columns" and not plan.classifier:
        problem = columns_scaled(problem, train_rows)
    part = take_sequences(problem, train_rows)
    classifier = None
    if plan.classifier:
        run, classifier = _train_classifier(part, plan, seed, callback)
    else:
        run = _train_layer(part, plan, seed, callback)
    head = run.parameters["v"]
    test = take_sequences(problem, test_rows).with_head(head) if len(test_rows) else None
    return TrainedLayer(part.with_head(head), test, run, classifier)


def _train_layer(part: Problem, plan: Plan, seed: int, callback: Callback | None) -> Run:
    """Train by normalised gradient descent; with a fixed head towards the limit that the theorems describe."""
    rate = plan.learning_rate
    optimizer = (
        normalized_gradient_descent(rate, scope="each")
        if plan.train_head
        else normalized_gradient_descent(lambda step: rate * (1 + step / 100))
    )
    return train(
        part.with_head("mean") if part.head is None else part,
        attention=plan.attention,
        optimizer=optimizer,
        steps=plan.steps,
        train_head=plan.train_head,
        seed=seed,
        record=RECORDS,
        device=plan.device,
        callback=callback,
    )


def _train_classifier(
    part: Problem, plan: Plan, seed: int, callback: Callback | None
) -> tuple[Run, AttentionClassifier]:
    """Train an AttentionClassifier; the run ends with the parameters that early stopping keeps."""
    classifier = AttentionClassifier(
        learning_rate=plan.learning_rate,
        max_steps=plan.steps,
        random_state=seed,
        scale=plan.scale,
        device=plan.device,
        positive=plan.classes[0],
        ensemble=False,
    )
    assert part.labels is not None
    classifier.fit(_sequences(part), np.where(part.labels > 0, *plan.classes), callback=callback)
    path = classifier.path_
    found = [evaluate(part, model.prompt, model.head[0], model.intercept[0]) for model in path.values()]
    history = {
        "steps": np.array(list(path)),
        "loss": np.array([np.logaddexp(0, -at.margins).mean() for at in found]),
        "probability": np.array([at.largest for at in found]),
        "selected": np.array([at.attention[:, 0].argmax(axis=-1) for at in found]),
        "weights": np.array([model.prompt for model in path.values()]),
        "v": np.array([model.head[0] for model in path.values()]),
        "b": np.array([model.intercept[0] for model in path.values()]),
    }
    final = {name: values[-1] for name, values in history.items()}
    run = Run(
        status=classifier.status_,
        weights=final["weights"],
        parameters={"p": final["weights"], "v": final["v"], "b": final["b"]},
        selected=final["selected"],
        probability=final["probability"],
        loss=float(final["loss"]),
        history=history,
        step=classifier.kept_step_,
        attention=plan.attention,
        head="linear",
        optimizer=classifier.optimizer,
        norm=None,
        limit=Limit(None, Steps(schedule=float(plan.learning_rate))),
        seed=seed,
        batch_size=classifier.batch_size,
        loss_name="logistic",
        start="zeros",
        dtype="float64",
        data_hash=part.data_hash,
    )
    return run, classifier
