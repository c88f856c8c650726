"""How well the hierarchical Att-SVM is known for a run."""

import numpy as np

from attsvm.norms import JointNorm, Lp
from attsvm.stack.layout import StackLayout
from attsvm.stack.path import Layer, smallest_margin
from attsvm.stack.run import StackRun
from attsvm.svm import Solution
from attsvm.theory import Prediction, TrainedModel, judge_layers


def predictions(
    stack: StackLayout,
    run: StackRun,
    layers: list[Layer],
    solutions: tuple[Solution, ...],
    saturation: np.ndarray | float,
) -> tuple[Prediction, ...]:
    """The prediction of each layer. The table has their level of evidence, by the number of layers."""
    ratios = [_ratios(layer, solution, np.size(run.step)) for layer, solution in zip(layers, solutions, strict=True)]
    judgement = judge_layers(run, stack.num_positions, model_of(stack, run), solutions, ratios, saturation)
    return tuple(
        Prediction(
            solution,
            solutions[0].norm,
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


def model_of(stack: StackLayout, run: StackRun) -> TrainedModel:
    """Describe what a run trained, by the names of the table of standings."""
    name = f"{stack.layers} layers"
    name += "" if stack.residual else ", no residual"
    name += "" if stack.values is None else ", values"
    name += ", causal" if stack.causal else ""
    name += "" if stack.problem.mask is None else ", masked"
    heads = "one" if stack.problem.num_heads in (None, 1) else "several"
    return TrainedModel(run.attention, name, heads, stack.problem.tokens.shape[-3])
