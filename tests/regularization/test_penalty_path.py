"""Penalty paths: against plain optimisers, the engine's gradient, a closed form, and the ball path."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

import attsvm
from attsvm.heads import Quadratic
from attsvm.training import LossGradient
from oracles.attention import mean_loss
from oracles.results import assert_survives_a_file

POWERS = {"frobenius": 2, 1.5: 1.5, 3.0: 3.0}


def small(seed, n=2, T=3, d=3):
    return attsvm.datasets.random_problem(n, T, d, seed)


@pytest.mark.parametrize("norm", [*POWERS, "factored"])
def test_no_start_of_a_plain_optimiser_gets_below_the_path(norm):
    """BFGS from six starts on loss plus penalty, for factors on (K, Q) themselves."""
    problem = small(1)
    log_penalties = [-2.0, -5.0, -8.0]
    factored = norm == "factored"
    options = {"attention": "factored"} if factored else {"norm": norm}
    path = attsvm.regularization.penalty_path(problem, log_penalties, **options)
    assert path.status == "converged"
    generator = np.random.default_rng(0)

    def product(x):
        return x[:9].reshape(3, 3) @ x[9:].reshape(3, 3).T if factored else x.reshape(3, 3)

    for k, penalty in enumerate(np.exp(log_penalties)):

        def total(x, penalty=penalty):
            return mean_loss(problem, product(x)) + penalty * np.sum(np.abs(x) ** (2 if factored else POWERS[norm]))

        weights = path.weights[k]
        np.testing.assert_allclose(path.loss[k], mean_loss(problem, weights), rtol=1e-12)
        left, values, right = np.linalg.svd(weights)
        balanced = np.concatenate([(left * np.sqrt(values)).ravel(), (right.T * np.sqrt(values)).ravel()])
        own = total(balanced if factored else weights.ravel())
        found = [minimize(total, 3 * generator.standard_normal(18 if factored else 9)).fun for _ in range(6)]
        # BFGS with differences for gradients ends within 1e-9 of a minimum, for p < 2 within 1e-6
        assert own <= min(found) + 1e-9
        assert own >= min(found) - 1e-5


@pytest.mark.parametrize("log_penalty", [-10.0, -1e3, -1e5])
def test_the_engines_gradient_balances_the_penalty(log_penalty):
    """−∇L = 2λW, also where λ is far below the smallest float."""
    problem = attsvm.datasets.random_problem(4, 5, 4, 1)
    path = attsvm.regularization.penalty_path(problem, [log_penalty])
    weights = path.weights[0]
    found, log_scale = LossGradient(problem)({"W": weights[None]})
    gradient = found["W"][0]
    assert attsvm.direction_error(-gradient, weights) < 1e-12
    size = log_scale + np.log(np.linalg.norm(gradient))
    # logits of 1e5 have a rounding of 1e-11
    np.testing.assert_allclose(size, np.log(2) + log_penalty + np.log(np.linalg.norm(weights)), atol=1e-10)


def test_two_tokens_in_one_dimension_have_a_closed_form():
    """L = −σ(p): the minimiser of −σ(p) + λp² solves σ(p)σ(−p) = 2λp."""
    problem = attsvm.Problem([[[1.0], [0.0]]], labels=[1.0], head=[1.0])
    log_penalties = [-1.0, -20.0, -3e3]
    path = attsvm.regularization.penalty_path(problem, log_penalties, loss="linear")

    def condition(p, log_penalty):
        return mpmath.log(2 * p) + log_penalty + p + 2 * mpmath.log1p(mpmath.exp(-p))

    for log_penalty, p in zip(log_penalties, path.weights[:, 0], strict=True):
        exact = mpmath.findroot(lambda x, log_penalty=log_penalty: condition(x, log_penalty), p)
        np.testing.assert_allclose(p, float(exact), rtol=1e-12)


@pytest.mark.parametrize(("options", "power"), [({}, 2), ({"norm": 3.0}, 3), ({"attention": "factored"}, 1)])
def test_each_point_is_a_point_of_the_ball_path_whose_slope_is_that_of_the_penalty(options, power):
    problem = attsvm.datasets.random_problem(3, 4, 4, 2)
    log_penalties = np.array([-6.0, -12.0])
    path = attsvm.regularization.penalty_path(problem, log_penalties, **options)
    scale = 2 if "attention" in options else 1
    h = 1e-5
    for k, radius in enumerate(path.size):
        ball = attsvm.regularization_path(problem, radius * np.array([1 - h, 1.0, 1 + h]), **options)
        np.testing.assert_allclose(path.weights[k], ball.weights[1], rtol=1e-6, atol=1e-6)
        slope = (ball.loss[2] - ball.loss[0]) / (2 * h * radius)
        np.testing.assert_allclose(slope, -np.exp(log_penalties[k]) * scale * power * radius ** (power - 1), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"norm": 1.5}, {"attention": "factored"}])
def test_the_limit_is_that_of_the_ball_path(options):
    problem = attsvm.datasets.random_problem(3, 4, 3, 0)
    path = attsvm.regularization.penalty_path(problem, [-20.0, -2e3, -2e5], **options)
    assert path.status == "converged"
    norm = "nuclear" if options.get("attention") else options.get("norm", "frobenius")
    svm = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm)
    assert attsvm.direction_error(path.weights[-1], svm.direction) < 1e-8
    assert (np.diff(path.direction_errors) < 0).all()
    # the norm grows like log(1/λ) times the value of the Att-SVM
    assert path.size[-1] == pytest.approx(2e5 * svm.value, rel=0.02)


def test_a_large_penalty_on_factors_leaves_zero():
    problem = small(0)
    path = attsvm.regularization.penalty_path(problem, [3.0, -9.0], attention="factored")
    np.testing.assert_array_equal(path.weights[0], 0.0)
    assert path.weights[1].any()
    assert path.status == "converged"


def test_a_nonlinear_head_that_keeps_two_tokens():
    """The finite part stays while the penalty vanishes; see the same problem in the tests of nonlinear heads."""
    tokens = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]])
    problem = attsvm.Problem(tokens, labels=[1.0], head=[1.0, 0.0, 0.0])
    path = attsvm.regularization.penalty_path(problem, [-8.0, -60.0, -6e3], head=Quadratic(1.0))
    assert path.status == "converged"
    across = np.array([-1.0, -1.0, -2.0]) / np.sqrt(6)
    rest = path.weights[1:] - (path.weights[1:] @ across)[:, None] * across
    np.testing.assert_allclose(rest, np.log(3) / 2 * np.array([[1.0, -1.0, 0.0]] * 2), atol=1e-9)
    # d/dR of the dropped token's part: |ℓ'| ⟨∇h, o − x_3⟩ a_3 √(3/2) = 2λR, where both sides are exponentials
    o = np.array([0.75, 0.25, 0.0])
    slope = np.array([1.0, 0.0, 0.0]) - 2 * o
    cost = slope @ (o - tokens[0, 2]) / (1 + np.exp(1 / 8))
    for weights, log_penalty in zip(path.weights[1:], path.log_penalties[1:], strict=True):
        logits = tokens[0] @ weights
        log_share = logits[2] - np.logaddexp(logits[0], logits[1])
        along = weights @ across
        np.testing.assert_allclose(
            np.log(cost) + log_share + np.log(np.sqrt(1.5)), np.log(2) + log_penalty + np.log(along), atol=1e-7
        )


def test_batches_files_and_callbacks(tmp_path):
    problem = attsvm.datasets.random_problem(3, 4, 3, 1, batch=(2,))
    path = attsvm.regularization.penalty_path(problem, [-3.0, -50.0])
    assert (path.weights.shape, path.size.shape) == ((2, 2, 3, 3), (2, 2))
    np.testing.assert_array_equal(
        path.weights[:, 1], attsvm.regularization.penalty_path(problem[1], [-3.0, -50.0]).weights
    )
    again = assert_survives_a_file(path, tmp_path)
    assert "2; combined, frobenius: 2 penalties, log -3 to -50; 4 of 4 solved" in repr(path)
    assert path[1].status is again[1].status is attsvm.Status.CONVERGED
    stopped = attsvm.regularization.penalty_path(problem, [-3.0, -50.0], callback=lambda progress: progress.step == 1)
    assert stopped.status.tolist() == ["interrupted", "interrupted"]
    assert np.isnan(stopped.weights[:, 1]).all()
    assert stopped.log_penalties.tolist() == [-3.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_penalties": [-1.0, -1.0]}, "log_penalties: expected decreasing logarithms, got -1 after -1"),
        ({"log_penalties": [-np.inf]}, "log_penalties: expected finite logarithms, got -inf"),
        ({"log_penalties": []}, r"log_penalties: expected shape \(L,\) with L >= 1, got \(0,\)"),
        ({"norm": 1}, "norm: expected a norm with regularisation paths"),
    ],
)
def test_bad_arguments_are_refused_by_name(changes, message):
    with pytest.raises(attsvm.ProblemError, match=message):
        attsvm.regularization.penalty_path(**({"problem": small(0), "log_penalties": [-1.0]} | changes))
