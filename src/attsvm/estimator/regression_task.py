"""The training data of a regression: sequences with standardised targets and weights."""

from dataclasses import dataclass, replace

import numpy as np

from attsvm.estimator.regression_loss import RegressionLoss
from attsvm.estimator.task import SequenceTask


@dataclass(frozen=True)
class RegressionTask(SequenceTask):
    """Sequences whose labels are standardised targets, of one loss."""

    loss: RegressionLoss
    num_outputs = num_required = 1

    @property
    def required(self) -> str:
        """What both training and validation need some of."""
        return self.loss.required

    @property
    def strata(self) -> np.ndarray:
        """Those of the loss."""
        return self.loss.strata(self.labels)

    def scores(self, decision: np.ndarray) -> dict[str, float]:
        """The score of the loss."""
        return {"validation_score": self.loss.score(self.labels, decision[:, 0], None)}


@dataclass(frozen=True)
class WeightSum:
    """Sequences and their sample weights in a fit or in all calls of ``partial_fit``, without those of weight 0."""

    count: int = 0
    total: float = 0.0

    def with_weights(self, weights: np.ndarray) -> "WeightSum":
        """With more sequences."""
        return replace(self, count=self.count + len(weights), total=self.total + float(weights.sum()))

    @property
    def factor(self) -> float:
        """What to multiply the sample weights with, so that the mean weight of all sequences is 1."""
        return self.count / self.total
