"""Division of a training: of the trials into slices, the sequences into mini-batches, and the steps into stretches.

A slice of trials is computed in vector registers, and slices run on several cores.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.jax_devices import default_device
from attsvm._utils.threads import num_threads
from attsvm.problem import Problem
from attsvm.training.attention.base import AnyArray, ProblemData
from attsvm.training.attention_heads import fold

Array = jax.Array

# The tokens of a slice should stay in the cache of its core. Vectors longer than this many trials are not faster.
CACHED_NUMBERS = 131_072
_MOST_TRIALS = 64
# From this size on a single trial fills the vector registers.
LARGE_TRIAL = 32_768

_SECONDS_A_CALL = 0.25
# Large weights and many slices have calls whose fixed time, to copy and to observe the weights, is that of many steps.
_FEW_STEPS_A_CALL = 256
_CALL_OVER_FIXED = 5


def slices(num_trials: int, trial_size: int, num_heads: int = 1) -> list[np.ndarray]:
    """Indices of the trials of each slice, all slices of one length; each head of a trial counts as one.

    If the lengths are not equal, the last slice repeats its last trial, so that one executable serves all slices.
    """
    if default_device().platform != "cpu":
        return [np.arange(num_trials)]
    most = 1 if trial_size > LARGE_TRIAL else int(np.clip(CACHED_NUMBERS // trial_size, 8, _MOST_TRIALS))
    most = max(1, most // num_heads)
    threads = num_threads()
    number = -(-num_trials // most)
    if num_trials > 1:
        number = min(num_trials, -(-number // threads) * threads)
    length = -(-num_trials // number)
    length = length if length <= 8 else min(-(-length // 8) * 8, num_trials)
    return [np.minimum(np.arange(first, first + length), num_trials - 1) for first in range(0, num_trials, length)]


def padded_number(num_sequences: int) -> int:
    """The number of sequences of the compiled program: up to a tenth more, so that problems of near sizes share it.

    Examples
    --------
    >>> from attsvm.training.trials import padded_number
    >>> [padded_number(n) for n in (6, 20, 21, 22, 97, 100)]
    [6, 20, 22, 22, 103, 103]
    """
    size = 1
    while size < num_sequences:
        size = max(size + 1, int(1.1 * size))
    return size


class TrialData:
    """The arrays of a problem with the trials last, slice by slice; heads are folded into the trials.

    ``num_sequences``: at least that of the problem. Those that are added repeat the first one, with the weight 0.
    """

    def __init__(self, problem: Problem, dtype: np.dtype, num_sequences: int | None = None) -> None:
        keys, queries, index, offsets = problem.terms
        allowed, active = problem.canonical.allowed, problem.canonical.active
        self._batch_ndim, self._heads_shape = len(problem.batch_shape), problem.heads_shape
        self._num_problems = int(np.prod(problem.model_shape, dtype=np.int64))
        labels = problem.labels
        assert labels is not None
        labels = labels if problem.has_query_axis else labels[..., None]
        weight = active / active.sum(axis=(-2, -1), keepdims=True)
        self._dtype = dtype
        masked = None if bool(allowed.all()) else np.asarray(allowed)
        self._of_heads = (problem.tokens, keys, queries)
        self._of_pairs = (masked, problem.copies.first, index, offsets)
        # the loss is that of the sum over the heads
        first = (slice(None),) * len(problem.model_shape) + (0,) * len(self._heads_shape)
        self._of_models = labels[first], weight[first]
        self._num_added = 0 if num_sequences is None else num_sequences - problem.tokens.shape[-3]
        self._shared: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def take(self, trials: np.ndarray) -> ProblemData:
        """Data of some trials; the problem's batch runs fastest, so that trial j has problem j mod their number."""
        tokens, keys, queries = self._of_heads
        taken = self._last(tokens, trials, self._heads_shape, added=1)
        # tokens that are their own keys stay one array, which takes half the cache
        of_keys = taken if keys is tokens else self._last(keys, trials, self._heads_shape, added=1)
        of_queries = self._last(queries, trials, self._heads_shape, added=1)
        of_pairs = (None if x is None else self._last(x, trials, self._heads_shape, added=1) for x in self._of_pairs)
        labels, weight = self._of_models
        of_labels, of_weight = self._last(labels, trials, (), added=1), self._last(weight, trials, (), added=0)
        return ProblemData(taken, of_keys, of_queries, of_labels, of_weight, *of_pairs)

    def last(self, array: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """One array (*batch, ...) as (..., H·B), the trials running fastest, or (..., 1) where all problems share it.

        Without several heads, H is 1. A shared array is the same object for all trials.
        """
        return self._last(array, trials, self._heads_shape)

    def _last(
        self, array: np.ndarray, trials: np.ndarray, heads: tuple[int, ...], added: int | None = None
    ) -> np.ndarray:
        """See :meth:`last`. Sequences that are added are ``added`` times the first one; None for what has none."""
        axes = self._batch_ndim - len(self._heads_shape) + len(heads)
        if all(stride == 0 or size == 1 for stride, size in zip(array.strides[:axes], array.shape, strict=False)):
            if id(array) not in self._shared:
                # with the array itself, so that no other one can have its id
                self._shared[id(array)] = array, self._finished(array[(0,) * axes][..., None], added)
            return self._shared[id(array)][1]
        array = array.reshape(self._num_problems, *heads, *array.shape[axes:])
        return self._finished(fold(np.moveaxis(array[trials % self._num_problems], 0, -1), heads), added)

    def _finished(self, array: np.ndarray, added: int | None) -> np.ndarray:
        if self._num_added and added is not None:
            more = np.repeat(array[:1] * array.dtype.type(added), self._num_added, axis=0)
            array = np.concatenate([array, more])
        return np.ascontiguousarray(array, dtype=self._dtype if array.dtype.kind == "f" else array.dtype)


def trials_last(x: np.ndarray, dtype: Any) -> np.ndarray:
    """(B, ...) as (..., B)."""
    return np.ascontiguousarray(np.moveaxis(x, 0, -1), dtype=dtype)


@dataclass(frozen=True)
class MiniBatchSampler:
    """Sequences drawn without replacement and shuffled anew in each epoch.

    The sequences of a step depend only on the seed and the number of the step, so a resumed run draws the same ones. If
    ``size`` does not divide the number of sequences, the remaining sequences of an epoch are not used in it.
    """

    num_sequences: int
    size: int  # sequences of a step, fewer than ``num_sequences``

    @property
    def steps_an_epoch(self) -> int:
        """Number of batches in an epoch."""
        return self.num_sequences // self.size

    def order(self, key: AnyArray, step: Array) -> Array:
        """The order of the sequences in the epoch of a step."""
        return jax.random.permutation(jax.random.fold_in(key, step // self.steps_an_epoch), self.num_sequences)

    def renewed(self, order: Array, key: AnyArray, step: Array) -> Array:
        """The order at a step, from that of the previous step: a new one at the beginning of an epoch."""
        begins = step % self.steps_an_epoch == 0
        renewed: Array = jax.lax.cond(begins, lambda: self.order(key, step), lambda: order)
        return renewed

    def take(self, data: ProblemData, order: Array, step: Array) -> ProblemData:
        """The sequences of a step, whose queries share the weight of the mean."""
        first = (step % self.steps_an_epoch) * self.size
        chosen = jax.lax.dynamic_slice_in_dim(order, first, self.size)
        taken = ProblemData(*(None if x is None else jnp.take(x, chosen, axis=0) for x in data))
        total = jnp.sum(taken.query_weight, axis=(0, 1))
        return taken._replace(query_weight=taken.query_weight / jnp.where(total > 0, total, 1.0))


class StretchLength:
    """How many steps a stretch makes, so that it takes about a quarter of a second.

    ``work``: the numbers that a thread reads in a step, from which the length of the first stretch is guessed.
    """

    def __init__(self, work: int) -> None:
        self.steps = max(1, int(_SECONDS_A_CALL / max(2e-6, 4e-9 * work)))
        self.fixed = 0.0  # the seconds that a stretch takes without steps

    @property
    def makes_few_steps(self) -> bool:
        """Whether a stretch has so few steps that ``fixed`` has to be measured."""
        return self.steps < _FEW_STEPS_A_CALL

    def learn(self, steps: int, seconds: float) -> None:
        """Set the length of the next stretch by the time that these steps took."""
        if steps:
            of_steps = max(seconds - self.fixed, 0.1 * seconds, 1e-6)
            most = max(_SECONDS_A_CALL, _CALL_OVER_FIXED * self.fixed)
            self.steps = max(1, int(steps * (most - self.fixed) / of_steps))


def segment_lengths(done: int, marks: list[int], budget: int, capacity: int) -> list[int]:
    """Lengths of the next segments, from mark to mark, up to the budget of steps and of records."""
    lengths: list[int] = []
    for mark in marks[:capacity]:
        length = min(mark - done - sum(lengths), budget - sum(lengths))
        if lengths and mark > done and length == 0:
            break
        lengths.append(length)
        if done + sum(lengths) < mark:
            break
    return lengths
