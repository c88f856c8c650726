"""Prompt attention with a linear head, as a network."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.batch_loss import BatchLoss, ClassLoss
from attsvm.estimator.batches import Parameters, TrainingBatch
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import ClassNetwork, Network, token_products
from attsvm.estimator.regression_loss import RegressionLoss


@dataclass(frozen=True)
class PromptModel:
    """f(X) = V X' softmax(X p) + b."""

    prompt: Float[np.ndarray, " d"]
    head: Float[np.ndarray, "C d"]  # one row for two classes
    intercept: Float[np.ndarray, " C"]


@dataclass(frozen=True)
class PromptOutput:
    """Outputs for n sequences of N tokens in total."""

    decision: Float[np.ndarray, "n C"]
    attention: Float[np.ndarray, " N"]  # sums to 1 in each sequence
    # position of the token with the largest logit in its sequence; the first one on ties
    selected: Int[np.ndarray, " n"]


def forward(model: PromptModel, sequences: Sequences) -> PromptOutput:
    """Apply a model to n sequences of at least one token each, in float64.

    Raises ProblemError if a product of a token with prompt or head overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        of_tokens = token_products(np.column_stack([model.prompt, model.head.T]), sequences)
    if not np.isfinite(of_tokens).all():
        number = int(np.searchsorted(sequences.offsets, np.argmin(np.isfinite(of_tokens).all(axis=1)), "right")) - 1
        raise ProblemError(
            f"X: expected smaller numbers in sequence {number}: its outputs overflow with the fitted weights"
        )
    starts = sequences.offsets[:-1]
    sequence_of = np.repeat(np.arange(len(sequences)), sequences.lengths)
    logits = of_tokens[:, 0]
    largest = np.maximum.reduceat(logits, starts)
    attention = np.exp(logits - largest[sequence_of])
    attention /= np.add.reduceat(attention, starts)[sequence_of]
    decision = np.add.reduceat(attention[:, None] * of_tokens[:, 1:], starts) + model.intercept
    winners = np.flatnonzero(logits == largest[sequence_of])
    _, first = np.unique(sequence_of[winners], return_index=True)
    return PromptOutput(decision, attention, winners[first] - starts)


def effective_number(attention: Float[np.ndarray, " N"], sequences: Sequences) -> Float[np.ndarray, " n"]:
    """exp(−Σ a log a) of each sequence: T for uniform attention, 1 if one token gets all of it."""
    logarithm = np.log(np.where(attention > 0, attention, 1.0))
    return np.exp(-np.add.reduceat(attention * logarithm, sequences.offsets[:-1]))


class PromptNetwork(Network):
    """f(X) = V X' softmax(X p) + b; the initial attention is uniform, and the initial head zero."""

    @property
    @abstractmethod
    def output_loss(self) -> BatchLoss:
        """The loss of its outputs."""

    def initial(self, dim: int, rows: int, dtype: Any, generator: np.random.RandomState) -> Parameters:
        return {"p": np.zeros(dim, dtype), "V": np.zeros((rows, dim), dtype), "b": np.zeros(rows, dtype)}

    def value_and_gradient(
        self, parameters: Parameters, batch: TrainingBatch, alpha: Any
    ) -> tuple[jax.Array, Parameters]:
        """Loss plus α/2 (‖p‖² + ‖V‖²), with the gradient that stays accurate when the softmax saturates."""
        return objective_gradient(parameters, batch, alpha, self.output_loss)

    def feasible(self, parameters: Parameters) -> Parameters:
        """The intercept may be fixed by the loss."""
        return parameters | {"b": self.output_loss.intercept(parameters["b"])}

    def model(self, parameters: Parameters, coordinates: Coordinates) -> PromptModel:
        """Prompt, head and intercept for the original tokens; the softmax does not depend on the shift."""
        p, V, b = (np.asarray(parameters[name], dtype=np.float64) for name in ("p", "V", "b"))
        head = V / coordinates.scale
        return PromptModel(p / coordinates.scale, head, b - head @ coordinates.centre)

    def watch(self, model: PromptModel, sequences: Sequences) -> tuple[np.ndarray, dict[str, float]]:
        """Outputs, and quantiles of the effective number of tokens."""
        output = forward(model, sequences)
        quantiles = np.quantile(effective_number(output.attention, sequences), [0.1, 0.5, 0.9])
        names = "effective_low", "effective_median", "effective_high"
        return output.decision, dict(zip(names, map(float, quantiles), strict=True))


