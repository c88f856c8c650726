"""Regression of bags: linear models as oracles, units, weights, tables, and scikit-learn's conventions."""

import pickle

import jax
import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.metrics import d2_pinball_score, mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from attsvm import AttentionRegressor, ProblemError
from attsvm.datasets import Sequences
from attsvm.estimator import batches
from attsvm.estimator.batches import gather
from attsvm.estimator.prompt import objective_gradient
from attsvm.estimator.quantile_loss import QuantileLoss
from attsvm.estimator.squared_loss import SquaredLoss

pytestmark = pytest.mark.slow

DOES_NOT_APPLY = {
    "check_sample_weight_equivalence_on_dense_data": (
        "n of the penalty, and centre and scale of the tokens, count copies; weights count in the loss only"
    )
}


def bags(n=200, seed=0):
    """Ragged bags in which one token has the number that is predicted, and the place of that token."""
    generator = np.random.default_rng(seed)
    arrays = [generator.normal(size=(1 + generator.integers(6), 4)) for _ in range(n)]
    places = np.array([generator.integers(len(array)) for array in arrays])
    y = generator.normal(size=n)
    for array, place, number in zip(arrays, places, y, strict=True):
        array[place] = [5, 2 * number, 0, 0]
    return arrays, 30 + 7 * y, places


def short(**changes):
    return AttentionRegressor(**{"max_steps": 100, "random_state": 0} | changes)


def rows(n=120):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, 3))
    return X, 10 + 1000 * X @ [1.0, -0.5, 0.0] + 300 * generator.normal(size=n)


def test_scikit_learn_finds_its_conventions_kept(monkeypatch):
    monkeypatch.setattr(batches, "FEWEST", 512)  # data of all sizes share their compiled steps
    results = check_estimator(
        AttentionRegressor(max_steps=50, learning_rate=0.1), expected_failed_checks=DOES_NOT_APPLY, on_skip=None
    )
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(DOES_NOT_APPLY)


def test_outputs_are_those_of_the_definition_in_the_unit_of_the_targets():
    arrays, y, places = bags()
    regressor = short(max_steps=600, alpha=1.0).fit(arrays, y)
    outputs = []
    for array in arrays:
        weights = np.exp(array @ regressor.prompt_)
        outputs.append(regressor.head_[0] @ (array.T @ weights) / weights.sum() + regressor.intercept_[0])
    np.testing.assert_allclose(regressor.predict(arrays), outputs, rtol=1e-9)
    tokens = np.concatenate(regressor.instance_scores(arrays))
    np.testing.assert_allclose(tokens, np.concatenate(arrays) @ regressor.head_[0] + regressor.intercept_, rtol=1e-9)
    last = regressor.path_[regressor.kept_step_]
    np.testing.assert_array_equal(last.head, regressor.head_)
    # before the first step the mean of the targets
    assert not regressor.path_[0].head.any()
    assert regressor.path_[0].intercept == pytest.approx(y.mean())
    assert regressor.score(arrays, y) > 0.9
    assert (regressor.selected(arrays) == places).mean() > 0.9
    assert regressor.margin_report(arrays).num_sequences == 200
    copy = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(copy.predict(arrays), regressor.predict(arrays))


