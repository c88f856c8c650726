"""How well the limit of a run of several attention layers is known."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attsvm.svm import Solution
from attsvm.theory.conditions import Hypothesis, worst_case
from attsvm.theory.hypotheses import BUILT_IN, separable, training_hypotheses
from attsvm.theory.nearness import Place, short_start
from attsvm.theory.standing import Judgement, TrainedModel, judge, known_limits

SELECTED = 0.99
"""A softmax whose largest probability is above this has selected."""


def judge_layers(
    run: Any,
    queries: int,
    model: TrainedModel,
    solutions: Sequence[Solution],
    ratios: Sequence[np.ndarray],
    saturation: np.ndarray | float,
) -> Judgement:
    """Judge a run of several layers, by the Att-SVMs and the margin ratios of its trials in each layer.

    ``run``: has the fields of a run of one layer that are read here. ``saturation``: the least largest probability of
    a softmax on the selected path.
    """
    # one optimiser trains all layers, so that their Att-SVMs have one norm
    known, used = known_limits(run, queries), solutions[0].norm
    rows = [
        *training_hypotheses(run, known, used),
        Hypothesis("decreasing_loss", "the loss decreases", True if run.loss_name in BUILT_IN else None),
        worst_case(
            "saturated",
            f"each softmax on the selected path has a probability above {SELECTED:g}",
            np.asarray(saturation) > SELECTED,
            saturation,
        ),
    ]
    for number, solution in enumerate(solutions):
        # each layer has an Att-SVM of its own, so that its row has the number of the layer
        one = separable(solution)
        rows.append(replace(one, name=f"{one.name}_{number}", statement=f"{one.statement} in layer {number}"))
    weights = tuple(run.history[name] for name in run.weights)
    # a trial is as near its limit as its worst layer
    place = Place("margin ratio", np.min(ratios, axis=0), (short_start("", run.history, weights),))
    # no theorem is known for several layers
    return judge(run, known, used, model, rows, None, place)
