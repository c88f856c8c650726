"""The pinball loss of outputs, for a quantile of the targets."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import d2_pinball_score

from attsvm.estimator.regression_loss import RegressionLoss


@dataclass(frozen=True)
class QuantileLoss(RegressionLoss):
    """max(q(y − o), (q − 1)(y − o)), for the quantile q of the targets (Koenker and Bassett, 1978)."""

    quantile: float

    def value_and_slope(self, outputs: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The weighted sum of the losses; the slope is 0 where output and label are equal."""
        residuals, weights = labels[:, None] - outputs, weights[:, None]
        slope = jnp.where(residuals > 0, -self.quantile, jnp.where(residuals < 0, 1 - self.quantile, 0.0))
        return -jnp.sum(weights * slope * residuals), weights * slope

    def unit(self, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        """The quantile, and the mean absolute deviation from it, which single large targets change little."""
        order = np.argsort(targets)
        shares = np.cumsum(weights[order]) / weights.sum()
        place = min(int(np.searchsorted(shares, self.quantile)), len(targets) - 1)
        centre = targets[order[place]]
        scale = np.average(np.abs(targets - centre), weights=weights)
        return float(centre), float(scale) if scale > 0 else 1.0

    def score(self, targets: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None) -> float:
        """D², the share of the pinball loss of the constant quantile that is explained."""
        if len(targets) < 2:
            return np.nan
        return float(d2_pinball_score(targets, predicted, sample_weight=weights, alpha=self.quantile))
