"""Stretches of training, each compiled into one program. The programs are kept for later calls."""

import logging
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import (
    compiler_options,
    default_device,
    elementwise,
    lanes,
    over_entries,
    quick_to_compile,
    settled_sum,
)
from attsvm.optimizers import Rule, Scale, Scales, rescaled
from attsvm.optimizers.exponents import Weights, in_window
from attsvm.training.attention import AnyArray, Data, Parameters
from attsvm.training.engine.batches import MiniBatches
from attsvm.training.engine.objective import Objective, Observation
from attsvm.training.engine.range import Range

Array = jax.Array

RUNNING, STALLED, NON_FINITE, CONVERGED = 0, 1, 2, 3

_log = logging.getLogger(__name__)

MOST_EXECUTABLES = 128
"""How many are kept. Each takes about 140 mappings of memory, of which Linux allows a process 65,530."""


class State(NamedTuple):
    """The state of a slice of trials; the trailing axis of each array holds them."""

    trained: dict[str, AnyArray]
    optimizer: Any
    status: AnyArray  # (B,): RUNNING, STALLED, NON_FINITE or CONVERGED
    steps: AnyArray  # (B,): updates made
    exponent: AnyArray  # (B,): the parameters of the attention are 2^exponent · trained
    idle: AnyArray | None  # (B,): steps in a row whose gradient was zero; None where one ends the trial


class Inputs(NamedTuple):
    """The inputs of a run, which it does not change."""

    data: Data
    fixed: dict[str, AnyArray]
    range: Range
    numbers: dict[str, AnyArray]
    penalty: AnyArray
    gradient_tol: AnyArray
    key: AnyArray  # of the mini-batches


