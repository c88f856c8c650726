"""How well the hierarchical Att-SVM is known for a run."""

from dataclasses import replace
from typing import Any

import numpy as np

from attsvm.norms import JointNorm, Lp
from attsvm.stack.layout import Layout
from attsvm.stack.path import Layer, smallest_margin
from attsvm.stack.run import StackRun
from attsvm.svm import Solution
from attsvm.theory.conditions import Hypothesis, at_worst
from attsvm.theory.hypotheses import BUILT_IN, of_training, separable
from attsvm.theory.nearness import Place, of_start
from attsvm.theory.prediction import Prediction
from attsvm.theory.standing import Model, judge, known_limits

SATURATED = 0.99
"""A softmax whose largest probability is above this has selected."""


def predictions(
    stack: Layout, run: StackRun, layers: list[Layer], solutions: tuple[Solution, ...], saturation: np.ndarray | float
) -> tuple[Prediction, ...]:
    """The prediction of each layer. All have the standing of the run, which the table has by the number of layers."""
    # the functions on one layer read fields that both kinds of runs have
    of_one_layer: Any = run
    known, used = known_limits(of_one_layer, stack.num_positions), solutions[0].norm
    rows = [
        *of_training(of_one_layer, known, used),
        Hypothesis("decreasing_loss", "the loss decreases", True if run.loss_name in BUILT_IN else None),
        at_worst(
            "saturated",
            f"each softmax on the selected path has a probability above {SATURATED:g}",
            np.asarray(saturation) > SATURATED,
            saturation,
        ),
    ]
    for number, solution in enumerate(solutions, start=1):
        one = separable(solution)
        rows.append(replace(one, name=f"{one.name}_{number}", statement=f"{one.statement} in layer {number}"))
    ratios = [_ratios(layer, solution, np.size(run.step)) for layer, solution in zip(layers, solutions, strict=True)]
    weights = tuple(run.history[name] for name in run.weights)
    place = Place("margin ratio", np.min(ratios, axis=0), (of_start("", run.history, weights),))
    judgement = judge(of_one_layer, known, used, model_of(stack, run), rows, None, place)
    return tuple(
        Prediction(
            solution,
            used,
            layer.selected,
            judgement.standing,
            judgement.source,
            judgement.hypotheses,
            relaxed=layer.relaxed,
            direction=solution.direction,
        )
        for layer, solution in zip(layers, solutions, strict=True)
    )


def _ratios(layer: Layer, solution: Solution, trials: int) -> np.ndarray:
    """The margin ratio of each trial in a layer, of all attention heads together or the least of theirs."""
    together, margins = isinstance(solution.norm, JointNorm), smallest_margin(layer)
    lengths, values = solution.norm.values(layer.weights, 3 if together else 2), np.asarray(solution.value)
    if solution.norm == Lp(2.0) and layer.problem.num_heads is not None:
        lengths, values = (np.hypot.reduce(x, axis=-1) for x in (lengths, values))
        together = True
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (margins.min(axis=-1) if together else margins) * values / lengths
    return np.asarray(ratios.reshape(trials, -1).min(axis=-1))


def model_of(stack: Layout, run: StackRun) -> Model:
    """What a run trained, by the names of the table of standings."""
    name = f"{stack.layers} layers"
    name += "" if stack.residual else ", no residual"
    name += "" if stack.values is None else ", values"
    name += ", causal" if stack.causal else ""
    name += "" if stack.problem.mask is None else ", masked"
    heads = "one" if stack.problem.num_heads in (None, 1) else "several"
    return Model(run.attention, name, heads, stack.problem.tokens.shape[-3])
