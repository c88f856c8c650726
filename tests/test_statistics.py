"""Intervals of shares and means, against SciPy cell by cell and against their coverage."""

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

import attsvm
from attsvm import statistics
from attsvm.statistics import mean, share


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_shares_have_the_wilson_intervals_of_scipy(level):
    count = np.array([[1, 2, 10], [37, 1000, 10**6]])
    successes = np.array([[0, 2, 3], [36, 1, 10**6 // 3]])
    estimate = share(successes, count, level)
    for cell in np.ndindex(count.shape):
        interval = binomtest(int(successes[cell]), int(count[cell])).proportion_ci(level, method="wilson")
        # both are the same closed form in another order
        np.testing.assert_allclose([estimate.low[cell], estimate.high[cell]], interval, rtol=1e-12, atol=1e-15)
    assert estimate.low[0, 0] == 0
    assert estimate.high[0, 1] == 1


def test_a_cell_without_trials_has_no_interval():
    assert all(np.isnan(x).all() for x in share([0], [0])[:3])
    estimate = mean([[np.nan, np.nan], [2.0, np.nan]])
    assert np.array_equal(estimate.value, [np.nan, 2], equal_nan=True)
    assert np.isnan([estimate.low, estimate.high]).all()
    assert estimate.trials.tolist() == [0, 1]


def test_means_have_the_bootstrap_intervals_of_scipy_whatever_the_other_cells():
    generator = np.random.default_rng(0)
    values = generator.exponential(size=(3, 4, 12))
    values[1, 2, 5:] = np.nan
    values[2, 0, ::3] = np.nan
    values[0, 1] = 0.3
    estimate = mean(values)
    # the bootstrap of equal values has zero width
    assert np.isnan([estimate.low[0, 1], estimate.high[0, 1]]).all()
    assert (estimate.value[0, 1], estimate.trials[0, 1]) == (pytest.approx(0.3, rel=1e-15), 12)
    for cell in set(np.ndindex(3, 4)) - {(0, 1)}:
        finite = values[cell][np.isfinite(values[cell])]
        options = {"n_resamples": statistics.RESAMPLES, "method": "percentile", "rng": np.random.default_rng(0)}
        interval = bootstrap((finite,), np.mean, **options).confidence_interval
        np.testing.assert_allclose([estimate.low[cell], estimate.high[cell]], interval, rtol=1e-12)
        assert estimate.trials[cell] == len(finite)


def test_above_the_largest_bootstrap_the_normal_interval_agrees_with_it(monkeypatch):
    values = np.random.default_rng(1).exponential(size=(4, statistics.LARGEST_BOOTSTRAP + 1))
    normal = mean(values)
    monkeypatch.setattr(statistics, "LARGEST_BOOTSTRAP", 10**6)
    resampled = mean(values)
    width = normal.high - normal.low
    # a quantile of 999 resamples has a relative error of some percent of the width
    assert np.abs(normal.low - resampled.low).max() < 0.06 * width.min()
    assert np.abs(normal.high - resampled.high).max() < 0.06 * width.min()


def test_a_level_out_of_range_is_named():
    with pytest.raises(attsvm.ProblemError, match=r"level: expected a number in \(0, 1\), got 95"):
        share([1], [2], 95)