@pytest.mark.parametrize("loss", ["squared_error", "quantile"])
def test_the_unit_of_the_targets_changes_the_unit_of_the_predictions_only(loss):
    arrays, y, _ = bags()
    one = short(loss=loss, quantile=0.7).fit(arrays, y)
    for factor, shift in ((1e-150, 0.0), (1e160, 0.0), (1000.0, 1e6)):
        other = short(loss=loss, quantile=0.7).fit(arrays, factor * y + shift)
        np.testing.assert_allclose(other.predict(arrays), factor * one.predict(arrays) + shift, rtol=1e-6)
        assert other.kept_step_ == one.kept_step_
    constant = short(loss=loss).fit(arrays, np.full(len(y), 0.1))
    np.testing.assert_allclose(constant.predict(arrays), 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "of_residual"),
    [
        (SquaredLoss(), lambda r: r**2 / 2),
        (QuantileLoss(0.8), lambda r: np.maximum(0.8 * r, -0.2 * r)),
    ],
)
def test_the_gradient_is_that_of_finite_differences(loss, of_residual):
    generator = np.random.default_rng(0)
    offsets = np.cumsum([0, 3, 1, 8, 21, 16])
    sequences = Sequences(generator.normal(size=(60, 3)), generator.integers(60, size=offsets[-1]), offsets)
    y, weights, alpha = generator.normal(size=5), generator.uniform(size=5), 0.3
    batch = gather(sequences, y, weights, np.zeros(3), 1.0, 50.0)

    def objective(p, v, b):
        value = alpha / 2 * (p @ p + v @ v)
        for tokens, target, weight in zip(sequences, y, weights, strict=True):
            attention = np.exp(tokens @ p)
            value += weight / 5 * of_residual(target - v @ (tokens.T @ attention) / attention.sum() - b[0])
        return value

    point = [generator.normal(size=3), generator.normal(size=3), generator.normal(size=1)]
    with jax.enable_x64(True):
        parameters = {"p": point[0], "V": point[1][None], "b": point[2]}
        value, gradient = jax.jit(lambda x: objective_gradient(x, batch, alpha, loss))(parameters)
        found = [np.ravel(gradient[name]) for name in "pVb"]
        outputs = np.array([[0.3], [-1.0]])
        mean = loss.mean(outputs, np.array([1.0, 1.0]), np.array([1.0, 3.0]))
    np.testing.assert_allclose(value, objective(*point), rtol=1e-12)
    np.testing.assert_allclose(mean, np.average(of_residual(1 - outputs[:, 0]), weights=[1, 3]), rtol=1e-12)
    for k, array in enumerate(point):
        for i in range(len(array)):
            moved = []
            for h in (1e-6, -1e-6):
                changed = [x.copy() for x in point]
                changed[k][i] += h
                moved.append(objective(*changed))
            np.testing.assert_allclose(found[k][i], (moved[0] - moved[1]) / 2e-6, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 10.0])
def test_bags_of_one_token_give_ridge_regression(alpha, monkeypatch):
    # the average that predicts converges more slowly than the steps
    monkeypatch.setattr("attsvm.estimator.fitting.PATIENCE", 2000)
    X, y = rows()
    scale = np.sqrt(((X - X.mean(axis=0)) ** 2).mean())
    # the penalty is that of standardised tokens and targets
    ridge = Ridge(alpha=alpha).fit((X - X.mean(axis=0)) / scale, (y - y.mean()) / y.std())
    regressor = short(
        max_steps=2000,
        alpha=alpha,
        early_stopping=False,
        optimizer="gradient_descent",
        learning_rate=0.5,
        scale="common",
    ).fit(X, y)
    np.testing.assert_allclose(regressor.head_[0], ridge.coef_ / scale * y.std(), rtol=1e-6, atol=1e-4)


def test_the_quantile_is_that_of_the_linear_program():
    X, y = rows()
    regressor = short(loss="quantile", quantile=0.8, alpha=0, early_stopping=False, max_steps=1500).fit(X, y)
    peer = QuantileRegressor(quantile=0.8, alpha=0).fit(X, y)
    np.testing.assert_allclose(regressor.predict(X), peer.predict(X), atol=20)  # the targets spread over 1,000
    assert regressor.score(X, y) == pytest.approx(d2_pinball_score(y, regressor.predict(X), alpha=0.8))
    assert regressor.score(X, y) > d2_pinball_score(y, peer.predict(X), alpha=0.8) - 1e-3
    assert regressor.report(X, y).below == pytest.approx(0.8, abs=0.03)
    assert np.quantile(y, 0.79) <= regressor.target_centre_ <= np.quantile(y, 0.81)


def test_the_report_is_that_of_scikit_learn_beside_the_mean_of_the_training_targets():
    arrays, y, _ = bags()
    regressor = short().fit(arrays[:100], y[:100])
    report, predicted = regressor.report(arrays[100:], y[100:]), regressor.predict(arrays[100:])
    mean = np.full(100, y[:100].mean())
    assert report.mae == pytest.approx(mean_absolute_error(y[100:], predicted))
    assert report.rmse == pytest.approx(root_mean_squared_error(y[100:], predicted))
    assert report.r2 == regressor.score(arrays[100:], y[100:]) == pytest.approx(r2_score(y[100:], predicted))
    assert report.constant == pytest.approx(y[:100].mean())
    assert report.constant_mae == pytest.approx(mean_absolute_error(y[100:], mean))
    assert report.constant_rmse == pytest.approx(root_mean_squared_error(y[100:], mean))
    weights = np.arange(100)
    expected = r2_score(y[100:], predicted, sample_weight=weights)
    assert regressor.score(arrays[100:], y[100:], weights) == pytest.approx(expected)


