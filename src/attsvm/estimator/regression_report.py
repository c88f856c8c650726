"""How well numbers are predicted, beside a constant."""

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error


@dataclass(frozen=True, eq=False, repr=False)
class RegressionReport:
    """Predictions of the targets of n sequences.

    Attributes
    ----------
    num_sequences : int
    mae, rmse : float
        Mean absolute and root mean squared error, in the unit of the targets.
    r2 : float
        R², 1 for perfect predictions and 0 for the mean of these targets; NaN for one sequence.
    constant : float
        What is predicted without looking at the sequences: the mean of the training targets, or their quantile.
    constant_mae, constant_rmse : float
        Its errors.
    below : float
        Share of the targets that are at most the prediction. For a quantile it should be near that quantile.

    See Also
    --------
    attsvm.AttentionRegressor.report : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(200, 100, seed=0)
    >>> number, of_test = (digits.reshape(-1, 5).sum(axis=1) for digits in (bags.train_digits, bags.test_digits))
    >>> report = attsvm.AttentionRegressor(random_state=0).fit(bags.train, number).report(bags.test, of_test)
    >>> report.num_sequences, report.mae < report.constant_mae
    (100, True)
    """

    num_sequences: int
    mae: float
    rmse: float
    r2: float
    constant: float
    constant_mae: float
    constant_rmse: float
    below: float

    @classmethod
    def of(cls, targets: np.ndarray, predicted: np.ndarray, constant: float) -> "RegressionReport":
        """Compare predictions (n,) with targets (n,)."""
        same = np.full(len(targets), constant)
        return cls(
            num_sequences=len(targets),
            mae=float(mean_absolute_error(targets, predicted)),
            rmse=float(root_mean_squared_error(targets, predicted)),
            r2=float(r2_score(targets, predicted)) if len(targets) > 1 else np.nan,
            constant=constant,
            constant_mae=float(mean_absolute_error(targets, same)),
            constant_rmse=float(root_mean_squared_error(targets, same)),
            below=float(np.mean(targets <= predicted)),
        )

    def __repr__(self) -> str:
        return (
            f"RegressionReport({self.num_sequences:,} sequences; R² {self.r2:.3g}; MAE {self.mae:.3g} and RMSE "
            f"{self.rmse:.3g}, always predicting {self.constant:.3g} has {self.constant_mae:.3g} and "
            f"{self.constant_rmse:.3g})"
        )
