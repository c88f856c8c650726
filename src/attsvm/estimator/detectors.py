"""Detectors with non-negative weights, as a network."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, log_expit

from attsvm._utils.shapes import Float, Int
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.batches import Parameters, TrainingBatch
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import ClassNetwork, in_parts, token_products

SPREAD = 1.5
"""Standard deviation of the initial products p_k'x, for tokens whose entries have unit scale."""

OFFSET = -2.0
"""Initial offset of each detector: most tokens start below one half."""


@dataclass(frozen=True)
class DetectorModel:
    """f_c(X) = b_c + Σ_k w_ck σ(max_t p_ck'x_t + o_ck)."""

    detectors: Float[np.ndarray, "C K d"]  # one row of detectors for two classes
    offsets: Float[np.ndarray, "C K"]  # offsets, weights: weights are at least 0
    weights: Float[np.ndarray, "C K"]
    intercept: Float[np.ndarray, " C"]

    def activations(self, sequences: Sequences) -> Float[np.ndarray, "N C K"]:
        """σ(p_ck'x_t + o_ck) of every token, in float64.

        Raises ProblemError if a product of a token with a detector overflows.
        """
        C, K, d = self.detectors.shape
        detectors, offsets = self.detectors.reshape(C * K, d).T, self.offsets.ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            logits = token_products(detectors, sequences) + offsets
        if not np.isfinite(logits).all():
            raise ProblemError("X: expected smaller numbers: the products of tokens with the fitted detectors overflow")
        return np.asarray(expit(logits).reshape(-1, C, K))

    def decision(self, sequences: Sequences) -> Float[np.ndarray, "n C"]:
        """Outputs of n sequences. A further token raises each maximum or leaves it, so it never lowers an output."""
        parts = [np.maximum.reduceat(found, part.offsets[:-1]) for part, found in self._of_parts(sequences)]
        return np.asarray(np.einsum("nck,ck->nc", np.concatenate(parts), self.weights) + self.intercept)

    def token_scores(self, sequences: Sequences) -> Float[np.ndarray, "N C"]:
        """Σ_k w_ck σ(p_ck'x_t + o_ck) of every token."""
        parts = [np.einsum("nck,ck->nc", activations, self.weights) for _, activations in self._of_parts(sequences)]
        return np.concatenate(parts)

    def contributions(self, sequences: Sequences) -> Float[np.ndarray, "N C"]:
        """The part of each token in the outputs: of the detectors that select it; the intercept is divided equally."""
        found = []
        for part, activations in self._of_parts(sequences):
            for tokens in np.split(activations * self.weights, part.offsets[1:-1]):
                is_first = np.arange(len(tokens))[:, None, None] == tokens.argmax(axis=0)
                found.append((tokens * is_first).sum(axis=2) + self.intercept / len(tokens))
        return np.concatenate(found)

    def selected(self, sequences: Sequences) -> Int[np.ndarray, "n C K"]:
        """Position of the token with the largest product with each detector; the first one on ties."""
        C, K, d = self.detectors.shape
        return np.array([(array @ self.detectors.reshape(C * K, d).T).argmax(axis=0) for array in sequences]).reshape(
            -1, C, K
        )

    def _of_parts(self, sequences: Sequences) -> Iterator[tuple[Sequences, Float[np.ndarray, "N C K"]]]:
        """Consecutive sequences, and the activations of their tokens."""
        return ((part, self.activations(part)) for part in in_parts(sequences, self.weights.size))


@dataclass(frozen=True)
class Detectors(ClassNetwork):
    """K detectors for two classes, or K for each class against the rest."""

    monotone = True

    num_detectors: int

    def initial(self, dim: int, rows: int, dtype: Any, generator: np.random.RandomState) -> Parameters:
        """Random detectors, whose sum over a bag is balanced by the intercept."""
        shape = rows, self.num_detectors
        return {
            "P": (SPREAD / np.sqrt(dim) * generator.normal(size=(*shape, dim))).astype(dtype),
            "c": np.full(shape, OFFSET, dtype),
            "w": np.ones(shape, dtype),
            "b": np.full(rows, -0.3 * self.num_detectors, dtype),
        }

    def value_and_gradient(
        self, parameters: Parameters, batch: TrainingBatch, alpha: Any
    ) -> tuple[jax.Array, Parameters]:
        """Logistic loss, summed over the classes, plus α/2 (‖P‖² + ‖w‖²); the maximum passes its gradient on."""
        rows, size, _ = parameters["P"].shape
        signs = batch.labels[:, None] if rows == 1 else 2.0 * (batch.labels[:, None] == jnp.arange(rows)) - 1.0
        with jax.default_matmul_precision("highest"):
            # the winners are found first, so that only their rows have a gradient
            products = batch.rows @ parameters["P"].reshape(rows * size, -1).T
            _, winners = batch.largest(products[batch.places])
            tokens = batch.rows[batch.places[winners]].reshape(len(batch.labels), rows, size, -1)

            def objective(given: Parameters) -> jax.Array:
                largest: jax.Array = jnp.einsum("bckd,ckd->bck", tokens, given["P"]) + given["c"]
                outputs: jax.Array = jnp.einsum("bck,ck->bc", jax.nn.sigmoid(largest), given["w"]) + given["b"]
                losses = jnp.logaddexp(0.0, -signs * outputs).sum(axis=1)
                penalty = jnp.sum(given["P"] ** 2) + jnp.sum(given["w"] ** 2)
                value: jax.Array = jnp.sum(batch.weights * losses) + 0.5 * alpha * penalty
                return value

            differentiated: tuple[jax.Array, Parameters] = jax.value_and_grad(objective)(parameters)
        return differentiated

    def feasible(self, parameters: Parameters) -> Parameters:
        """Weights of at least 0."""
        return parameters | {"w": jnp.maximum(parameters["w"], 0)}

    def model(self, parameters: Parameters, coordinates: Coordinates) -> DetectorModel:
        """Detectors for the original tokens; the offsets absorb the shift."""
        P, c, w, b = (np.asarray(parameters[name], dtype=np.float64) for name in ("P", "c", "w", "b"))
        detectors = P / coordinates.scale
        return DetectorModel(detectors, c - detectors @ coordinates.centre, w, b)

    def watch(self, model: DetectorModel, sequences: Sequences) -> tuple[np.ndarray, dict[str, float]]:
        """Outputs, and the number of detectors with a positive weight."""
        return model.decision(sequences), {"active_detectors": float((model.weights > 0).sum())}

    def losses(self, decision: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Logistic loss, summed over the classes."""
        if decision.shape[1] == 1:
            return super().losses(decision, labels)
        signs = 2.0 * (labels[:, None] == np.arange(decision.shape[1])) - 1.0
        return np.asarray(np.logaddexp(0.0, -signs * decision).sum(axis=1))

    def log_probability(self, decision: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n C"]:
        """For more than two classes the probabilities of each against the rest, divided by their sum."""
        if decision.shape[1] == 1:
            return super().log_probability(decision)
        each = log_expit(decision)
        return np.asarray(each - np.logaddexp.reduce(each, axis=1, keepdims=True))