def test_weights_of_zero_take_no_part_and_the_unit_is_weighted():
    arrays, y, _ = bags()
    weights = np.arange(len(y)) % 3
    kept = np.flatnonzero(weights)
    one = short().fit(arrays, y, weights)
    other = short().fit([arrays[i] for i in kept], y[kept], weights[kept])
    np.testing.assert_allclose(one.prompt_, other.prompt_, rtol=1e-12)
    assert one.target_centre_ == pytest.approx(np.average(y, weights=weights))


def test_partial_fit_and_warm_start_go_on_with_the_same_loss():
    arrays, y, _ = bags()
    stream = short(batch_size=20)
    scores = []
    for _ in range(15):
        stream.partial_fit(arrays[:120], y[:120], num_sequences=200).partial_fit(
            arrays[120:], y[120:], num_sequences=200
        )
        scores.append(stream.score(arrays, y))
    assert scores[-1] > scores[5] > scores[0]
    assert stream.target_centre_ == pytest.approx(y[:120].mean())
    warm = short(warm_start=True, early_stopping=False).fit(arrays, y)
    before = warm.history_["objective"][-1]
    assert warm.fit(arrays, y).history_["objective"][1] < before
    with pytest.raises(
        ProblemError, match="loss, quantile: expected the same values as before with warm_start, got QuantileLoss"
    ):
        warm.set_params(loss="quantile").fit(arrays, y)


def test_early_stopping_holds_out_a_tenth_of_at_least_ten():
    arrays, y, _ = bags()
    assert "validation_score" in short(max_steps=25).fit(arrays, y).history_
    assert "validation_score" not in short(max_steps=25).fit(arrays[:94], y[:94]).history_
    groups = np.repeat(np.arange(50), 4)
    regressor = short(max_steps=25).fit(arrays, y, groups=groups)
    assert "validation_score" in regressor.history_
    own = short(max_steps=50).fit(arrays[:100], y[:100], validation=(arrays[100:], y[100:]))
    place = own.history_["steps"].index(own.kept_step_)
    assert own.history_["validation_score"][place] == pytest.approx(own.score(arrays[100:], y[100:]))
    noise = np.random.default_rng(0).normal(size=len(y))
    with pytest.warns(RuntimeWarning, match="the score of the validation sequences, .*, is barely better than"):
        short(max_steps=25).fit(arrays, noise).margin_report(arrays)


def test_tables_searches_and_sequences_work():
    pd = pytest.importorskip("pandas")
    arrays, y, _ = bags(60)
    names = np.array([f"b{i:02}" for i in range(60)])
    table = pd.DataFrame(np.concatenate(arrays), columns=list("abcd"))
    table["bag"] = np.repeat(names, [len(array) for array in arrays])
    targets = pd.Series(y, index=pd.Index(names, name="bag")).sample(frac=1, random_state=0)
    of_table = short(scale="common").fit(table, targets, bag="bag")
    of_list = short(scale="common").fit(arrays, y)
    found = of_table.predict(table)
    assert found.index.tolist() == names.tolist()
    np.testing.assert_allclose(found, of_list.predict(arrays), rtol=1e-9)
    np.testing.assert_allclose(
        of_table.instance_scores(table), np.concatenate(of_list.instance_scores(arrays)), rtol=1e-9
    )
    scores = cross_val_score(short(), Sequences.from_arrays(arrays), y, cv=3, error_score="raise")
    assert len(scores) == 3


@pytest.mark.parametrize(
    ("changes", "y", "message"),
    [
        ({"loss": "absolute"}, None, "loss: expected 'squared_error', 'quantile' or 'cox', got 'absolute'"),
        ({"loss": "quantile", "quantile": 1.0}, None, r"quantile: expected a number in \(0, 1\), got 1.0"),
        ({}, np.arange(7), "y: expected 20 targets, one for each sequence, got 7"),
        ({}, ["a"] * 20, "y: expected a number for each sequence, got other entries .*'a'"),
        ({}, [np.nan] * 20, "Input y contains NaN"),
    ],
)
def test_what_does_not_fit_is_refused(changes, y, message):
    arrays, targets, _ = bags(20)
    with pytest.raises(ValueError, match=message):
        short(**changes).fit(arrays, targets if y is None else y)
