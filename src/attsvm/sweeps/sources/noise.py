"""Tokens of signal and of noise with flipped labels: :func:`attsvm.datasets.signal_noise`, trial by trial."""

from collections.abc import Sequence

import numpy as np

from attsvm.datasets.signal_noise import signal_noise
from attsvm.problem import Problem
from attsvm.sweeps.format import Drawn


def draw(
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
        _stacked([one.train for one in trials]),
        _stacked([one.test for one in trials]),
        {
            "flipped": np.stack([one.flipped for one in trials]),
            "noise_tokens": np.stack([one.noise_tokens for one in trials]),
        },
    )


def _stacked(problems: list[Problem]) -> Problem:
    arrays = {name: np.stack([getattr(one, name) for one in problems]) for name in ("tokens", "labels", "head")}
    return Problem(**arrays)