@dataclass(frozen=True)
class Program:
    """Training of one structure: an objective under an optimiser, with up to ``num_records`` records per call.

    ``batches`` is None if every step uses all sequences; ``watches_gradient``: whether a small gradient ends a trial.
    """

    objective: Objective
    rule: Rule
    num_records: int
    batches: MiniBatches | None = None
    watches_gradient: bool = False

    @property
    def takes_powers_out(self) -> bool:
        """Whether weights may overflow: the objective of large weights depends on their direction alone.

        A trained head is not of this kind, nor is a penalty.
        """
        return self.rule.degree is not None and not self.objective.head_names and not self.objective.penalized

    def start(self, trained: dict[str, AnyArray], exponent: AnyArray, allowed: Range) -> State:
        """State before the first step, from 2^exponent · trained."""
        arguments = trained, exponent, allowed
        state: State = self._executable("_start", *arguments)(*arguments)
        return state

    def compiled(self, state: State, inputs: Inputs) -> Any:
        """The executable for arrays of these shapes: (state, inputs, lengths, count) to (state, observations).

        It makes ``lengths[i]`` steps and observes, for i < count.
        """
        counts = np.zeros(self.num_records, np.int64), np.int64(0)
        return self._executable("_stretch", state, inputs, *counts)

    def _executable(self, method: str, *arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        options = compiler_options(leaves[0].shape[-1]) if method == "_stretch" else quick_to_compile()
        with self._lock:  # so that threads compile a program once
            return _compiled(self, method, structure, shapes, tuple(options.items()), default_device())

    @cached_property
    def _lock(self) -> Lock:
        return Lock()

    def _start(self, trained: Parameters, exponent: Array, allowed: Range) -> State:
        num_trials = next(iter(trained.values())).shape[-1]
        status = jnp.full((num_trials,), RUNNING, jnp.int8)
        none = jnp.zeros((num_trials,), jnp.int64)
        idle = None if self.batches is None else none
        if not self.takes_powers_out:
            return State(trained, self.rule.init(trained), status, none, none, idle)
        weights, _ = in_window(trained, exponent, allowed.window)
        return State(weights.params, self.rule.begin(weights), status, none, weights.exponent, idle)

    def _stretch(self, start: State, inputs: Inputs, lengths: Array, count: Array) -> tuple[State, Observation]:
        # traced once: for the shapes of the records, and in the loop
        observe = jax.jit(self._observe, inline=True)

        def in_lanes(state: State) -> State:
            return State(*jax.tree.map(lanes, tuple(state)))

        def whole(state: State) -> State:
            return State(*jax.tree.map(lambda x, like: x.reshape(like.shape), tuple(state), tuple(start)))

        def step(_: Array, carry: tuple[State, Array | None]) -> tuple[State, Array | None]:
            state, order = whole(carry[0]), carry[1]
            if self.batches is None or order is None:
                return in_lanes(self._step(state, inputs, inputs.data)), order
            number = _number(state)
            order = self.batches.renewed(order, inputs.key, number)
            return in_lanes(self._step(state, inputs, self.batches.take(inputs.data, order, number))), order

        def segment(
            i: Array, carry: tuple[tuple[State, Array | None], Observation]
        ) -> tuple[tuple[State, Array | None], Observation]:
            (state, order), records = carry
            length = jnp.where(jnp.any(state.status == RUNNING), lengths[i], 0)
            state, order = jax.lax.fori_loop(0, length, step, (state, order))
            records = jax.tree.map(partial(_put, i), records, observe(whole(state), inputs))
            return (state, order), records

        # the order of the sequences follows from the number of the step, so it is not part of the state
        order = None if self.batches is None else self.batches.order(inputs.key, _number(start))
        shapes = jax.eval_shape(observe, start, inputs)
        empty = jax.tree.map(lambda x: jnp.zeros((self.num_records, *x.shape), x.dtype), shapes)
        (state, _), records = jax.lax.fori_loop(0, count, segment, ((in_lanes(start), order), empty))
        return whole(state), records

    def _observe(self, state: State, inputs: Inputs) -> Observation:
        return self.objective.observe(state.trained, inputs.fixed, inputs.data, inputs.penalty, state.exponent)

    def _step(self, state: State, inputs: Inputs, data: Data) -> State:
        value, gradient, scales = self.objective.evaluate(state.trained, inputs.fixed, data, inputs.penalty)
        gradient, scales, largest = rescaled(gradient, scales)
        if self.takes_powers_out:
            scales = self._of_true_weights(scales, state)
        trained, exponent, finite, optimizer = self._moved(state, gradient, scales, value, inputs)
        sizes = self.rule.gradient_sizes(largest, scales, inputs.numbers, value)
        zero = reduce(jnp.logical_and, [x == 0 for x in sizes.values()])
        if not self.objective.defined_everywhere:
            finite = finite & self.objective.defined(trained, inputs.fixed, inputs.data)
        running = state.status == RUNNING
        idle, stalled = state.idle, zero
        if self.batches is not None and state.idle is not None:
            # a single mini-batch may have a zero gradient; a trial stalls after an epoch of them
            idle = jnp.where(zero, state.idle + 1, 0)
            stalled = idle >= self.batches.steps_an_epoch
        status = jnp.where(running & stalled, STALLED, jnp.where(running & ~finite, NON_FINITE, state.status))
        goes_on = running & ~zero & finite
        if self.watches_gradient:
            lengths = [jnp.sqrt(over_entries(jnp.add, g * g)) * jnp.exp(scales[name]) for name, g in gradient.items()]
            ends = goes_on & (reduce(jnp.hypot, lengths) <= inputs.gradient_tol)
            status, goes_on = jnp.where(ends, CONVERGED, status), goes_on & ~ends
        counted = goes_on if self.batches is None else status == RUNNING

        def keep(new: Array, old: Array) -> Array:
            return elementwise(jnp.where, goes_on, new, old)

        return State(
            jax.tree.map(keep, trained, state.trained),
            jax.tree.map(keep, optimizer, state.optimizer),
            status.astype(jnp.int8),
            state.steps + counted,
            keep(exponent, state.exponent),
            idle,
        )

    def _moved(
        self, state: State, gradient: Parameters, scales: Scales, value: Array, inputs: Inputs
    ) -> tuple[Parameters, Array, Array, Any]:
        """Parameters and exponents after a step, whether they are finite, and the state of the optimizer."""
        numbers, (limits, window) = inputs.numbers, inputs.range
        if self.takes_powers_out and self.rule.degree is not None:
            weights = Weights(state.trained, state.exponent)
            (trained, exponent), finite, optimizer = self.rule.advance(
                gradient, state.optimizer, weights, numbers, scales, value, window, self.rule.degree
            )
            return trained, exponent, finite, optimizer
        updates, optimizer = self.rule.update(gradient, state.optimizer, state.trained, numbers, scales, value)
        trained = {name: settled_sum(x, updates[name]) for name, x in state.trained.items()}
        # a NaN is never below its limit
        below = [over_entries(jnp.logical_and, jnp.abs(x) <= limits[name]) for name, x in trained.items()]
        return trained, state.exponent, reduce(jnp.logical_and, below), optimizer

    def _of_true_weights(self, scales: Scales, state: State) -> Scales:
        """The scales of the gradient in 2^exponent · params, of logits that are a product of the params of a head."""
        degree = len(state.trained) // self.objective.heads.parts - 1
        if degree == 0:
            return scales
        added = degree * np.log(2.0) * state.exponent
        return Scales(tuple(Scale(group.names, group.log + added.astype(group.log.dtype)) for group in scales.groups))


def _put(i: Array, record: Array, x: Array) -> Array:
    """``record.at[i].set(x)`` for an index in the range, which takes fewer loops to compile."""
    written: Array = jax.lax.dynamic_update_index_in_dim(record, x, i, 0)
    return written


def _number(state: State) -> Array:
    """The number of the step that the running trials are about to make."""
    return jnp.max(jnp.where(state.status == RUNNING, state.steps, 0))


program = lru_cache(maxsize=128)(Program)


@lru_cache(maxsize=MOST_EXECUTABLES)
def _compiled(
    owner: Program,
    method: str,
    structure: Any,
    shapes: tuple[tuple[Any, Any], ...],
    options: tuple[tuple[str, Any], ...],
    device: Any,
) -> Any:
    arguments = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    _log.info("compile a program for %s, or read it from JAX's cache", device)
    return jax.jit(getattr(owner, method)).lower(*arguments).compile(compiler_options=dict(options))
