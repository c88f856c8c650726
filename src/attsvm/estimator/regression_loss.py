"""What a loss of regression says: how targets are read and scaled, what is minimised, and how outputs are scored."""

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.utils.validation import check_array, column_or_1d

from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.estimator.batch_loss import BatchLoss
from attsvm.estimator.inputs import GivenSequences
from attsvm.estimator.regression_report import RegressionReport
from attsvm.estimator.task import one_for_each, required


class RegressionLoss(BatchLoss):
    """A loss of one output for each sequence."""

    required: ClassVar[str] = "sequences"
    """What both training and validation need some of."""

    chance: ClassVar[float] = 0.1
    """Validation scores below this are hardly better than that of a constant."""

    def read(self, y: Any, given: GivenSequences, estimator: str) -> Float[np.ndarray, " n"]:
        """The targets as numbers, one for each sequence.

        Raises ProblemError, ValueError if there are none, their number does not fit, or they are not finite.
        """
        given_column = column_or_1d(given.align("y", required(y, estimator)), warn=True)
        try:
            targets = check_array(given_column, ensure_2d=False, dtype=np.float64, input_name="y")
        except (TypeError, ValueError) as error:
            if "convert" not in str(error):
                raise
            raise ProblemError(f"y: expected a number for each sequence, got other entries ({error})") from None
        return one_for_each(targets, "targets", len(given.sequences), given.is_rows)

    @abstractmethod
    def unit(self, targets: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]) -> tuple[float, float]:
        """Centre and scale that targets are standardised with, so that penalty and rates suit targets in any unit."""

    def strata(self, targets: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Numbers from 0 on, of which validation gets a share each; it needs those numbered 0."""
        return np.zeros(len(targets), int)

    def mean(
        self, outputs: Float[np.ndarray, "n 1"], targets: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]
    ) -> float:
        """The loss of outputs for n sequences, in float64."""
        weights = weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
        with jax.enable_x64(True):
            value, _ = _compiled(self)(outputs, targets, weights)
        return float(value)

    @abstractmethod
    def score(
        self, targets: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"], weights: np.ndarray | None
    ) -> float:
        """How well predictions fit the targets; larger is better. NaN if no two targets can be compared."""

    def report(self, targets: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"], constant: float) -> Any:
        """Errors of the predictions beside those of a constant."""
        return RegressionReport.of(targets, predicted, constant)


@lru_cache(maxsize=32)
def _compiled(loss: RegressionLoss) -> Callable[..., tuple[jax.Array, jax.Array]]:
    return jax.jit(loss.value_and_slope)
