"""What an estimator of sequences computes: the interface between a model and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.datasets import Sequences, map_vectors
from attsvm.estimator.batches import Parameters, TrainingBatch
from attsvm.estimator.coordinates import Coordinates

PART = 1 << 17
"""Numbers of vectors that are multiplied at once; their copies in float64 stay in the cache of a core."""

CELLS = 1 << 22
"""Most numbers of tokens that are computed at once."""


class Network(ABC):
    """A function of sequences with parameters. Networks hold no data; equal ones share their compiled step."""

    monotone: ClassVar[bool] = False
    """Whether a further token never lowers an output."""

    @abstractmethod
    def initial(self, dim: int, rows: int, dtype: Any, generator: np.random.RandomState) -> Parameters:
        """Initial parameters for tokens (dim,) and outputs (rows,): 1 for two classes, otherwise one for each class."""

    @abstractmethod
    def value_and_gradient(
        self, parameters: Parameters, batch: TrainingBatch, alpha: Any
    ) -> tuple[jax.Array, Parameters]:
        """Weighted mean loss plus the penalty of strength alpha, and its gradient; compiled."""

    def feasible(self, parameters: Parameters) -> Parameters:
        """The parameters after a step, projected on their constraints; compiled."""
        return parameters

    @abstractmethod
    def model(self, parameters: Parameters, coordinates: Coordinates) -> Any:
        """The model of the original tokens."""

    @abstractmethod
    def watch(self, model: Any, sequences: Sequences) -> tuple[Float[np.ndarray, "n C"], dict[str, float]]:
        """Outputs, and numbers for the history."""

    @abstractmethod
    def mean_loss(self, decision: Float[np.ndarray, "n C"], labels: np.ndarray, weights: np.ndarray) -> float:
        """The validation loss of outputs for n sequences, with labels (n,) and weights (n,)."""


class ClassNetwork(Network):
    """A network whose outputs are classes: logistic loss for two of them, cross-entropy for more."""

    def mean_loss(self, decision: Float[np.ndarray, "n C"], labels: np.ndarray, weights: np.ndarray) -> float:
        """Weighted mean of the losses."""
        losses = self.losses(decision, labels)
        return float(np.average(losses, weights=weights) if weights.any() else losses.mean())

    def losses(self, decision: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Loss of each sequence: logistic for two classes, cross-entropy for more."""
        if decision.shape[1] == 1:
            return np.asarray(np.logaddexp(0.0, (1 - 2 * labels) * decision[:, 0]))
        return np.asarray(np.logaddexp.reduce(decision, axis=1) - decision[np.arange(len(decision)), labels])

    def log_probability(self, decision: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n C"]:
        """Logarithm of the probability of each class."""
        both = np.column_stack([np.zeros(len(decision)), decision]) if decision.shape[1] == 1 else decision
        return np.asarray(both - np.logaddexp.reduce(both, axis=1, keepdims=True))

    def probability(self, decision: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n C"]:
        """Probability of each class."""
        return np.asarray(np.exp(self.log_probability(decision)))


def in_parts(sequences: Sequences, numbers: int) -> Iterator[Sequences]:
    """Consecutive sequences that are computed at once; ``numbers``: of each token."""
    part = np.cumsum(sequences.lengths) // max(1, CELLS // numbers)
    for rows in np.split(np.arange(len(part)), np.flatnonzero(np.diff(part)) + 1):
        yield sequences[rows]


def token_products(columns: Float[np.ndarray, "d k"], sequences: Sequences) -> Float[np.ndarray, "N k"]:
    """⟨token, column⟩ of every token, in float64."""
    most = max(1, PART // len(columns))

    def products(vectors: np.ndarray) -> np.ndarray:
        found = np.empty((len(vectors), columns.shape[1]))
        for start in range(0, len(vectors), most):
            np.matmul(vectors[start : start + most], columns, out=found[start : start + most])
        return found

    of_vectors, ids = map_vectors(sequences, products)
    return np.asarray(of_vectors[ids])
