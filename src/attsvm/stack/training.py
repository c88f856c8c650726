"""Training of a stack by the loop that trains one layer."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import numpy as np

from attsvm.errors import ProblemError
from attsvm.heads import Linear
from attsvm.losses import OutputLoss
from attsvm.optimizers import ARGUMENTS, Limit, Optimizer, configuration, normalized_gradient_descent, rule_of
from attsvm.problem import Problem
from attsvm.results import plain, plain_status
from attsvm.stack.layout import Layout
from attsvm.stack.objective import VALUES, StackObjective
from attsvm.stack.path import layers_of
from attsvm.stack.run import StackRun
from attsvm.training import Attention, Factored, parse_attention
from attsvm.training.attention import Data, Shaped
from attsvm.training.attention_heads import AttentionHeads
from attsvm.training.collect import joined_limit, joined_settings, logit_changes, statuses, weight_decay_of
from attsvm.training.range import Range, range_of
from attsvm.training.session import Session
from attsvm.training.setup import Setup
from attsvm.training.trials import CACHED_NUMBERS

Arrays = dict[str, np.ndarray]
Array = jax.Array


@dataclass(frozen=True)
class Growing:
    """A schedule that grows linearly: η(1 + k/K) at step k."""

    rate: float = 0.03
    steps: float = 1000.0
    power: ClassVar[float] = -1.0  # that of the decay

    def __call__(self, step: Array) -> Array:
        """The rate after a number of steps."""
        return self.rate * (1.0 + step / self.steps)


ARGUMENTS["growing"] = Growing


SHORTEST_SLICE = 16
"""Vectors of fewer trials take longer for each of them, even if more of the arrays stay in the cache."""


class StackSession(Session):
    """A session whose layers read tokens with entries up to ``growth`` times as large as those of the problem."""

    def __init__(self, setup: Setup, stack: Layout) -> None:
        self.growth, self.layers = stack.growth, stack.layers
        super().__init__(setup)

    def _data_sizes(self, setup: Setup) -> tuple[int, int]:
        padded, _ = super()._data_sizes(setup)
        of_layer = padded * setup.problem.num_tokens**2 * setup.problem.dim
        # limit and rest of the tokens of all layers
        return padded, max(of_layer, min(2 * self.layers * of_layer, CACHED_NUMBERS // SHORTEST_SLICE))

    def _range(self, start: Arrays, fixed: Arrays, data: Data, dtype: np.dtype[Any]) -> Range:
        of_head = {name: x for name, x in fixed.items() if name != VALUES}
        tokens = data.tokens * self.growth
        both = [np.abs(x).max(axis=(0, 1, 2)) for x in (tokens, data.queries)]
        # the tokens are the queries of all layers but the last one
        queries = np.maximum(*both)[None, None, None]
        return range_of(
            self.objective, start, of_head, data._replace(tokens=tokens, keys=tokens, queries=queries), dtype
        )


def default_optimizer(attention: Attention) -> Optimizer:
    """Gradient descent with one norm over the gradients of all layers.

    The steps on W grow linearly, so that the weights reach large norms. For factors the steps are those of one layer.
    """
    if attention.takes_rank:
        return attention.default_optimizer()
    return normalized_gradient_descent(Growing(), scope="all")


def parse_layer(stack: Layout, name: str | None, rank: int | None, resumed: StackRun | None) -> Attention:
    """The parametrization of each layer, by default that of the run that is resumed.

    Raises ProblemError if there is no such parametrization.
    """
    given = name or ("combined" if resumed is None else resumed.attention)
    if given not in ("combined", "factored"):
        raise ProblemError(f"attention: expected combined or factored, got {name!r}")
    if rank is None and resumed is not None and given == resumed.attention == "factored":
        rank = resumed.parameters["K1"].shape[-1]
    return parse_attention(given, stack.problem, rank)


def make_objective(stack: Layout, layer: Attention, loss: OutputLoss, optimizer: Any) -> StackObjective:
    """The objective with the linear head of the problem, checked.

    Raises ProblemError if loss or optimizer do not fit.
    """
    problem, head = stack.problem, Linear()
    if rule_of(optimizer).reads_excess:
        raise ProblemError("optimizer: expected one that does not divide by the excess of the loss, got one that does")
    loss.check(problem, head, trains_head=False)
    heads = AttentionHeads(problem.num_heads, apart=rule_of(optimizer).on_each_head)
    objective = StackObjective(
        layer, head, loss, heads=heads, num_layers=stack.layers, residual=stack.residual, causal=stack.causal
    )
    objective.check(head.initial(problem), problem)
    return objective


@dataclass(frozen=True)
class AllLayers(Shaped):
    """The parameters of all layers."""

    objective: StackObjective

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Of each parameter, without the axes of batch and attention heads."""
        layer, found = self.objective.attention, dict[str, tuple[int, ...]]()
        num_layers = self.objective.num_layers
        for number in range(1, num_layers + 1):
            width = problem.query_dim if number == num_layers else problem.dim
            m = layer.rank if isinstance(layer, Factored) else None
            sizes = [(problem.dim, width)] if m is None else [(problem.dim, m), (width, m)]
            found.update(zip(self.objective.names(number), sizes, strict=True))
        return found

    def initial(self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]) -> Arrays:
        """Entries N(0, 1/d), also of W: without them, positions would not differ."""
        scale = problem.dim**-0.5
        return {name: generator.normal(scale=scale, size=batch + core) for name, core in self.shapes(problem).items()}


def collect_stack(
    stack: Layout,
    objective: StackObjective,
    session: StackSession,
    setup: Setup,
    resumed: StackRun | None,
    recorded: list[int],
    interrupted: bool,
) -> StackRun:
    """The run, from the last state and all observations; ``resumed`` is the run that it continues.

    Raises ProblemError if the loss is not a number at the start.
    """
    everything: Any = jax.tree.map(lambda *x: np.concatenate(x), *session.observed)
    steps = np.array(session.observed_steps, dtype=np.int64)
    parameters = {name: session.first(x, 1) for name, x in everything.parameters.items()}
    layer, optimizer = objective.attention, setup.optimizer
    weights = {
        f"W{number}": layer.weights({name[0]: parameters[name] for name in objective.names(number)})
        for number in range(1, stack.layers + 1)
    }
    power = len(objective.names(1)) * session.first(everything.exponent, 1)
    history = {"steps": steps, "loss": session.first(everything.loss, 1), "log_scale": np.log(2.0) * power, **weights}
    if np.isnan(history["loss"][-1]).any():
        raise ProblemError("init: expected finite logits and a finite loss, got NaN or inf; use other initial weights")
    state: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=-1)[..., : setup.num_trials], *session.states)
    limit = _limit(stack, objective, optimizer)
    settings = {
        "batch_size": None if setup.batches is None else setup.batches.size,
        "loss_name": setup.loss_name,
        "weight_decay": weight_decay_of(optimizer, limit),
    }
    run = StackRun(
        status=plain_status(statuses(interrupted)[session.first(state.status)]),
        weights={name: x[-1] for name, x in weights.items()},
        parameters={name: x[-1] for name, x in parameters.items()},
        loss=plain(history["loss"][-1]),
        log_scale=plain(history["log_scale"][-1]),
        step=plain(session.first(state.steps)),
        history=history,
        layers=stack.layers,
        attention=layer.name,
        optimizer=getattr(optimizer, "name", "optax"),
        norm=getattr(optimizer, "norm", None),
        limit=joined_limit(resumed, limit),
        seed=setup.seed,
        dtype=setup.dtype.name,
        data_hash=stack.data_hash,
        optimizer_state={str(i): session.first(leaf) for i, leaf in enumerate(jax.tree.leaves(state.optimizer))},
        optimizer_config=configuration(optimizer),
        live_optimizer=optimizer,
        **joined_settings(resumed, settings),
    )
    layers, _ = layers_of(stack, run)
    changes = [
        logit_changes(one.problem, steps, weights[f"W{number}"], power) for number, one in enumerate(layers, start=1)
    ]
    history["logit_change"] = np.max(changes, axis=0)
    kept = np.isin(steps, recorded)
    earlier = {} if resumed is None else resumed.history
    shown = {name: np.concatenate([earlier[name], x[kept]] if earlier else [x[kept]]) for name, x in history.items()}
    return replace(run, history=shown)


def _limit(stack: Layout, objective: StackObjective, optimizer: Any) -> Limit:
    """The limit of the steps in each layer."""
    if not isinstance(optimizer, Optimizer):
        return Limit(None)
    return objective.attention.limit(optimizer.steps, stack.problem, stack.num_positions, layers=True)
