"""Training of a stack by the loop that trains one layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from attsvm._utils.checks import as_array
from attsvm._utils.jax_devices import find_device, on_device
from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.heads import parse_head
from attsvm.losses import OutputLoss, parse_loss
from attsvm.optimizers import Limit, Optimizer, normalized_gradient_descent, parse_optimizer
from attsvm.optimizers.optimizer import rule_of
from attsvm.results import Status, plain, plain_status
from attsvm.stack.layout import Layout
from attsvm.stack.objective import VALUES, StackObjective
from attsvm.stack.run import StackRun
from attsvm.training.attention import Attention, Combined, Data, Factored
from attsvm.training.attention_heads import AttentionHeads
from attsvm.training.range import Range, range_of
from attsvm.training.session import Session
from attsvm.training.setup import Setup, check_numbers, mini_batches, observed_steps, record_steps
from attsvm.training.stopping import Stopping

Arrays = dict[str, np.ndarray]
Array = jax.Array


@dataclass(frozen=True)
class Growing:
    """A schedule that grows linearly: η(1 + k/K) at step k."""

    rate: float
    steps: float

    def __call__(self, step: Array) -> Array:
        """The rate after a number of steps."""
        return self.rate * (1.0 + step / self.steps)


class StackSession(Session):
    """A session whose layers read tokens with entries up to ``growth`` times as large as those of the problem."""

    def __init__(self, setup: Setup, growth: float) -> None:
        self.growth = growth
        super().__init__(setup)

    def _range(self, start: Arrays, fixed: Arrays, data: Data, dtype: np.dtype[Any]) -> Range:
        of_head = {name: x for name, x in fixed.items() if name != VALUES}
        tokens = data.tokens * self.growth
        both = [np.abs(x).max(axis=(0, 1, 2)) for x in (tokens, data.queries)]
        # the tokens are the queries of all layers but the last one
        queries = np.maximum(*both)[None, None, None]
        return range_of(
            self.objective, start, of_head, data._replace(tokens=tokens, keys=tokens, queries=queries), dtype
        )


def default_optimizer(attention: str) -> Optimizer:
    """Gradient descent with one norm over the gradients of all layers.

    The steps on W grow linearly, so that the weights reach large norms. On tokens of unit norm they change logits by at
    most about 1: much longer steps alternate between the tokens that a position off the path selects, if its margin of
    0 is attained, and the layers above see both. For factors the steps are those of one layer.
    """
    if attention == "factored":
        return Factored.of_rank(1).default_optimizer()
    return normalized_gradient_descent(Growing(0.03, 1000), scope="all")


def train_stack(
    stack: Layout,
    *,
    attention: str,
    rank: int | None,
    optimizer: Any,
    learning_rate: Any,
    steps: int,
    loss: str | OutputLoss | Any,
    batch_size: int | None,
    init: Any,
    seed: int,
    record: int | Sequence[int] | None,
    dtype: str,
    device: str | None,
    callback: Callback | None,
) -> StackRun:
    """See :meth:`attsvm.Stack.train`."""
    problem = stack.problem
    check_numbers(steps, dtype, 0.0, seed)
    home = find_device(device)
    kinds: dict[str, type[Attention]] = {"combined": Combined, "factored": Factored}
    if attention not in kinds:
        raise ProblemError(f"attention: expected {' or '.join(kinds)}, got {attention!r}")
    layer = kinds[attention].of(problem, rank)
    if optimizer is None and learning_rate is None:
        optimizer = default_optimizer(attention)
    optimizer = parse_optimizer(optimizer, **({} if learning_rate is None else {"learning_rate": learning_rate}))
    if rule_of(optimizer).reads_excess:
        raise ProblemError("optimizer: expected one that does not divide by the excess of the loss, got one that does")
    head, parsed_loss = parse_head("linear"), parse_loss(loss, problem.num_classes)
    of_head = head.initial(problem)
    parsed_loss.check(problem, head, trains_head=False)
    objective = StackObjective(
        layer,
        head,
        parsed_loss,
        heads=AttentionHeads(problem.num_heads, apart=rule_of(optimizer).on_each_head),
        num_layers=stack.layers,
        residual=stack.residual,
        causal=stack.causal,
    )
    objective.check(of_head, problem)
    trained, batch = _starting_point(stack, objective, init, seed)
    if stack.values is not None:
        of_head = of_head | {VALUES: stack.values}
    setup = Setup(
        problem=problem,
        objective=objective,
        optimizer=optimizer,
        of_head=of_head,
        trained=trained,
        fixed={},
        fixed_names=(),
        reduced=None,
        exponent=np.zeros(int(np.prod(batch, dtype=np.int64)), np.int64),
        batch_shape=batch,
        penalty=0.0,
        stop=Stopping(),
        dtype=np.dtype(dtype),
        batches=mini_batches(batch_size, Stopping(), problem),
        seed=seed,
        loss_name=loss if isinstance(loss, str) else "custom",
        start="random" if init is None else "given",
    )
    recorded = record_steps(record, 0, int(steps))
    with jax.enable_x64(True), on_device(home):
        session = StackSession(setup, stack.growth)
        interrupted = session.advance(0, observed_steps(recorded, 0, int(steps)), callback, None)
        return _collect(session, setup, objective, stack.data_hash, recorded, interrupted)


def parameter_shapes(stack: Layout, objective: StackObjective) -> dict[str, tuple[int, ...]]:
    """The parameters of all layers, without batch axes, with the axis of attention heads."""
    problem = stack.problem
    shapes: dict[str, tuple[int, ...]] = {}
    for number in range(1, stack.layers + 1):
        width = problem.query_dim if number == stack.layers else problem.dim
        m = (objective.attention.rank,) if isinstance(objective.attention, Factored) else ()
        sizes = [(problem.dim, *m), (width, *m)] if m else [(problem.dim, width)]
        shapes |= {name: problem.heads_shape + size for name, size in zip(objective.names(number), sizes, strict=True)}
    return shapes


def _starting_point(stack: Layout, objective: StackObjective, init: Any, seed: int) -> tuple[Arrays, tuple[int, ...]]:
    """The initial parameters, one row for each trial, and the batch axes of the run; entries N(0, 1/d) by default."""
    shapes, batch = parameter_shapes(stack, objective), stack.problem.model_shape
    if init is None:
        generator = np.random.default_rng(seed)
        scale = stack.problem.dim**-0.5
        given = {name: generator.normal(scale=scale, size=batch + core) for name, core in shapes.items()}
    elif isinstance(init, dict) and set(init) == set(shapes):
        given = {name: as_array("init", init[name]).astype(np.float64) for name in shapes}
    else:
        raise ProblemError(f"init: expected a dict of {', '.join(shapes)}, got {init!r:.60}")
    leads = {x.shape[: x.ndim - len(shapes[name])] for name, x in given.items()}
    lead = max(leads, key=len)
    fits = all(x.shape == lead + shapes[name] and np.isfinite(x).all() for name, x in given.items())
    if not fits or lead[len(lead) - len(batch) :] != batch:
        expected = ", ".join(f"{name} (*trials, {str(batch + core)[1:-1]})" for name, core in shapes.items())
        raise ProblemError(f"init: expected finite arrays {expected}")
    return {name: x.reshape(-1, *shapes[name]) for name, x in given.items()}, lead


def _collect(
    session: StackSession,
    setup: Setup,
    objective: StackObjective,
    data_hash: str,
    recorded: list[int],
    interrupted: bool,
) -> StackRun:
    everything: Any = jax.tree.map(lambda *x: np.concatenate(x), *session.observed)
    steps = np.array(session.observed_steps, dtype=np.int64)
    parameters = {name: session.first(x, 1) for name, x in everything.parameters.items()}
    each = [[parameters[name] for name in objective.names(number)] for number in range(1, objective.num_layers + 1)]
    weights = {
        f"W{number}": x[0] if len(x) == 1 else x[0] @ np.swapaxes(x[1], -1, -2) for number, x in enumerate(each, 1)
    }
    power = (2 if setup.objective.attention.takes_rank else 1) * session.first(everything.exponent, 1)
    history = {"steps": steps, "loss": session.first(everything.loss, 1), "log_scale": np.log(2.0) * power, **weights}
    if np.isnan(history["loss"][-1]).any():
        raise ProblemError("init: expected finite logits and a finite loss, got NaN or inf; use other initial weights")
    ends = (Status.INTERRUPTED if interrupted else Status.FINISHED, Status.STALLED, Status.NON_FINITE, Status.CONVERGED)
    state: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=-1)[..., : setup.num_trials], *session.states)
    status = np.array([end.value for end in ends])[session.first(state.status)]
    kept, optimizer = np.isin(steps, recorded), setup.optimizer
    known = objective.attention.limit(optimizer.limits) if isinstance(optimizer, Optimizer) else Limit(None)
    return StackRun(
        status=plain_status(status),
        weights={name: x[-1] for name, x in weights.items()},
        parameters={name: x[-1] for name, x in parameters.items()},
        loss=plain(history["loss"][-1]),
        log_scale=plain(history["log_scale"][-1]),
        step=plain(session.first(state.steps)),
        history={name: x[kept] for name, x in history.items()},
        layers=objective.num_layers,
        attention=objective.attention.name,
        optimizer=getattr(optimizer, "name", "optax"),
        norm=getattr(optimizer, "norm", None),
        limit=known.of_heads(setup.problem.num_heads),
        seed=setup.seed,
        dtype=setup.dtype.name,
        data_hash=data_hash,
    )
