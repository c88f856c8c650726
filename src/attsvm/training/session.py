"""The slices of one training run, which are advanced in stretches of steps."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from attsvm._utils.interruption import interruptions
from attsvm._utils.progress import Callback, Progress
from attsvm._utils.threads import num_threads, thread_map
from attsvm.errors import ProblemError
from attsvm.optimizers import rule_of
from attsvm.training.attention_heads import fold
from attsvm.training.loop import CONVERGED, RUNNING, Inputs, TrainingProgram, TrainingState, program
from attsvm.training.objective import Observation
from attsvm.training.plateau import MarginPlateau
from attsvm.training.range import range_of
from attsvm.training.setup import Setup
from attsvm.training.trials import (
    LARGE_TRIAL,
    StretchLength,
    TrialData,
    padded_number,
    segment_lengths,
    slices,
    trials_last,
)

_MOST_RECORDS_A_CALL = 64
# their memory is cleared at each call, so it should fit in the cache of a core
_RECORDED_NUMBERS_A_CALL = 65_536


class Session:
    """The slices of one call of :func:`attsvm.train`, and what they have recorded."""

    def __init__(self, setup: Setup) -> None:
        self.problem, self.objective, self.batch_shape = setup.problem, setup.objective, setup.batch_shape
        self.num_trials, self.fixed, self.reduced = setup.num_trials, setup.fixed, setup.reduced
        own = {*self.objective.head_names, *setup.fixed}
        self.of_head = {name: x for name, x in setup.of_head.items() if name not in own}
        self.num_sequences, heads = self.problem.tokens.shape[-3], self.objective.heads.count
        padded, of_head = _data_sizes(setup)
        self.trial_size = heads * of_head
        self.slices = slices(self.num_trials, of_head, heads)
        self.program: TrainingProgram = _program(setup, len(self.slices[0]))
        starts = [self._start(setup, part) for part in self.slices]
        self.inputs = self._inputs(setup, TrialData(self.problem, setup.dtype, padded), [x for x, _ in starts])
        self.states: list[TrainingState] = [self.program.start(*start) for start in starts]
        self.executable = self.program.compiled(self.states[0], self.inputs[0])
        self.marked: frozenset[int] = frozenset()
        self.observed_steps: list[int] = []
        self.observed: list[Observation] = []  # arrays (steps observed, ..., trials)

    def _start(self, setup: Setup, part: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The initial parameters of a slice with the trials last, and their exponents."""
        # in float64, which holds numbers that the type of the training may not
        start = {name: trials_last(x[part], np.float64) for name, x in setup.trained.items()}
        exponent = setup.exponent[part]
        if not self.program.keeps_exponent:
            of_head = self.objective.head_names
            start = {name: x if name in of_head else _in_floats(x, exponent) for name, x in start.items()}
            exponent = np.zeros_like(exponent)
        if self.problem.heads_shape:
            start = {name: np.ascontiguousarray(np.moveaxis(x, 0, -2)) for name, x in start.items()}
        return {name: x.astype(setup.dtype) for name, x in start.items()}, exponent

    def _inputs(self, setup: Setup, data: TrialData, starts: list[dict[str, np.ndarray]]) -> list[Inputs]:
        """The inputs of each slice, on the device; what is one array stays one, also across slices."""
        dtype, tolerance = setup.dtype, setup.stop.gradient_tol
        # those of this optimizer: equal rules, which share the program, have numbers of their own
        scalars = {name: np.asarray(number, dtype) for name, number in rule_of(setup.optimizer).numbers.items()}
        gradient_tol, penalty = (
            np.asarray(-1.0 if tolerance is None else tolerance, dtype),
            np.asarray(setup.penalty, dtype),
        )
        # making a key takes as long as a hundred steps
        key = np.zeros(2, np.uint32) if setup.batches is None else np.asarray(jax.random.PRNGKey(setup.seed))
        moved: list[Inputs] = []
        previous: Inputs | None = None
        for part, start in zip(self.slices, starts, strict=True):
            fixed = {name: data.last(x, part) for name, x in self.of_head.items()}
            constant = {name: trials_last(x[part], dtype) for name, x in self.fixed.items()}
            fixed |= {name: fold(x, self.problem.heads_shape) for name, x in constant.items()}
            taken = data.take(part)
            if previous is not None and _same((taken, fixed), (previous.data, previous.fixed)):
                allowed = previous.range
            else:
                allowed = range_of(self.objective, start, fixed, self.objective.largest_data(taken), dtype)
            inputs = Inputs(taken, fixed, allowed, scalars, penalty, gradient_tol, key)
            moved.append(_on_device(inputs, previous, moved[-1] if moved else None))
            previous = inputs
        return moved

    def resume(self, run: Any) -> None:
        """Continue with the optimizer's state and the counts of an earlier run."""
        leaves, structure = jax.tree.flatten(self.states[0].optimizer)
        kept = [
            np.reshape(run.optimizer_state[str(i)], (self.num_trials, *np.shape(x)[len(self.batch_shape) :]))
            for i, x in enumerate(run.optimizer_state.values())
        ]
        steps = np.broadcast_to(np.asarray(run.step, np.int64), self.batch_shape).reshape(-1)
        for i, part in enumerate(self.slices):
            state = self.states[i]._replace(steps=jax.device_put(steps[part]))
            # another optimiser starts with a new state
            if [x.shape[1:] for x in kept] == [leaf.shape[:-1] for leaf in leaves]:
                moved = [trials_last(x[part], leaf.dtype) for x, leaf in zip(kept, leaves, strict=True)]
                state = state._replace(optimizer=jax.tree.unflatten(structure, jax.device_put(moved)))
            self.states[i] = state

    def advance(
        self,
        start: int,
        marks: list[int],
        callback: Callback | None,
        plateau: MarginPlateau | None,
        memory: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> bool:
        """Make the steps up to the last mark and observe at each mark; return whether the run was interrupted.

        ``plateau``: None if the margins are not watched. ``memory`` is a context for what needs
        memory; the callback may need some of its own.
        """
        checks = [] if plateau is None else plateau.checks(start, marks[-1])
        self.marked = frozenset(marks)
        left, goal, done = sorted({*marks, *checks}), marks[-1], start
        threads = min(num_threads(), len(self.slices)) if self.executable.concurrent else 1
        pace = StretchLength(self.trial_size * len(self.slices[0]) * -(-len(self.slices) // threads))
        began = time.perf_counter()
        try:
            with interruptions() as requested, thread_map(threads) as spread:
                if pace.makes_few_steps:
                    pace.fixed = self._call(spread, start, [0], memory)
                    left = [mark for mark in left if mark > start]
                while left:
                    # no stretch goes past a check, after which some trials may stand still
                    until = next((check for check in checks if check > done), goal)
                    ahead = [mark for mark in left if mark <= until]
                    lengths = segment_lengths(done, ahead, pace.steps, self.program.num_records)
                    pace.learn(sum(lengths), self._call(spread, done, lengths, memory))
                    done += sum(lengths)
                    if plateau is not None and done in checks:
                        self._end_at_plateau(plateau)
                    left = [mark for mark in left if mark > done]
                    stops = callback is not None and callback(self._progress(done, goal, time.perf_counter() - began))
                    if stops or requested.is_set():
                        return bool(left)  # a run that has made all its steps is finished
        except KeyboardInterrupt:
            if not self.observed:
                self._keep([self._stretch([0])(i) for i in range(len(self.slices))], np.array([start]))
            return bool(left)
        return False

    def _call(
        self,
        spread: Callable[..., list[Any]],
        done: int,
        lengths: list[int],
        memory: Callable[[], AbstractContextManager[None]],
    ) -> float:
        """Advance all slices by segments of these lengths, keep what they observe, and return the seconds it took."""
        began = time.perf_counter()
        with memory():
            results = spread(self._stretch(lengths), range(len(self.slices)))
            self._keep(results, done + np.cumsum(lengths))
        return time.perf_counter() - began

    def _end_at_plateau(self, plateau: MarginPlateau) -> None:
        last = self.observed[-1]
        parameters = {name: self.first(x[-1]) for name, x in last.parameters.items()}
        head_names, heads = self.objective.head_names, self.problem.heads_shape
        of_attention = {name: x for name, x in parameters.items() if name not in head_names}
        selected = self.per_query(last.selected[-1], -1, 0)
        powers = len(of_attention) * self.first(last.exponent[-1])
        powers = np.broadcast_to(powers[(..., *(None,) * len(heads))], (*powers.shape, *heads))
        assert self.reduced is not None
        of_heads = plateau.reached(selected, self.reduced.weights(of_attention), powers)
        reached = np.all(of_heads.reshape(self.num_trials, -1), axis=-1)
        for i, part in enumerate(self.slices):
            status = np.asarray(self.states[i].status)
            status = np.where(reached[part] & (status == RUNNING), CONVERGED, status).astype(np.int8)
            self.states[i] = self.states[i]._replace(status=jax.device_put(status))

    def _stretch(self, lengths: list[int]) -> Callable[[int], tuple[TrainingState, Observation]]:
        padded = np.zeros(self.program.num_records, np.int64)
        padded[: len(lengths)] = lengths

        def call(i: int) -> tuple[TrainingState, Observation]:
            # the context of float64 belongs to a thread
            with jax.enable_x64(True):
                result = self.executable.call(self.states[i], self.inputs[i], padded, np.int64(len(lengths)))
                jax.block_until_ready(result)
            state, seen = result
            return state, seen

        return call

    def _keep(self, results: list[tuple[TrainingState, Observation]], steps: np.ndarray) -> None:
        def join(*parts: Any) -> np.ndarray:
            joined = np.concatenate([np.asarray(part)[: len(steps)] for part in parts], axis=-1)
            return joined[..., : self.num_trials]

        self.states = [state for state, _ in results]
        self._drop_unmarked()
        seen: Observation = jax.tree.map(join, *(seen for _, seen in results))
        # without the sequences that pad the problem
        selected, probability = (x[..., : self.num_sequences, :, :] for x in (seen.selected, seen.probability))
        self.observed.append(seen._replace(selected=selected, probability=probability))
        self.observed_steps += steps.tolist()

    def _drop_unmarked(self) -> None:
        """Drop the last observation unless its step is marked: each call observes where it ends."""
        if self.observed and self.observed_steps[-1] not in self.marked:
            self.observed_steps.pop()
            rest = jax.tree.map(lambda x: x[:-1], self.observed.pop())
            if len(rest.loss):
                self.observed.append(rest)

    def _progress(self, done: int, goal: int, seconds: float) -> Progress:
        last = self.observed[-1]
        loss, probability = float(np.mean(last.loss[-1])), float(np.median(last.probability[-1]))
        return Progress(done, goal, seconds, loss=loss, probability=probability)

    def per_query(self, x: np.ndarray, padded: float, after: int) -> np.ndarray:
        """As :meth:`first`, with a value for padded queries and without the Q axis that a problem lacks."""
        x = np.where(self.problem.canonical.active, self.first(x, after), padded).astype(x.dtype)
        return x if self.problem.has_query_axis else x[..., 0]

    def first(self, x: np.ndarray, after: int = 0) -> np.ndarray:
        """The trailing axis of trials as batch axes, in front of all axes but the first ``after``."""
        x = np.moveaxis(x, -1, after)
        return np.ascontiguousarray(x).reshape((*x.shape[:after], *self.batch_shape, *x.shape[after + 1 :]))


def _data_sizes(setup: Setup) -> tuple[int, int]:
    """The sequences of the compiled program, and the numbers that one head of a trial reads of its data."""
    problem, number = setup.problem, setup.problem.tokens.shape[-3]
    of_sequence = problem.canonical.allowed[(0,) * len(problem.batch_shape)][0].size
    of_sequence *= max(problem.dim, problem.key_dim)
    if setup.batches is None and number * of_sequence <= LARGE_TRIAL:
        number = padded_number(number)
    return number, max(number * of_sequence, setup.objective.numbers_between_layers(number, problem))


def _program(setup: Setup, trials: int) -> TrainingProgram:
    # how many records one call holds depends on shapes alone, so that no number of steps compiles anything anew
    row = trials * sum(x[0].size for x in setup.trained.values())
    capacity = int(np.clip(_RECORDED_NUMBERS_A_CALL // row, 1, _MOST_RECORDS_A_CALL))
    watches = setup.stop.gradient_tol is not None
    return program(setup.objective, rule_of(setup.optimizer), capacity, setup.batches, watches)


def _on_device(inputs: Inputs, previous: Inputs | None, on_device: Inputs | None) -> Inputs:
    """The inputs as arrays of the device, once for all calls.

    What is one array stays one, also across slices: ``previous`` are those of another slice and ``on_device`` the same
    on the device.
    """
    leaves, structure = jax.tree.flatten(inputs)
    known = dict(zip(map(id, jax.tree.leaves(previous)), jax.tree.leaves(on_device), strict=True))
    distinct = {id(leaf): leaf for leaf in leaves if id(leaf) not in known}
    known |= zip(distinct, jax.device_put(list(distinct.values())), strict=True)
    moved: Inputs = jax.tree.unflatten(structure, [known[id(leaf)] for leaf in leaves])
    return moved


def _same(a: Any, b: Any) -> bool:
    """Whether two trees hold the same arrays."""
    of_a, of_b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(of_a) == len(of_b) and all(x is y for x, y in zip(of_a, of_b, strict=True))


def _in_floats(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        whole = np.ldexp(x, exponent)
    if not np.isfinite(whole).all():
        raise ProblemError(
            "init: expected weights within the range of floats, with log_scale = 0; only normalised steps relative to "
            "the weights, with a fixed prediction head and no penalty, can continue from larger ones"
        )
    return np.asarray(whole)
