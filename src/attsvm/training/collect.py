"""Collect the run of a session, and how far its steps changed the logits."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from attsvm.errors import ProblemError
from attsvm.optimizers import Limit, Optimizer, configuration
from attsvm.problem import Problem
from attsvm.results import NOT_RECORDED, Status, plain, plain_status
from attsvm.training.run import Run
from attsvm.training.session import Session
from attsvm.training.setup import Setup

Arrays = dict[str, np.ndarray]

PRECISE_LOGIT = 1e8
"""Rounding errors of larger logits are not negligible."""

_NUMBERS_AT_ONCE = 2_000_000


def collect(session: Session, setup: Setup, resumed: Run | None, recorded: list[int], interrupted: bool) -> Run:
    """The run, from the last state and all observations.

    ``resumed``: the run that this one continues. ``recorded``: the steps that the history holds.

    Raises ProblemError if the loss is not a number at the start.
    """
    everything: Any = jax.tree.map(lambda *x: np.concatenate(x), *session.observed)
    steps = np.array(session.observed_steps, dtype=np.int64)
    layer, head_names = setup.objective.attention, setup.objective.head_names
    parameters = {name: session.first(x, 1) for name, x in everything.parameters.items()}
    fixed = {name: x.reshape(setup.batch_shape + x.shape[1:]) for name, x in setup.fixed.items()}
    of_attention = {name: x for name, x in parameters.items() if name not in head_names}
    constant = {
        name: np.broadcast_to(fixed[name], (len(steps), *fixed[name].shape)) for name in setup.objective.fixed_names
    }
    weights = layer.weights(of_attention | constant)
    # the weights are the product of the parameters of the attention
    power = len(of_attention) * session.first(everything.exponent, 1)
    history = {
        "steps": steps,
        "loss": session.first(everything.loss, 1),
        "probability": session.per_query(everything.probability, 0.0, 1),
        "selected": session.per_query(everything.selected, -1, 1),
        "weights": weights,
        "log_scale": np.log(2.0) * power,
        "logit_change": logit_changes(setup.problem, steps, weights, power),
        **{name: parameters[name] for name in head_names},
        # where some are fixed, the weights do not determine the others
        **(of_attention if constant else {}),
    }
    final = {name: x[-1] for name, x in history.items()}
    kept = np.isin(steps, recorded)
    shown, imprecise = kept | (steps == steps[-1]), session.first(everything.largest_logit > PRECISE_LOGIT, 1)
    if np.isnan(final["loss"]).any():
        # no step leads to such a point, so it is the initial one
        raise ProblemError("init: expected finite logits and a finite loss, got NaN or inf; use other initial weights")
    of_head = {
        name: np.broadcast_to(x, setup.batch_shape + x.shape[len(setup.problem.model_shape) :])
        for name, x in session.of_head.items()
    }
    state: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=-1)[..., : setup.num_trials], *session.states)
    optimizer, limit = setup.optimizer, _limit(setup)
    settings = {
        "batch_size": None if setup.batches is None else setup.batches.size,
        "penalty": setup.penalty,
        "loss_name": setup.loss_name,
        "weight_decay": weight_decay_of(optimizer, limit),
    }
    return Run(
        status=plain_status(statuses(interrupted)[session.first(state.status)]),
        weights=final["weights"],
        log_scale=plain(final["log_scale"]),
        parameters={name: x[-1] for name, x in parameters.items()} | fixed | of_head,
        selected=final["selected"],
        probability=final["probability"],
        loss=plain(final["loss"]),
        history=_joined(resumed, {name: x[kept] for name, x in history.items()}),
        step=plain(session.first(state.steps)),
        precise_until=plain(_precise_until(resumed, steps[shown], imprecise[shown])),
        attention=layer.name,
        head=setup.objective.head.name,
        optimizer=getattr(optimizer, "name", "optax"),
        norm=getattr(optimizer, "norm", None),
        limit=joined_limit(resumed, limit),
        seed=setup.seed,
        fixed=setup.fixed_names,
        **joined_settings(resumed, settings),
        start=setup.start if resumed is None else resumed.start,
        dtype=setup.dtype.name,
        data_hash=setup.problem.data_hash,
        keeps=setup.objective.loss.keeps,
        optimizer_state={str(i): session.first(leaf) for i, leaf in enumerate(jax.tree.leaves(state.optimizer))},
        optimizer_config=configuration(optimizer),
        live_optimizer=optimizer,
        live_loss=setup.objective.loss,
    )


def _limit(setup: Setup) -> Limit:
    """The limit of the optimizer for what it trains; unknown for an attention that is not trained."""
    optimizer, reduced = setup.optimizer, setup.reduced
    if reduced is None or not isinstance(optimizer, Optimizer):
        return Limit(None)
    queries = math.prod(reduced.problem.canonical.active.shape[-2:])
    heads, groups = reduced.problem.num_heads, reduced.problem.key_groups
    if heads is not None and groups is not None:
        # those of all heads of a group
        queries *= heads // groups
    return reduced.attention.limit(optimizer.steps, reduced.problem, queries)


def weight_decay_of(optimizer: Any, limit: Limit) -> float | None:
    """λ of decoupled weight decay; None for an optimizer of which nothing is known."""
    decay: float | None = dict(getattr(optimizer, "numbers", {})).get("weight_decay")
    return 0.0 if decay is None and limit.steps.kind != "unknown" else decay


def joined_limit(resumed: Any, limit: Limit) -> Limit:
    """The limit of a run; where its parts made other steps, they have no schedule in common."""
    if resumed is None or resumed.steps == 0 or resumed.limit.steps == limit.steps:
        return limit
    return replace(limit, steps=replace(limit.steps, schedule=None))


def joined_settings(resumed: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run; those that are not the same in all its parts count as not recorded."""
    if resumed is None or resumed.steps == 0:
        return settings
    return {name: x if getattr(resumed, name) == x else NOT_RECORDED for name, x in settings.items()}


def statuses(interrupted: bool) -> np.ndarray:
    """Names of the states RUNNING, STALLED, NON_FINITE and CONVERGED of a program."""
    ends = (Status.INTERRUPTED if interrupted else Status.FINISHED, Status.STALLED, Status.NON_FINITE, Status.CONVERGED)
    return np.array([status.value for status in ends])


def _joined(resumed: Run | None, history: Arrays) -> Arrays:
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


def _precise_until(resumed: Run | None, steps: np.ndarray, imprecise: np.ndarray) -> np.ndarray:
    """The first step observed to be imprecise, or -1, of each trial."""
    # argmax of no True is 0, which the second argument of where replaces
    found = np.where(imprecise.any(axis=0), steps[imprecise.argmax(axis=0)], -1)
    if resumed is None:
        return found
    earlier = np.asarray(-1 if resumed.precise_until is None else resumed.precise_until)
    return np.where(earlier >= 0, earlier, found)


def logit_changes(
    problem: Problem, steps: Int[np.ndarray, "R"], weights: np.ndarray, power: Int[np.ndarray, "R *batch"]
) -> Float[np.ndarray, "R *batch"]:
    """Compute the largest |k'(W_r − W_{r−1})z| over heads, queries and tokens, W = 2^power · weights, at each record r.

    ``steps``: in increasing order. ``weights``: shape (R, *batch, [H,] d_k, d_q) or (R, *batch, [H,] d_k).

    The changes are at most the largest float, and 0 where the record before is not that of the step before.
    """
    model, shape = problem.model_shape, power.shape
    trials = math.prod(power.shape[1 : power.ndim - len(model)])
    # records and trials as one axis, in which the record before is so many trials away
    weights, power = weights.reshape(-1, *weights.shape[power.ndim - len(model) :]), power.reshape(-1, *model)
    found = np.zeros(power.shape)
    after = ((np.flatnonzero(np.diff(steps) == 1) + 1)[:, None] * trials + np.arange(trials)).ravel()
    length = max(1, _NUMBERS_AT_ONCE // max(1, problem.canonical.allowed.size, weights[:1].size))
    for start in range(0, after.size, length):
        block = after[start : start + length]
        before = block - trials
        # both weights at the larger of their scales
        common = np.maximum(power[block], power[before])
        moved = _scaled(weights[block], power[block] - common) - _scaled(weights[before], power[before] - common)
        with np.errstate(over="ignore"):
            changes = np.ldexp(_largest_logits(problem, moved), common)
        found[block] = np.minimum(changes, np.finfo(np.float64).max)
    return found.reshape(shape)


def _scaled(weights: np.ndarray, power: np.ndarray) -> np.ndarray:
    if not power.any():
        return weights
    return np.asarray(weights * np.ldexp(1.0, power)[(..., *(None,) * (weights.ndim - power.ndim))])


def _largest_logits(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "L *model"]:
    """The largest |k'Wz| over heads, queries and tokens, of weights (L, *model, [H,] d_k[, d_q]).

    The last axis of the products is L, so that each sequence takes one long product instead of L short ones.
    """
    keys, queries, allowed, _ = problem.canonical
    weights = weights if problem.has_queries else weights[..., None]
    last = np.moveaxis(weights, (-1, 0), (-3, -1))  # (*batch, d_q, d_k, L)
    projected = queries @ last.reshape(*last.shape[:-3], 1, last.shape[-3], -1)
    logits = keys[..., None, :, :] @ projected.reshape(*projected.shape[:-1], *last.shape[-2:])
    logits[~allowed] = 0.0
    logits = logits.reshape(*problem.model_shape, -1, len(weights))
    return np.moveaxis(np.maximum(logits.max(axis=-2), -logits.min(axis=-2)), -1, 0)
