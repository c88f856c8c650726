"""Tokens of signal and of noise with flipped labels: the published data of benign overfitting in token selection."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.checks import check_flag, check_integer, check_number, check_seed
from attsvm._utils.shapes import Bool
from attsvm.errors import ProblemError
from attsvm.problem import Problem

NUM_SIGNAL = 3
"""Tokens of a sequence that contain signal: the relevant one, a weak one of its class and one of the other class."""


@dataclass(frozen=True, eq=False)
class SignalNoise:
    """Training and test sequences of one draw.

    Attributes
    ----------
    train : Problem
        n sequences with the labels as observed, some of them flipped, and the head of the two signals.
    test : Problem
        New sequences with clean labels and the same head.
    flipped : bool ndarray, shape (n,)
        Whose label of ``train`` is flipped.
    noise_tokens : bool ndarray, shape (T,)
        Tokens without signal, in every sequence.
    """

    train: Problem
    test: Problem
    flipped: Bool[np.ndarray, " n"]
    noise_tokens: Bool[np.ndarray, " T"]


def signal_noise(
    num_sequences: int = 20,
    num_tokens: int = 8,
    dim: int = 2000,
    *,
    signal: float = 20.0,
    weak: float = 0.1,
    label_noise: float = 0.2,
    num_test: int = 1000,
    seed: int | np.random.Generator = 0,
    compact: bool = False,
) -> SignalNoise:
    """Draw sequences with one signal token, two weak signal tokens and noise tokens, and flip some labels.

    With μ₊ = s e₁, μ₋ = s e₂ and noise ε ~ N(0, I), a sequence of class y has the tokens μ_y + ε, ρ μ_y + ε,
    ρ μ_(−y) + ε, and ε for all others. The first half of the sequences is of class +1. In each class half of
    ⌈ηn⌉ labels are flipped, rounded down. The head is (μ₊ − μ₋) / (s ‖μ₊ − μ₋‖).

    Parameters
    ----------
    num_sequences, num_tokens, dim : int
        n, T ≥ 4 and d ≥ 3.
    signal : float
        s, the length of both signals.
    weak : float
        ρ, the strength of the weak signals.
    label_noise : float
        η in [0, 1/2].
    num_test : int
        Number of test sequences, drawn independently of the training sequences.
    seed : int or numpy.random.Generator
        A seed, or the generator to draw from.
    compact : bool
        Draw the tokens in coordinates of the plane of the signals and the span of the training noise, nT + 2 in
        place of d. All inner products of tokens and head have the same distribution, so the result of training a
        prompt from zero has it, too. Test tokens have no coordinates outside the span, where prompt and head are zero.

    Returns
    -------
    SignalNoise

    Raises
    ------
    ProblemError
        If an argument is out of range, or ``compact`` is set and d < nT + 2.

    See Also
    --------
    attsvm.datasets.random_problem

    References
    ----------
    Sakamoto and Sato (2025), *Benign Overfitting in Token Selection of Attention Mechanism*, arXiv 2409.17625; the
    sizes are those of its synthetic experiments.

    Examples
    --------
    >>> from attsvm.datasets import signal_noise
    >>> data = signal_noise(dim=50, num_test=100)
    >>> data.train.tokens.shape, data.test.tokens.shape, int(data.flipped.sum())
    ((20, 8, 50), (100, 8, 50), 4)
    """
    for name, size, least in (
        ("num_sequences", num_sequences, 2),
        ("num_tokens", num_tokens, NUM_SIGNAL + 1),
        ("dim", dim, 3),
        ("num_test", num_test, 2),
    ):
        check_integer(name, size, least)
    check_number("signal", signal, "a number > 0", lambda x: x > 0)
    check_number("weak", weak, "a number >= 0", lambda x: x >= 0)
    check_number("label_noise", label_noise, "a number in [0, 0.5]", lambda x: 0 <= x <= 0.5)
    rows = num_sequences * num_tokens
    if check_flag("compact", compact) and dim < rows + 2:
        raise ProblemError(f"dim: expected at least n T + 2 = {rows + 2} for compact coordinates, got {dim}")
    generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(check_seed(seed))
    noise = _compact_noise(rows, dim, generator) if compact else generator.standard_normal((rows, dim))
    coordinates = noise.shape[-1]
    head = np.zeros(coordinates)
    head[:2] = np.array([1.0, -1.0]) / (np.sqrt(2) * signal)

    classes = _classes(num_sequences)
    flipped = np.zeros(num_sequences, dtype=bool)
    # round() first: 0.07 * 100 is 7.000000000000001 in floating point, and its ceiling is 8
    per_class = int(np.ceil(round(label_noise * num_sequences, 9))) // 2
    for label in (1.0, -1.0):
        flipped[np.flatnonzero(classes == label)[:per_class]] = True
    tokens = _with_signal(noise.reshape(num_sequences, num_tokens, coordinates), classes, signal, weak)
    test_classes = _classes(num_test)
    test_noise = generator.standard_normal((num_test, num_tokens, coordinates))
    return SignalNoise(
        Problem(tokens, labels=np.where(flipped, -classes, classes), head=head),
        Problem(_with_signal(test_noise, test_classes, signal, weak), labels=test_classes, head=head),
        flipped,
        np.arange(num_tokens) >= NUM_SIGNAL,
    )


def _classes(number: int) -> np.ndarray:
    return np.where(np.arange(number) < number // 2, 1.0, -1.0)


def _compact_noise(rows: int, dim: int, generator: np.random.Generator) -> np.ndarray:
    """Rows with the Gram matrix of Gaussian rows of length ``dim``, in ``rows`` + 2 coordinates.

    Outside the plane of the signals the rows are L Q' with orthonormal columns of Q. By Bartlett's decomposition L is
    lower triangular with independent entries, normal ones below the diagonal and chi-distributed ones on it.
    """
    lower = np.tril(generator.standard_normal((rows, rows)), -1)
    lower[np.diag_indices(rows)] = np.sqrt(generator.chisquare(dim - 2 - np.arange(rows)))
    return np.concatenate([generator.standard_normal((rows, 2)), lower], axis=1)


def _with_signal(noise: np.ndarray, classes: np.ndarray, signal: float, weak: float) -> np.ndarray:
    """Tokens of shape (n, T, d): the noise plus the signals."""
    tokens = noise.copy()
    sequence, own = np.arange(len(classes)), np.where(classes == 1, 0, 1)
    for token, axis, strength in ((0, own, signal), (1, own, weak * signal), (2, 1 - own, weak * signal)):
        tokens[sequence, token, axis] += strength
    return tokens
