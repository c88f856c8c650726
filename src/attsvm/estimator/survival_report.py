"""How well the order of events is predicted: Harrell's concordance."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalReport:
    """Predicted risks of n sequences, some of them censored.

    A concordance of 0.5 is that of risks that say nothing.

    Attributes
    ----------
    num_sequences, num_events : int
    num_pairs : int
        Pairs of sequences of which it is known whose event was first.
    concordance : float
        Share of these pairs in which the one with the earlier event has the larger risk; equal risks count half. NaN
        without such pairs.

    See Also
    --------
    attsvm.AttentionRegressor.report : Makes one.

    References
    ----------
    Harrell, Califf, Pryor, Lee and Rosati (1982), *Evaluating the Yield of Medical Tests*, JAMA 247.

    Examples
    --------
    >>> import attsvm, numpy as np
    >>> bags = attsvm.datasets.digit_bags(200, 100, seed=0)
    >>> days, of_test = (1 + digits.reshape(-1, 5).max(axis=1) for digits in (bags.train_digits, bags.test_digits))
    >>> y, y_test = (np.column_stack([np.ones(len(d)), d]) for d in (days, of_test))  # all had their event
    >>> regressor = attsvm.AttentionRegressor(loss="cox", random_state=0).fit(bags.train, y)
    >>> report = regressor.report(bags.test, y_test)
    >>> report.num_events, bool(report.concordance > 0.7)
    (100, True)
    """

    num_sequences: int
    num_events: int
    num_pairs: int
    concordance: float

    def __repr__(self) -> str:
        return (
            f"SurvivalReport({self.num_sequences:,} sequences, {self.num_events:,} events; concordance "
            f"{self.concordance:.3g} in {self.num_pairs:,} pairs, 0.5 by chance)"
        )


def concordance(
    times: Float[np.ndarray, " n"],
    events: np.ndarray,
    risks: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
) -> tuple[float, int]:
    """Harrell's concordance and the number of comparable pairs.

    A pair is comparable if one has its event before the time of the other, or at that time and the other is censored.
    ``events``: (n,) bool. ``weights``: (n,), a pair has the product of its weights.
    """
    weights = np.ones(len(times)) if weights is None else weights
    agreed, total, pairs = 0.0, 0.0, 0
    for i in np.flatnonzero(events):
        later = (times > times[i]) | ((times == times[i]) & ~events)
        lower = np.where(risks[i] > risks, 1.0, np.where(risks[i] == risks, 0.5, 0.0))
        agreed += weights[i] * float((weights * lower)[later].sum())
        total += weights[i] * float(weights[later].sum())
        pairs += int(later.sum())
    return agreed / total if total else np.nan, pairs
