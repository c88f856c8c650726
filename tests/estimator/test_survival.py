"""Survival of bags: Efron's partial likelihood, concordance, forms of events and times, and what is learned."""

import jax
import numpy as np
import pytest

from attsvm import AttentionRegressor, ProblemError
from attsvm.estimator.cox_loss import CoxLoss, negative_log_likelihood
from attsvm.estimator.survival_report import concordance
from attsvm.estimator.validation import held_out

pytestmark = pytest.mark.slow

# python -m venv peers && peers/bin/pip install scikit-survival==0.28.0, with X, event and time of people():
#   CoxPHSurvivalAnalysis(ties="efron", alpha=0, n_iter=1000, tol=1e-14).fit(X, Surv.from_arrays(event, time)).coef_
#   concordance_index_censored(event, time, np.round(X[:, 0], 1))
COEFFICIENTS = [1.1376721251339952, -0.41894695134815196, 0.14744194229641638]
CONCORDANCE, CONCORDANT, DISCORDANT, TIED = 0.7840909090909091, 3393, 893, 114


def people(n=120, d=3):
    """Rows with censored times, which are rounded so that many are equal."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, d))
    time = np.ceil(6 * generator.exponential(np.exp(-X @ [1.0, -0.5, 0.0])))
    event = generator.random(n) < 0.6
    return X, event, time


def bags(n=300, seed=0):
    """Ragged bags in which one token says how large the hazard is, and the place of that token."""
    generator = np.random.default_rng(seed)
    arrays = [generator.normal(size=(1 + generator.integers(6), 4)) for _ in range(n)]
    places = np.array([generator.integers(len(array)) for array in arrays])
    risk = generator.normal(size=n)
    for array, place, own in zip(arrays, places, risk, strict=True):
        array[place] = [5, 2 * own, 0, 0]
    time = generator.exponential(np.exp(-2 * risk))
    censored = generator.exponential(1.0, n)
    y = np.array(
        list(zip(time <= censored, np.minimum(time, censored), strict=True)), dtype=[("event", bool), ("time", float)]
    )
    return arrays, y, places


def by_definition(outputs, events, times, weights):
    """Efron's negative log likelihood over n, by loops over the times and the events of each."""
    value = 0.0
    for time in np.unique(times[events]):
        tied = np.flatnonzero(events & (times == time))
        at_risk = weights[times >= time] @ np.exp(outputs[times >= time])
        of_tied = weights[tied] @ np.exp(outputs[tied])
        value += weights[tied] @ outputs[tied]
        for l in range(len(tied)):  # noqa: E741, the letter of the formula
            value -= weights[tied].mean() * np.log(at_risk - l / len(tied) * of_tied)
    return -value / len(outputs)


@pytest.mark.parametrize("padding", [0, 7])
def test_the_loss_and_its_slope_are_those_of_efron(padding):
    generator = np.random.default_rng(1)
    n = 30
    outputs, events, times = generator.normal(size=n), generator.random(n) < 0.7, generator.integers(1, 8, n) * 1.0
    weights = generator.uniform(0.5, 2.0, n)
    labels = np.where(events, 1, -1) * (1 + np.unique(times, return_inverse=True)[1])
    padded = [np.append(labels, np.ones(padding)), np.append(weights / n, np.zeros(padding))]
    with jax.enable_x64(True):
        value, slope = jax.jit(CoxLoss().value_and_slope)(np.append(outputs, np.full(padding, 9.0))[:, None], *padded)
    np.testing.assert_allclose(value, by_definition(outputs, events, times, weights), rtol=1e-12)
    for i in range(n):
        moved = [by_definition(outputs + h * np.eye(n)[i], events, times, weights) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(slope[i, 0], (moved[0] - moved[1]) / 2e-6, rtol=1e-6, atol=1e-9)
    assert not np.asarray(slope[n:]).any()


def test_outputs_far_apart_keep_loss_and_slope_finite():
    # the last risk set is e^-1600 of the first
    outputs, labels = np.array([800.0, 0.0, -800.0, -801.0]), np.array([1.0, 2.0, 3.0, 3.0])
    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(negative_log_likelihood))(outputs, labels, np.full(4, 0.25))
    # only the tied pair decides: log(1 + 1/e) + log of half of that, minus -1
    expected = (2 * np.log1p(np.exp(-1)) - np.log(2) + 1) / 4
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert np.isfinite(slope).all()


def test_concordance_is_that_of_scikit_survival_and_of_a_loop_over_pairs():
    X, event, time = people()
    found, pairs = concordance(time, event, np.round(X[:, 0], 1))
    assert pairs == CONCORDANT + DISCORDANT + TIED
    assert found == pytest.approx(CONCORDANCE, rel=1e-12)
    weights, risks = np.random.default_rng(0).uniform(size=len(time)), np.round(X[:, 1], 1)
    agreed = total = 0.0
    for i in np.flatnonzero(event):
        for j in range(len(time)):
            if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                total += weights[i] * weights[j]
                agreed += weights[i] * weights[j] * (1.0 if risks[i] > risks[j] else 0.5 * (risks[i] == risks[j]))
    assert concordance(time, event, risks, weights)[0] == pytest.approx(agreed / total, rel=1e-12)


