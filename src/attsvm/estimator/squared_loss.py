"""The squared error of outputs."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import r2_score

from attsvm.estimator.regression_loss import RegressionLoss


@dataclass(frozen=True)
class SquaredLoss(RegressionLoss):
    """(o − y)²/2, for the mean of the targets."""

    def value_and_slope(self, outputs: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The weighted sum of the losses."""
        residuals = outputs - labels[:, None]
        slope = weights[:, None] * residuals
        return 0.5 * jnp.sum(slope * residuals), slope

    def unit(self, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        """Mean and standard deviation; 1 if all targets are equal."""
        centre = np.average(targets, weights=weights)
        away = np.abs(targets - centre)
        largest = away.max()
        # a constant differs from its mean by rounding; squares of large numbers overflow
        if largest <= len(targets) * np.finfo(float).eps * abs(centre):
            return float(centre), 1.0
        return float(centre), float(largest * np.sqrt(np.average((away / largest) ** 2, weights=weights)))

    def score(self, targets: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None) -> float:
        """R²."""
        return float(r2_score(targets, predicted, sample_weight=weights)) if len(targets) > 1 else np.nan
