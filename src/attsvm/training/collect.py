"""Make the steps of a training, and collect what it recorded."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from attsvm._utils.jax_devices import on_device
from attsvm._utils.progress import Callback
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.optimizers import Limit, Optimizer, configuration, rule_of
from attsvm.results import NOT_RECORDED, Status, plain, plain_status
from attsvm.training.changes import logit_changes
from attsvm.training.memory import enough_memory
from attsvm.training.run import Run
from attsvm.training.session import Session
from attsvm.training.setup import Setup

Arrays = dict[str, np.ndarray]

PRECISE_LOGIT = 1e8
"""Rounding errors of larger logits are not negligible."""


class TrainingRecord(NamedTuple):
    """A training after its steps, with all that it observed; *batch are the batch axes of the run, trials first."""

    steps: Int[np.ndarray, " R"]  # observed, in increasing order
    kept: Bool[np.ndarray, " R"]  # whether the history holds them
    parameters: dict[str, Float[np.ndarray, "R *parameter"]]
    power: Int[np.ndarray, "R *batch"]  # the weights are 2^power times those that the parameters make
    history: Arrays  # of these steps, what every run has: steps, loss, log_scale
    probability: Float[np.ndarray, "R *queries"]
    selected: Int[np.ndarray, "R *queries"]
    largest_logit: Float[np.ndarray, "R *batch"]
    fields: dict[str, Any]  # what every kind of run has

    def joined(self, resumed: Any, history: Arrays) -> Arrays:
        """The history of a run: of these steps those that are kept, after those of the run that is resumed."""
        history = {name: x[self.kept] for name, x in history.items()}
        if resumed is None:
            return history
        earlier = resumed.history
        # what was not recorded then was not trained either
        constant = {
            name: np.broadcast_to(resumed.parameters[name], (len(earlier["steps"]), *resumed.parameters[name].shape))
            for name in history
            if name not in earlier
        }
        known = earlier | constant
        return {name: np.concatenate([known[name], x]) for name, x in history.items()}


def run_steps(setup: Setup, callback: Callback | None) -> TrainingRecord:
    """Make the steps, observe the marked ones, and collect what every kind of run has.

    Raises ProblemError if the loss is not a number at the start, and MemoryError if memory does not suffice.
    """
    with jax.enable_x64(True), on_device(setup.device):
        memory = partial(enough_memory, setup)
        with memory():
            session = Session(setup)
            if setup.resumed is not None:
                session.resume(setup.resumed)
        interrupted = session.advance(setup.first, setup.marks, callback, setup.plateau, memory)
        with memory():
            return _collect(session, setup, interrupted)


def _collect(session: Session, setup: Setup, interrupted: bool) -> TrainingRecord:
    everything: Any = jax.tree.map(lambda *x: np.concatenate(x), *session.observed)
    state: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=-1)[..., : setup.num_trials], *session.states)
    steps = np.array(session.observed_steps, dtype=np.int64)
    parameters = {name: session.first(x, 1) for name, x in everything.parameters.items()}
    power = setup.objective.num_factors(parameters) * session.first(everything.exponent, 1)
    loss, log_scale = session.first(everything.loss, 1), np.log(2.0) * power
    if np.isnan(loss[-1]).any():
        # no step leads to such a point, so it is the initial one
        raise ProblemError("init: expected a finite loss and finite logits, got NaN or inf; use other initial weights")
    optimizer, limit = setup.optimizer, Limit(None)
    made = optimizer.steps if isinstance(optimizer, Optimizer) else rule_of(optimizer).steps
    if isinstance(optimizer, Optimizer) or made.kind != "unknown":  # of other ones nothing is known
        limit = setup.objective.limit(made, setup.problem, setup.reduced)
    of_all = _joined_limit(setup.resumed, limit)
    fields = {
        "status": plain_status(_statuses(interrupted)[session.first(state.status)]),
        "loss": plain(loss[-1]),
        "log_scale": plain(log_scale[-1]),
        "step": plain(session.first(state.steps)),
        "attention": setup.objective.attention.name,
        "optimizer": getattr(optimizer, "name", "optax"),
        "norm": of_all.norm,
        "limit": of_all,
        "seed": setup.seed,
        "dtype": setup.dtype.name,
        "optimizer_state": {str(i): session.first(leaf) for i, leaf in enumerate(jax.tree.leaves(state.optimizer))},
        "optimizer_config": configuration(optimizer),
        "live_optimizer": optimizer,
    }
    settings = {
        "batch_size": None if setup.batches is None else setup.batches.size,
        "loss_name": setup.loss_name,
        "weight_decay": _weight_decay_of(optimizer, limit),
    }
    return TrainingRecord(
        steps,
        np.isin(steps, setup.recorded),
        parameters,
        power,
        {"steps": steps, "loss": loss, "log_scale": log_scale},
        session.per_query(everything.probability, 0.0, 1),
        session.per_query(everything.selected, -1, 1),
        session.first(everything.largest_logit, 1),
        fields | _joined_settings(setup.resumed, settings),
    )


def run_of(setup: Setup, recorded: TrainingRecord, fixed: Sequence[str]) -> Run:
    """The run of one layer. ``fixed``: the names of the parameters that were not to be trained."""
    problem, layer, head_names = setup.problem, setup.objective.attention, setup.objective.head_names
    resumed, num_records = setup.resumed, len(recorded.steps)
    constant = {name: x.reshape(setup.batch_shape + x.shape[1:]) for name, x in setup.fixed.items()}
    of_attention = {name: x for name, x in recorded.parameters.items() if name not in head_names}
    all_fixed = {
        name: np.broadcast_to(constant[name], (num_records, *constant[name].shape))
        for name in setup.objective.fixed_names
    }
    weights = layer.weights(of_attention | all_fixed)
    history = {
        **recorded.history,
        "probability": recorded.probability,
        "selected": recorded.selected,
        "weights": weights,
        "logit_change": logit_changes(problem, recorded.steps, weights, recorded.power),
        **{name: recorded.parameters[name] for name in head_names},
        # where some are fixed, the weights do not determine the others
        **(of_attention if all_fixed else {}),
    }
    of_head = {
        name: np.broadcast_to(x, setup.batch_shape + x.shape[len(problem.model_shape) :])
        for name, x in setup.of_head.items()
        if name not in recorded.parameters and name not in constant
    }
    shown = recorded.kept | (recorded.steps == recorded.steps[-1])
    imprecise = recorded.largest_logit[shown] > PRECISE_LOGIT
    return Run(
        **recorded.fields,
        **_joined_settings(resumed, {"penalty": setup.penalty}),
        weights=weights[-1],
        parameters={name: x[-1] for name, x in recorded.parameters.items()} | constant | of_head,
        selected=recorded.selected[-1],
        probability=recorded.probability[-1],
        history=recorded.joined(resumed, history),
        precise_until=plain(_precise_until(resumed, recorded.steps[shown], imprecise)),
        head=setup.objective.head.name,
        fixed=tuple(fixed),
        map=setup.map_name,
        start=setup.start if resumed is None else resumed.start,
        data_hash=problem.data_hash,
        num_biases=problem.num_biases,
        keeps=setup.objective.loss.keeps,
        live_head=setup.objective.head,
        live_loss=setup.objective.loss,
    )


def _weight_decay_of(optimizer: Any, limit: Limit) -> float | None:
    """λ of decoupled weight decay; None for an optimiser of which nothing is known."""
    decay: float | None = dict(getattr(optimizer, "numbers", {})).get("weight_decay")
    return 0.0 if decay is None and limit.steps.kind != "unknown" else decay


def _joined_limit(resumed: Any, limit: Limit) -> Limit:
    """The limit of a run; where its parts made other steps, they have no schedule in common."""
    if resumed is None or resumed.steps == 0 or resumed.limit.steps == limit.steps:
        return limit
    return replace(limit, steps=replace(limit.steps, schedule=None))


def _joined_settings(resumed: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run; those that are not the same in all its parts count as not recorded."""
    if resumed is None or resumed.steps == 0:
        return settings
    return {name: x if getattr(resumed, name) == x else NOT_RECORDED for name, x in settings.items()}


def _statuses(interrupted: bool) -> np.ndarray:
    """Names of the states RUNNING, STALLED, NON_FINITE and CONVERGED of a program."""
    ends = (Status.INTERRUPTED if interrupted else Status.FINISHED, Status.STALLED, Status.NON_FINITE, Status.CONVERGED)
    return np.array([status.value for status in ends])


def _precise_until(resumed: Run | None, steps: np.ndarray, imprecise: np.ndarray) -> np.ndarray:
    """The first step observed to be imprecise, or -1, of each trial."""
    # argmax of no True is 0, which the second argument of where replaces
    found = np.where(imprecise.any(axis=0), steps[imprecise.argmax(axis=0)], -1)
    if resumed is None:
        return found
    earlier = np.asarray(-1 if resumed.precise_until is None else resumed.precise_until)
    return np.where(earlier >= 0, earlier, found)