def test_bags_of_one_token_give_the_linear_cox_model_of_scikit_survival(monkeypatch):
    # the average that predicts converges more slowly than the steps
    monkeypatch.setattr("attsvm.estimator.fitting.PATIENCE", 2000)
    X, event, time = people()
    y = np.column_stack([event, time])
    regressor = AttentionRegressor(
        loss="cox", alpha=0, early_stopping=False, optimizer="gradient_descent", learning_rate=2.0, max_steps=2000
    ).fit(X, y)
    np.testing.assert_allclose(regressor.head_[0], COEFFICIENTS, rtol=1e-6)
    # f is 0 for the mean token
    np.testing.assert_allclose(regressor.predict(X), (X - X.mean(axis=0)) @ COEFFICIENTS, rtol=1e-5, atol=1e-6)
    report = regressor.report(X, y)
    assert (report.num_events, report.num_pairs) == (73, 4400)
    assert regressor.score(X, y) == report.concordance == pytest.approx(0.7997727272727273)


def test_it_finds_the_token_that_says_the_risk_in_whole_risk_sets_and_in_batches():
    arrays, y, places = bags(600)
    for batch_size in (64, 600):
        regressor = AttentionRegressor(loss="cox", alpha=1.0, max_steps=300, batch_size=batch_size, random_state=0)
        regressor.fit(arrays[:400], y[:400])
        assert regressor.score(arrays[400:], y[400:]) > 0.8
        assert (regressor.selected(arrays[400:]) == places[400:]).mean() > 0.8
        assert set(regressor.history_) >= {"validation_loss", "validation_score"}


def test_all_forms_of_events_and_times_give_the_same_fit():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrays, y, _ = bags(60)
    other = np.array(list(zip(y["time"], y["event"], strict=True)), dtype=[("days", float), ("died", bool)])
    frame = pd.DataFrame({"time": y["time"], "event": y["event"]})
    array = np.column_stack([y["event"], y["time"]])

    def fitted(X, targets, **names):
        return AttentionRegressor(loss="cox", max_steps=5, random_state=0, scale="common").fit(X, targets, **names)

    expected = fitted(arrays, y)
    for targets in (other, array, array.tolist(), frame, pl.from_pandas(frame)):
        np.testing.assert_array_equal(fitted(arrays, targets).prompt_, expected.prompt_)
    rows = pd.DataFrame(np.concatenate(arrays), columns=list("abcd"))
    names = np.array([f"p{i:02}" for i in range(60)])
    rows["patient"] = np.repeat(names, [len(array) for array in arrays])
    shuffled = frame.set_index(pd.Index(names, name="patient")).sample(frac=1, random_state=0)
    for targets in (shuffled, shuffled.reset_index()):
        of_table = fitted(rows, targets, bag="patient")
        np.testing.assert_allclose(of_table.prompt_, expected.prompt_, rtol=1e-9)
        assert of_table.predict(rows).index.tolist() == names.tolist()
        assert of_table.score(rows, targets) == pytest.approx(expected.score(arrays, y))


def test_a_tenth_of_the_events_is_held_out_however_few_are_censored():
    arrays, _, _ = bags(110)
    y = np.column_stack([np.arange(110) >= 5, np.arange(110)])
    regressor = AttentionRegressor(loss="cox", max_steps=1, random_state=0)
    _, task, *_ = regressor._read_task(arrays, y, None, None, continues="")
    chosen = held_out(task, None, None, np.random.RandomState(0))
    assert np.bincount(chosen.astype(int)[y[:, 0] == 1]).tolist() == [95, 10]
    assert len(regressor.fit(arrays[:60], y[:60]).history_) == 5  # no validation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: np.column_stack([y["time"], y["event"]]), "y: expected events of 0 or 1, before the times, got 1.4"),
        (lambda y: y["time"], r"y: expected an array or table of events and times: .* or an array \(n, 2\)"),
        (lambda y: np.column_stack([y["event"], -y["time"]]), "y: expected finite times >= 0, got -1.4"),
        (lambda y: np.column_stack([np.zeros(40), y["time"]]), "y: expected some events, got none"),
        (lambda y: y[:7], "y: expected 40 targets, one for each sequence, got 7"),
        (lambda y: [("yes", "long")] * 40, "y: expected .*, got entries that are not numbers"),
        (lambda y: None, "AttentionRegressor requires y to be passed, but the target y is None"),
    ],
)
def test_other_events_and_times_are_refused_in_one_line(change, message):
    arrays, y, _ = bags(40)
    with pytest.raises(ProblemError, match=message) as caught:
        AttentionRegressor(loss="cox", max_steps=1).fit(arrays, change(y))
    assert "\n" not in str(caught.value)


def test_times_of_which_none_can_be_compared_have_no_score():
    arrays, y, _ = bags(40)
    regressor = AttentionRegressor(loss="cox", max_steps=1).fit(arrays, y)
    y["event"] = False
    with pytest.raises(ProblemError, match="y: expected targets that can be compared"):
        regressor.score(arrays, y)
    assert np.isnan(regressor.report(arrays, y).concordance)
