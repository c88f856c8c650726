"""Training of a stack by the loop that trains one layer."""

from dataclasses import replace
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.heads import Linear
from attsvm.stack.layout import StackLayout
from attsvm.stack.objective import VALUES, StackObjective
from attsvm.stack.path import layers_of
from attsvm.stack.run import StackRun
from attsvm.training import Attention, Setup, logit_changes, parse_attention, run_steps


def train_stack(
    stack: StackLayout,
    attention: str | None,
    rank: int | None,
    loss: Any,
    resumed: StackRun | None,
    callback: Callback | None,
    **options: Any,
) -> StackRun:
    """Train all layers; ``options``: those of :func:`attsvm.train`.

    Raises ProblemError if an argument does not fit.
    """
    layer = _parse_layer(stack, attention, rank, resumed)
    loss_name, loss = Setup.parse_loss(loss, resumed, stack.problem.num_classes)
    objective, of_head = StackObjective.of(stack.problem, layer, Linear(), loss)
    objective = replace(
        objective, num_layers=stack.layers, residual=stack.residual, causal=stack.causal, growth=stack.growth
    )
    of_head |= {} if stack.values is None else {VALUES: stack.values}
    # without the head, which is not trained, among the parameters that may be given
    setup = Setup(stack.problem, objective, {}, loss_name=loss_name, resumed=resumed, **options)
    setup.of_head = of_head
    recorded = run_steps(setup, callback)
    steps, parameters = recorded.steps, recorded.parameters
    weights = {
        f"W{number}": layer.weights({name[0]: parameters[name] for name in objective.names(number)})
        for number in range(stack.layers)
    }
    run = StackRun(
        **recorded.fields,
        weights={name: x[-1] for name, x in weights.items()},
        parameters={name: x[-1] for name, x in parameters.items()},
        history={},
        layers=stack.layers,
        data_hash=stack.data_hash,
    )
    changes = [
        logit_changes(one.problem, steps, weights[f"W{number}"], recorded.power)
        for number, one in enumerate(layers_of(stack, run)[0])
    ]
    history = {**recorded.history, **weights, "logit_change": np.max(changes, axis=0)}
    return replace(run, history=recorded.joined(resumed, history))


def _parse_layer(stack: StackLayout, name: str | None, rank: int | None, resumed: StackRun | None) -> Attention:
    """The parametrization of each layer, by default that of the run that is resumed.

    Raises ProblemError if there is no such parametrization.
    """
    given = name or ("combined" if resumed is None else resumed.attention)
    if given not in ("combined", "factored"):
        raise ProblemError(f"attention: expected combined or factored, got {name!r}")
    if rank is None and resumed is not None and given == resumed.attention == "factored":
        rank = resumed.parameters["K0"].shape[-1]
    return parse_attention(given, stack.problem, rank)
