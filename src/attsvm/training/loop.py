"""Stretches of training, each compiled into one program. The programs are kept for later calls."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import elementwise, lanes, over_all, over_entries, settle
from attsvm._utils.jax_devices import compiler_options, default_device, quick_to_compile
from attsvm.optimizers import Rule
from attsvm.training.attention.base import AnyArray, Parameters, ProblemData
from attsvm.training.excess import log_excess
from attsvm.training.objective import Objective, Observation
from attsvm.training.range import STEPS_BETWEEN_BORDERS, Range, half_range
from attsvm.training.trials import MiniBatchSampler

Array = jax.Array

RUNNING, STALLED, NON_FINITE, CONVERGED = 0, 1, 2, 3

_log = logging.getLogger(__name__)

MOST_EXECUTABLES = 128
"""How many are kept. Each takes about 140 mappings of memory, of which Linux allows a process 65,530."""


class TrainingState(NamedTuple):
    """The state of a slice of trials; the trailing axis of each array holds them."""

    trained: dict[str, AnyArray]
    optimizer: Any
    status: AnyArray  # (B,): RUNNING, STALLED, NON_FINITE or CONVERGED
    steps: AnyArray  # (B,): updates made
    exponent: AnyArray  # (B,): the parameters of the attention are 2^exponent · trained
    idle: AnyArray | None  # (B,): steps in a row whose gradient was zero; None where one ends the trial


class Inputs(NamedTuple):
    """The inputs of a run, which it does not change."""

    data: ProblemData
    fixed: dict[str, AnyArray]
    range: Range
    numbers: dict[str, AnyArray]
    penalty: AnyArray
    gradient_tol: AnyArray
    key: AnyArray  # of the mini-batches


@dataclass(frozen=True)
class TrainingProgram:
    """Training of one structure: an objective under an optimiser, with up to ``num_records`` records per call.

    ``batches`` is None if every step uses all sequences; ``watches_gradient``: whether a small gradient ends a trial.
    """

    objective: Objective
    rule: Rule
    num_records: int
    batches: MiniBatchSampler | None = None
    watches_gradient: bool = False

    @cached_property
    def keeps_exponent(self) -> bool:
        """Whether weights may be larger than any float: steps may make them grow exponentially.

        The objective of large weights depends on their direction alone, without a trained head or a penalty.
        """
        simple = not self.objective.head_names and not self.objective.penalized
        return simple and self.rule.state_degree is not None

    def start(self, trained: dict[str, AnyArray], exponent: AnyArray) -> TrainingState:
        """State before the first step, from 2^exponent · trained."""
        arguments = trained, exponent
        state: TrainingState = self._executable("_start", *arguments).call(*arguments)
        return state

    def compiled(self, state: TrainingState, inputs: Inputs) -> "Executable":
        """The executable for arrays of these shapes: (state, inputs, lengths, count) to (state, observations).

        It makes ``lengths[i]`` steps and observes, for i < count.
        """
        counts = np.zeros(self.num_records, np.int64), np.int64(0)
        return self._executable("_stretch", state, inputs, *counts)

    def _executable(self, method: str, *arguments: Any) -> "Executable":
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        options = compiler_options(leaves[0].shape[-1]) if method == "_stretch" else quick_to_compile()
        with self._lock:  # so that threads compile a program once
            return _compiled(self, method, structure, shapes, tuple(options.items()), default_device())

    @cached_property
    def _lock(self) -> Lock:
        return Lock()

    def _start(self, trained: Parameters, exponent: Array) -> TrainingState:
        num_trials = next(iter(trained.values())).shape[-1]
        status = jnp.full((num_trials,), RUNNING, jnp.int8)
        none = jnp.zeros((num_trials,), jnp.int64)
        idle = None if self.batches is None else none
        return TrainingState(trained, self.rule.init(self.objective.heads.seen(trained)), status, none, exponent, idle)

    def _stretch(
        self, start: TrainingState, inputs: Inputs, lengths: Array, count: Array
    ) -> tuple[TrainingState, Observation]:
        # traced once: for the shapes of the records, and in the loop
        observe = jax.jit(self._observe, inline=True)

        def in_lanes(state: TrainingState) -> TrainingState:
            return TrainingState(*jax.tree.map(lanes, tuple(state)))

        def whole(state: TrainingState) -> TrainingState:
            return TrainingState(*jax.tree.map(lambda x, like: x.reshape(like.shape), tuple(state), tuple(start)))

        def step(_: Array, carry: tuple[TrainingState, Array | None]) -> tuple[TrainingState, Array | None]:
            state, order = whole(carry[0]), carry[1]
            if self.batches is None or order is None:
                return in_lanes(self._step(state, inputs, inputs.data)), order
            number = _number(state)
            order = self.batches.renewed(order, inputs.key, number)
            return in_lanes(self._step(state, inputs, self.batches.take(inputs.data, order, number))), order

        def steps(number: Array, carry: tuple[TrainingState, Array | None]) -> tuple[TrainingState, Array | None]:
            if not self.keeps_exponent:
                stepped: tuple[TrainingState, Array | None] = jax.lax.fori_loop(0, number, step, carry)
                return stepped

            def to_border(
                carry: tuple[Array, tuple[TrainingState, Array | None]],
            ) -> tuple[Array, tuple[TrainingState, Array | None]]:
                left, (state, order) = carry
                ahead = STEPS_BETWEEN_BORDERS - _number(state) % STEPS_BETWEEN_BORDERS
                length = jnp.minimum(ahead, left)
                state, order = jax.lax.fori_loop(0, length, step, (state, order))
                # at fixed numbers of steps, so that a resumed run has the bits of one that was not interrupted
                state = in_lanes(self._within_border(whole(state), inputs.range, length == ahead))
                return left - length, (state, order)

            _, moved = jax.lax.while_loop(lambda carry: carry[0] > 0, to_border, (number, carry))
            return moved

        def segment(
            i: Array, carry: tuple[tuple[TrainingState, Array | None], Observation]
        ) -> tuple[tuple[TrainingState, Array | None], Observation]:
            (state, order), records = carry
            length = jnp.where(jnp.any(state.status == RUNNING), lengths[i], 0)
            state, order = steps(length, (state, order))
            records = jax.tree.map(partial(_put, i), records, observe(whole(state), inputs))
            return (state, order), records

        # the order of the sequences follows from the number of the step, so it is not part of the state
        order = None if self.batches is None else self.batches.order(inputs.key, _number(start))
        shapes = jax.eval_shape(observe, start, inputs)
        empty = jax.tree.map(lambda x: jnp.zeros((self.num_records, *x.shape), x.dtype), shapes)
        (state, _), records = jax.lax.fori_loop(0, count, segment, ((in_lanes(start), order), empty))
        return whole(state), records

    def _observe(self, state: TrainingState, inputs: Inputs) -> Observation:
        return self.objective.observe(state.trained, inputs.fixed, inputs.data, inputs.penalty, state.exponent)

    def _step(self, state: TrainingState, inputs: Inputs, data: ProblemData) -> TrainingState:
        value, gradient = self.objective.evaluate(state.trained, inputs.fixed, data, inputs.penalty)
        gradient, largest = gradient.rescaled()
        heads, numbers = self.objective.heads, inputs.numbers
        if self.rule.reads_excess:
            numbers = numbers | {"log_excess": log_excess(self.objective, state.trained, inputs.fixed, data)}
        updates, optimizer = self.rule.update(
            gradient, state.optimizer, heads.seen(state.trained), numbers=numbers, value=value
        )
        moves = heads.joined(updates)
        # settled: the sums are computed once
        trained = {name: elementwise(_settled_sum, x, moves[name]) for name, x in state.trained.items()}
        # a NaN is never below its limit
        limits = inputs.range.limits
        below = {name: elementwise(_is_below, x, limits[name]) for name, x in trained.items()}
        finite = over_all(jnp.logical_and, below, lambda x: x)
        # for an optimiser whose steps depend on its size, a gradient too small for a float is zero
        sizes = largest if self.rule.scale_free else {name: jnp.exp(c) for name, c in gradient.logs.items()}
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
            logs = gradient.logs
            lengths = [
                jnp.sqrt(over_entries(jnp.add, g * g)) * jnp.exp(logs[name]) for name, g in gradient.gradient.items()
            ]
            ends = goes_on & (reduce(jnp.hypot, lengths) <= inputs.gradient_tol)
            status, goes_on = jnp.where(ends, CONVERGED, status), goes_on & ~ends
        counted = goes_on if self.batches is None else status == RUNNING

        def keep(new: Array, old: Array) -> Array:
            return elementwise(jnp.where, goes_on, new, old)

        return TrainingState(
            jax.tree.map(keep, trained, state.trained),
            jax.tree.map(keep, optimizer, state.optimizer),
            status.astype(jnp.int8),
            state.steps + counted,
            state.exponent,
            idle,
        )

    def _within_border(self, state: TrainingState, allowed: Range, looks: Array) -> TrainingState:
        """Take powers of two out of those beyond the border, where ``looks`` is true."""
        # a state of a higher degree must not overflow before the weights do
        degree = max(self.rule.state_degree or 0.0, 1.0)
        border = jnp.minimum(allowed.border, int(half_range(next(iter(state.trained.values())).dtype) / degree))
        largest = over_all(jnp.maximum, state.trained, jnp.abs)
        _, size = jnp.frexp(jnp.where(looks & (largest > 0), largest, 1.0))
        power = jnp.maximum(size - border, 0)
        factor = jnp.ldexp(jnp.ones_like(largest), -power)
        return state._replace(
            trained={name: elementwise(jnp.multiply, x, factor) for name, x in state.trained.items()},
            optimizer=self.rule.rescaled(state.optimizer, -power),
            exponent=state.exponent + power,
        )


def _put(i: Array, record: Array, x: Array) -> Array:
    """``record.at[i].set(x)`` for an index in the range, which takes fewer loops to compile."""
    written: Array = jax.lax.dynamic_update_index_in_dim(record, x, i, 0)
    return written


def _is_below(x: Array, limit: Array) -> Array:
    return jnp.abs(x) <= limit


def _number(state: TrainingState) -> Array:
    """The number of the step that the running trials are about to make."""
    return jnp.max(jnp.where(state.status == RUNNING, state.steps, 0))


program = lru_cache(maxsize=128)(TrainingProgram)


class Executable(NamedTuple):
    """A compiled program."""

    call: Callable[..., Any]
    concurrent: bool
    """Whether several threads may run it at once. Programs that call LAPACK must not: they can deadlock."""


def _settled_sum(x: Array, y: Array) -> Array:
    return settle(x + y)


@lru_cache(maxsize=MOST_EXECUTABLES)
def _compiled(
    owner: TrainingProgram,
    method: str,
    structure: Any,
    shapes: tuple[tuple[Any, Any], ...],
    options: tuple[tuple[str, Any], ...],
    device: Any,
) -> Executable:
    arguments = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    _log.info("compile a program for %s, or read it from JAX's cache", device)
    compiled = jax.jit(getattr(owner, method)).lower(*arguments).compile(compiler_options=dict(options))
    return Executable(compiled, concurrent="lapack" not in (compiled.as_text() or ""))