@dataclass(frozen=True)
class PromptAttention(PromptNetwork, ClassNetwork):
    """Prompt attention whose outputs are classes."""

    @property
    def output_loss(self) -> ClassLoss:
        """Logistic loss, or cross-entropy."""
        return ClassLoss()


@dataclass(frozen=True)
class PromptRegression(PromptNetwork):
    """Prompt attention with one output, trained with a loss of regression."""

    loss: RegressionLoss

    @property
    def output_loss(self) -> RegressionLoss:
        """The loss."""
        return self.loss

    def mean_loss(self, decision: Float[np.ndarray, "n 1"], labels: np.ndarray, weights: np.ndarray) -> float:
        """The loss of the outputs."""
        return self.loss.mean(decision, labels, weights)


def objective_gradient(
    parameters: Parameters, batch: TrainingBatch, alpha: Any, output_loss: BatchLoss | None = None
) -> tuple[jax.Array, Parameters]:
    """Loss plus α/2 (‖p‖² + ‖V‖²), and its gradient.

    The head is linear, so it is enough to pool the scores V x_t of the tokens, and vectors occur in two matrix products
    only. The gradient keeps its relative accuracy when the softmax saturates. With the winner * of a sequence, the
    token of largest logit, e_t = exp(s_t − s_*) for the others, S = 1 + Σ e_t, D_t = ⟨V(x_* − x_t), ∂ℓ/∂o⟩ and
    r = Σ e_t D_t / S, it is r/S for the logit of the winner and (e_t/S)(r − D_t) for the others, sums of small terms.

    ``parameters``: ``p`` (d,), ``V`` (C, d), with C = 1 for two classes, ``b`` (C,).
    ``output_loss``: by default that of classes.
    """
    p, V, b, owners = parameters["p"], parameters["V"], parameters["b"], batch.owners
    with jax.default_matmul_precision("highest"):
        of_rows = batch.rows @ jnp.concatenate([p[:, None], V.T], axis=1)
        logits, values = of_rows[batch.places, 0], of_rows[batch.places, 1:]
        largest, winner = batch.largest(logits)
        is_winner = jnp.arange(len(logits)) == winner[owners]
        others = ~is_winner & (owners < len(batch.labels))
        weight = jnp.where(others, jnp.exp(logits - largest[owners]), 0.0)
        probability = 1.0 / (1.0 + batch.total(weight))
        attention = (weight + is_winner) * probability[owners]
        outputs = batch.total(attention[:, None] * values) + b
        loss, of_outputs = (output_loss or ClassLoss()).value_and_slope(outputs, batch.labels, batch.weights)
        gaps = values[winner[owners]] - values
        products = weight * (gaps * of_outputs[owners]).sum(axis=1)
        mean = probability * batch.total(products)
        of_logits = ((weight + is_winner) * mean[owners] - products) * probability[owners]
        of_tokens = jnp.column_stack([of_logits, attention[:, None] * of_outputs[owners]])
        of_rows = jnp.zeros_like(of_rows).at[batch.places].add(of_tokens)
        gradient = batch.pull_back(of_rows)
    value = loss + 0.5 * alpha * (jnp.sum(p * p) + jnp.sum(V * V))
    return value, {"p": gradient[:, 0] + alpha * p, "V": gradient[:, 1:].T + alpha * V, "b": of_outputs.sum(axis=0)}
