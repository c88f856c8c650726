"""What a fitted regressor says of new bags: numbers or risks, and the tokens that move them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.datasets import BagFile
from attsvm.errors import ProblemError
from attsvm.estimator.bag_tokens import BagTokens, deciding_tokens, token_names
from attsvm.estimator.regression_report import RegressionReport

QUANTITIES = {"squared_error": "mean", "quantile": "quantile", "cox": "log hazard ratio"}
"""What each loss of a regressor predicts."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegressionPredictions(BagTokens):
    """Predictions of a regressor for n bags of N tokens in total.

    Attributes
    ----------
    values : ndarray, shape (n,)
        In the unit of the training targets. A log hazard ratio has no unit: of two bags the one with the larger value
        is expected to have its event first.
    quantity : {"mean", "quantile", "log hazard ratio"}
        What the values are.
    quantile : float or None
        Which quantile the values are; None for other quantities.
    constant : float
        What is predicted without looking at a bag: the mean of the training targets, or their quantile. 0 for log
        hazard ratios, which are relative to a bag whose tokens are all the mean training token.
    names, offsets, tokens
        As for :class:`attsvm.estimator.Predictions`.
    attention : ndarray, shape (N,)
        The share of each token in the attention of its bag, with which it enters the prediction.
    contributions : ndarray, shape (N,)
        The part of each token in the value minus the constant, as ``contributions`` of the regressor returns it. The
        parts of a bag add up to that difference.
    instance_scores : ndarray, shape (N,)
        The prediction for each token by itself.
    first : int ndarray, shape (n,)
        The place among the N tokens of the one with the largest contribution in each bag, by its absolute value.
    targets : ndarray, shape (n,), or None
        What the bags are known to have.
    report : RegressionReport or None
        How well the targets are predicted; None without targets.

    See Also
    --------
    attsvm.estimator.predict_bags : Makes them.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import BagFile
    >>> bags = attsvm.datasets.digit_bags(200, 20, seed=0)
    >>> largest = bags.train_digits.reshape(-1, 5).max(axis=1)
    >>> regressor = attsvm.AttentionRegressor(random_state=0).fit(bags.train, largest)
    >>> attsvm.estimator.predict_bags(regressor, BagFile(bags.test)).quantity
    'mean'
    """

    values: Float[np.ndarray, " n"]
    quantity: str
    quantile: float | None
    constant: float
    contributions: Float[np.ndarray, " N"]
    instance_scores: Float[np.ndarray, " N"]
    targets: Float[np.ndarray, " n"] | None = None
    report: RegressionReport | None = None

    @property
    def contribution(self) -> Float[np.ndarray, " n"]:
        """The contribution of the selected token, (n,)."""
        return np.asarray(self.contributions[self.first])

    @property
    def share(self) -> Float[np.ndarray, " n"]:
        """The share of the selected token in the attention of its bag, (n,)."""
        assert self._share is not None
        return self._share

    @property
    def named_quantity(self) -> str:
        """What the values are; for a quantile, which one."""
        return self.quantity if self.quantile is None else f"{self.quantity} {self.quantile:g}"

    def __repr__(self) -> str:
        low, high = self.values.min(), self.values.max()
        return f"RegressionPredictions({len(self.names):,} bags: {self.named_quantity} from {low:.4g} to {high:.4g})"


def predict_numbers(regressor: Any, bags: BagFile) -> RegressionPredictions:
    """The predictions of a fitted regressor for the bags of a file.

    Raises ProblemError if the tokens are not as those of the fit, a target is no number, or there are targets and the
    regressor is one of times of events.
    """
    sequences, constant = bags.sequences, float(regressor.target_centre_)
    if bags.labels is not None and regressor.loss == "cox":
        raise ProblemError(
            "labels: expected None for log hazard ratios; compare them with events and times by the report(X, y) of "
            "the regressor"
        )
    attention, scores = np.asarray(regressor.attention(sequences)), np.asarray(regressor.instance_scores(sequences))
    contributions = np.asarray(regressor.contributions(sequences))
    targets = None if bags.labels is None else _numbers(bags.labels)
    return RegressionPredictions(
        **token_names(bags),
        values=np.asarray(regressor.predict(sequences)),
        quantity=QUANTITIES[regressor.loss],
        quantile=float(regressor.quantile) if regressor.loss == "quantile" else None,
        constant=constant,
        attention=attention,
        contributions=contributions,
        instance_scores=scores,
        first=deciding_tokens(np.abs(contributions), sequences.offsets),
        targets=targets,
        report=None if targets is None else regressor.report(sequences, targets),
    )


def _numbers(labels: np.ndarray) -> Float[np.ndarray, " n"]:
    try:
        numbers = np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"labels: expected a number for each bag, got other entries ({error})") from None
    if not np.isfinite(numbers).all():
        raise ProblemError(f"labels: expected finite numbers, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers
