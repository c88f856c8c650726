"""Fixed attention on features of tokens: each feature is pooled by its mean, or by the token that has most of it.

A pooled mean is uniform attention, and a pooled maximum the hard limit of attention with a prompt on this feature. So
what a linear function of pooled features gives a sequence is a sum over its tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from attsvm._utils.shapes import Float
from attsvm.datasets import Sequences, map_vectors
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import in_parts

LANDMARKS = 300
"""Most tokens to which similarities are computed."""

RATES = 2.0 ** np.arange(-2, 4)
"""Rates γ of the similarities exp(−γ‖x − z‖²), over one by the median squared distance of the landmarks."""

BUMPS, STEPS = np.linspace(-4.0, 4.0, 9), np.linspace(-3.0, 3.0, 7)
"""Centres of the functions of a pooled column, in standard deviations."""


class Pooling(ABC):
    """Features of sequences that are sums over their tokens."""

    @abstractmethod
    def features(self, sequences: Sequences) -> Float[np.ndarray, "n m"]:
        """The pooled features of each sequence."""

    @abstractmethod
    def contributions(
        self, sequences: Sequences, coefficients: Float[np.ndarray, "m C"], means: Float[np.ndarray, " m"]
    ) -> Float[np.ndarray, "N C"]:
        """The part of each token in ``(features - means) @ coefficients``; they add up in each sequence."""


@dataclass(frozen=True)
class Similarities:
    """exp(−γ_s ‖x − z_k‖²) of a token with landmarks z_k, for several rates γ_s."""

    coordinates: Coordinates
    landmarks: Float[np.ndarray, "K d"]  # in these coordinates
    rates: Float[np.ndarray, " S"]
    factors: Float[np.ndarray, " S"]  # so that each rate has the same spread in the pooled features

    @classmethod
    def of(cls, sequences: Sequences, coordinates: Coordinates, generator: np.random.RandomState) -> "Similarities":
        """With tokens of these sequences as landmarks, drawn so that each sequence counts as often."""
        chances = np.repeat(1.0 / sequences.lengths, sequences.lengths)
        size = min(LANDMARKS, len(chances))
        drawn = generator.choice(len(chances), size, replace=False, p=chances / chances.sum())
        vectors = sequences.table[sequences.ids[np.sort(drawn)]].astype(np.float64)
        landmarks = (vectors - coordinates.centre) / coordinates.scale
        distances = _squared_distances(landmarks, landmarks)[np.triu_indices(size, 1)]
        positive = distances[distances > 1e-12 * distances.max(initial=0.0)]
        rates = RATES / (np.median(positive) if len(positive) else 1.0)
        return cls(coordinates, landmarks, rates, np.ones(len(rates)))

    def of_tokens(self, sequences: Sequences) -> Float[np.ndarray, "N m"]:
        """The similarities of every token, rate by rate."""

        def apply(vectors: np.ndarray) -> np.ndarray:
            tokens = (vectors.astype(np.float64) - self.coordinates.centre) / self.coordinates.scale
            distances = _squared_distances(tokens, self.landmarks)
            return np.hstack([f * np.exp(-r * distances) for r, f in zip(self.rates, self.factors, strict=True)])

        values, ids = map_vectors(sequences, apply)
        return np.asarray(values[ids])

    def of_parts(self, sequences: Sequences) -> Iterator[tuple[Sequences, Float[np.ndarray, "N m"]]]:
        """Consecutive sequences, and the similarities of their tokens."""
        numbers = len(self.landmarks) * len(self.rates)
        return ((part, self.of_tokens(part)) for part in in_parts(sequences, numbers))

    def spread(self, features: Float[np.ndarray, "n m"]) -> "Similarities":
        """The same with factors for which these pooled features have the same spread for each rate."""
        blocks = features.reshape(len(features), len(self.rates), -1)
        size = np.sqrt(((blocks - blocks.mean(axis=0)) ** 2).sum(axis=(0, 2)) / len(features))
        factors = self.factors / np.where(size > 1e-12, size, 1.0)
        return Similarities(self.coordinates, self.landmarks, self.rates, factors)


@dataclass(frozen=True)
class MeanSimilarity(Pooling):
    """Similarities pooled by uniform attention, so that a linear function of them is one of a set kernel."""

    similarities: Similarities

    def features(self, sequences: Sequences) -> np.ndarray:
        found = [
            np.add.reduceat(values, part.offsets[:-1]) / part.lengths[:, None]
            for part, values in self.similarities.of_parts(sequences)
        ]
        return np.concatenate(found)

    def contributions(self, sequences: Sequences, coefficients: np.ndarray, means: np.ndarray) -> np.ndarray:
        found = [
            ((values - means) @ coefficients) / np.repeat(part.lengths, part.lengths)[:, None]
            for part, values in self.similarities.of_parts(sequences)
        ]
        return np.concatenate(found)


@dataclass(frozen=True)
class LargestSimilarity(Pooling):
    """Similarities pooled by their maximum: how close a sequence comes to each landmark."""

    similarities: Similarities

    def features(self, sequences: Sequences) -> np.ndarray:
        parts = self.similarities.of_parts(sequences)
        return np.concatenate([np.maximum.reduceat(values, part.offsets[:-1]) for part, values in parts])

    def contributions(self, sequences: Sequences, coefficients: np.ndarray, means: np.ndarray) -> np.ndarray:
        found = np.zeros((len(sequences.ids), coefficients.shape[1]))
        start = 0
        for part, values in self.similarities.of_parts(sequences):
            for tokens in np.split(values, part.offsets[1:-1]):
                places = tokens.argmax(axis=0)
                largest = tokens[places, np.arange(len(places))] - means
                np.add.at(found[start:], places, largest[:, None] * coefficients)
                start += len(tokens)
        return found


@dataclass(frozen=True)
class ColumnExtremes(Pooling):
    """Functions of the largest and of the smallest entry of each column.

    They are bumps exp(−(u − c)²/2), whose linear functions are those of an additive Gaussian kernel. ``increasing``
    ones are sigmoids of the largest entry and of minus the smallest one, neither of which a further token lowers.
    """

    centre: Float[np.ndarray, " 2d"]
    scale: Float[np.ndarray, " 2d"]
    increasing: bool

    @classmethod
    def of(cls, sequences: Sequences, increasing: bool) -> "ColumnExtremes":
        """With the centres and spreads of the extremes of these sequences."""
        extremes = _extremes(sequences)
        size = np.ldexp(0.5, np.frexp(np.abs(extremes).max(axis=0))[1])  # squares of large entries overflow
        spread = size * (extremes / size).std(axis=0)
        # a constant column differs from its mean by rounding
        varies = spread > 1e-12 * np.abs(extremes).max(axis=0)
        return cls(extremes.mean(axis=0), np.where(varies, spread, 1.0), increasing)

    def features(self, sequences: Sequences) -> np.ndarray:
        return self._functions(_extremes(sequences)).reshape(len(sequences), -1)

    def contributions(self, sequences: Sequences, coefficients: np.ndarray, means: np.ndarray) -> np.ndarray:
        functions = self._functions(_extremes(sequences))
        functions = functions - means.reshape(functions.shape[1:])
        values = np.einsum("nef,efc->nec", functions, coefficients.reshape(*functions.shape[1:], -1))
        found = np.zeros((len(sequences.ids), coefficients.shape[1]))
        for start, array, of_columns in zip(sequences.offsets, sequences, values, strict=False):
            # the first token on ties
            np.add.at(found, start + np.concatenate([array.argmax(axis=0), array.argmin(axis=0)]), of_columns)
        return found

    def _functions(self, extremes: Float[np.ndarray, "n 2d"]) -> Float[np.ndarray, "n 2d f"]:
        units = ((extremes - self.centre) / self.scale)[:, :, None]
        if not self.increasing:
            return np.asarray(np.exp(-0.5 * (units - BUMPS) ** 2))
        half = units.shape[1] // 2
        units = np.concatenate([units[:, :half], -units[:, half:]], axis=1)
        return np.asarray(expit(2.0 * (units - STEPS)))


def _extremes(sequences: Sequences) -> Float[np.ndarray, "n 2d"]:
    """Largest and smallest entries of the columns of each sequence."""
    found = []
    for part in in_parts(sequences, sequences.dim):
        tokens, starts = part.table[part.ids].astype(np.float64), part.offsets[:-1]
        found.append(np.hstack([np.maximum.reduceat(tokens, starts), np.minimum.reduceat(tokens, starts)]))
    return np.concatenate(found)


def _squared_distances(first: Float[np.ndarray, "r d"], second: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "r k"]:
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2.0 * first @ second.T
    return np.asarray(np.maximum(squares, 0.0))
