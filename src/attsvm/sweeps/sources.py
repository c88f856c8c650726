"""Sources of the problems of a sweep, by name.

A source is a function ``draw(generators, *, ...)`` that returns a :class:`~attsvm.Problem` with one batch axis, or a
:class:`attsvm.sweeps.Drawn`. It draws trial i from ``generators[i]`` alone.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attsvm._utils.checks import check_flag, check_integer
from attsvm._utils.extensions import find_named
from attsvm.datasets import signal_noise
from attsvm.errors import ProblemError
from attsvm.problem import Problem, stack_problems


@dataclass(frozen=True)
class Drawn:
    """The draw of a data source for a block of trials.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    problem : Problem
        With one batch axis, the trials.
    test : Problem, optional
        Test data, with the same batch axis.
    extras : mapping of str to ndarray
        Further arrays for measures, with the trials in front.

    See Also
    --------
    attsvm.sweeps.SOURCES

    Examples
    --------
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.sweeps import Drawn
    >>> Drawn(random_problem(3, 4, 5, batch=(8,))).problem.batch_shape
    (8,)
    """

    problem: Problem
    test: Problem | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)


def draw_random(
    generators: Sequence[np.random.Generator],
    *,
    num_sequences: int = 6,
    num_tokens: int = 8,
    dim: int = 10,
    prompt: bool = False,
    self_attention: bool = False,
) -> Problem:
    """Draw Gaussian heads, tokens and queries, scaled to unit norm, and labels ±1 with equal probability.

    ``generators``: one for each trial. ``num_sequences``, ``num_tokens``, ``dim``: n, T and d. ``prompt``: leave out
    the queries, for prompt attention. ``self_attention``: the query of a sequence is its first token.
    """
    n, T, d = (
        check_integer(name, size, 1)
        for name, size in (("num_sequences", num_sequences), ("num_tokens", num_tokens), ("dim", dim))
    )
    if check_flag("self_attention", self_attention) and check_flag("prompt", prompt):
        raise ProblemError("self_attention: expected False for a prompt, which has no queries")
    ends = np.cumsum([n, d, n * T * d, n * d])
    # one call for each trial, because drawing few numbers takes less time than calling
    labels, head, tokens, queries = np.split(
        np.stack([generator.standard_normal(ends[-1]) for generator in generators]), ends[:-1], axis=1
    )
    tokens = _unit(tokens.reshape(-1, n, T, d))
    return Problem(
        tokens,
        labels=np.where(labels >= 0, 1.0, -1.0),
        head=_unit(head),
        queries=None if prompt else tokens[..., 0, :] if self_attention else _unit(queries.reshape(-1, n, d)),
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def draw_noise(
    generators: Sequence[np.random.Generator],
    *,
    num_sequences: int = 20,
    num_tokens: int = 8,
    dim: int = 2000,
    signal: float = 20.0,
    weak: float = 0.1,
    label_noise: float = 0.2,
    num_test: int = 1000,
    compact: bool = False,
) -> Drawn:
    """Draw sequences with a token of signal, two of weak signal, and noise, with flipped labels and test sequences.

    ``generators``: one for each trial. The other parameters are those of :func:`attsvm.datasets.signal_noise`.

    The result has test data, and the extras ``flipped`` (trials, n) and ``noise_tokens`` (trials, T).
    """
    trials = [
        signal_noise(
            num_sequences,
            num_tokens,
            dim,
            signal=signal,
            weak=weak,
            label_noise=label_noise,
            num_test=num_test,
            seed=generator,
            compact=compact,
        )
        for generator in generators
    ]
    return Drawn(
        stack_problems(one.train for one in trials),
        stack_problems(one.test for one in trials),
        {
            "flipped": np.stack([one.flipped for one in trials]),
            "noise_tokens": np.stack([one.noise_tokens for one in trials]),
        },
    )


SOURCES: dict[str, Callable[..., Any]] = {"noise": draw_noise, "random": draw_random}


def find_source(data: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function that draws problems, by name, by import path, or itself.

    Raises ProblemError if its first parameter is not ``generators``.
    """
    found = data if callable(data) else find_named("source", SOURCES, data)
    first = next(iter(inspect.signature(found).parameters), "none")
    if first != "generators":
        raise ProblemError(f"data: expected a function draw(generators, ...), got one whose first parameter is {first}")
    return found


def drawn_block(found: Any, width: int) -> Drawn:
    """Check what a source returned.

    Raises ProblemError if it is neither a problem nor a :class:`Drawn`, or its batch axis is not that of the trials.
    """
    drawn = Drawn(found) if isinstance(found, Problem) else found
    if not isinstance(drawn, Drawn):
        raise ProblemError(f"data: expected a Problem or a Drawn, got {type(found).__name__}")
    if drawn.problem.model_shape != (width,):
        raise ProblemError(f"data: expected problems with the batch axes ({width},), got {drawn.problem.model_shape}")
    return drawn
