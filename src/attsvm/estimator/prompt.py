"""Prompt attention with a linear head, as a network."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from attsvm.datasets.sequences import Sequences
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.forward import Model, effective_number, forward
from attsvm.estimator.network import Network
from attsvm.estimator.steps import Batch, Parameters, objective_gradient


@dataclass(frozen=True)
class PromptAttention(Network):
    """f(X) = V X' softmax(X p) + b; the initial attention is uniform, and the initial head zero."""

    def initial(self, dim: int, rows: int, dtype: Any, generator: np.random.RandomState) -> Parameters:
        return {"p": np.zeros(dim, dtype), "V": np.zeros((rows, dim), dtype), "b": np.zeros(rows, dtype)}

    def value_and_gradient(self, parameters: Parameters, batch: Batch, alpha: Any) -> tuple[jax.Array, Parameters]:
        """Loss plus α/2 (‖p‖² + ‖V‖²), with the gradient that stays accurate when the softmax saturates."""
        return objective_gradient(parameters, batch, alpha)

    def model(self, parameters: Parameters, coordinates: Coordinates) -> Model:
        """Prompt, head and intercept for the original tokens; the softmax does not depend on the shift."""
        p, V, b = (np.asarray(parameters[name], dtype=np.float64) for name in ("p", "V", "b"))
        head = V / coordinates.scale
        return Model(p / coordinates.scale, head, b - head @ coordinates.centre)

    def watch(self, model: Model, sequences: Sequences) -> tuple[np.ndarray, dict[str, float]]:
        """Outputs, and quantiles of the effective number of tokens."""
        output = forward(model, sequences)
        quantiles = np.quantile(effective_number(output.attention, sequences), [0.1, 0.5, 0.9])
        names = "effective_low", "effective_median", "effective_high"
        return output.decision, dict(zip(names, map(float, quantiles), strict=True))
