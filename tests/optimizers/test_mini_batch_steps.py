"""Steps for mini-batches: the gradient of the log excess, and normalization by a running average."""

import numpy as np
import optax
import pytest
from scipy.special import logsumexp

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem
from attsvm.optimizers.registry import configuration, from_configuration
from oracles.results import assert_survives_a_file


def log_excess(problem, weights):
    """log(L − L*) of the logistic loss in logarithms, for drops so small that the slope at the best margin counts."""
    margins = problem.labels[:, None] * (problem.tokens @ problem.head)
    logits = np.einsum("ntk,kq,nq->nt", problem.tokens, weights, problem.queries)
    best = margins.max(axis=1, keepdims=True)
    share = logits - logsumexp(logits, axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_drop = logsumexp(share + np.log(best - margins), axis=1)
    log_slope = -np.logaddexp(0, best[:, 0])
    return logsumexp(log_drop + log_slope) - np.log(len(best))


def difference(function, weights, direction, h):
    return (function(weights + h * direction) - function(weights - h * direction)) / (2 * h)


@pytest.mark.parametrize("size", [30.0, 300.0, 3e4])
def test_log_gradient_is_that_of_the_log_excess(size):
    """At the largest weights the excess is about e^−10000."""
    problem = random_problem(4, 5, 6, seed=1)
    start = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).direction
    start = size * start / np.linalg.norm(start)
    descent = optimizers.log_gradient_descent(1.0)
    run = attsvm.train(problem, optimizer=descent, init=start, steps=1)
    step = run.weights - start
    generator = np.random.default_rng(0)
    for direction in generator.standard_normal((3, 6, 6)):
        expected = -difference(lambda W: log_excess(problem, W), start, direction, 1e-4)
        # the drop of the smallest weights, about 1e-4, changes the slope by as much; differences of numbers of 1e4
        # that are 1e-4 apart have an error of 1e-8, and so has the sum of weights of 3e4 and a step
        assert np.vdot(step, direction) == pytest.approx(expected, rel=1e-3 if size == 30 else 1e-6)


def test_excess_of_large_drops_is_that_of_the_losses():
    """At zero weights every token shares the attention, and the excess has no cancellation."""
    problem = random_problem(4, 5, 6, seed=2)
    margins = problem.labels[:, None] * (problem.tokens @ problem.head)
    loss = np.logaddexp(0, -margins.mean(axis=1)).mean()
    excess = loss - np.logaddexp(0, -margins.max(axis=1)).mean()
    plain = attsvm.train(problem, optimizer=optimizers.gradient_descent(1.0), init=np.zeros((6, 6)), steps=1).weights
    of_log = attsvm.train(problem, optimizer=optimizers.log_gradient_descent(1.0), init=np.zeros((6, 6)), steps=1)
    # the quadrature of the slope has an error of about 1e-14
    assert of_log.weights == pytest.approx(plain / excess, rel=1e-12)


def test_runs_in_float32_follow_those_in_float64():
    problem, descent = random_problem(4, 5, 6, seed=1), optimizers.log_gradient_descent(0.5)
    double, single = (
        attsvm.train(problem, optimizer=descent, batch_size=1, steps=40, dtype=each) for each in ("float64", "float32")
    )
    # rounding errors of 6e-8 in each of 40 steps
    assert single.weights == pytest.approx(double.weights, abs=1e-4 * np.abs(double.weights).max())


def test_masked_and_padded_queries_have_no_excess():
    """A sequence more that attends to nothing, and masked tokens, change only the share of the mean."""
    problem = random_problem(3, 4, 5, seed=3)
    generator = np.random.default_rng(0)
    tokens = np.concatenate([problem.tokens, generator.standard_normal((3, 2, 5))], axis=1)
    mask = np.arange(6) < 4
    masked = attsvm.Problem(
        tokens, problem.labels, queries=problem.queries, head=problem.head, mask=np.broadcast_to(mask, (3, 6))
    )
    runs = [
        attsvm.train(each, optimizer=optimizers.log_gradient_descent(0.5), batch_size=1, steps=10)
        for each in (problem, masked)
    ]
    assert runs[0].weights == pytest.approx(runs[1].weights, rel=1e-12)


@pytest.mark.optimized
def test_log_gradient_descent_goes_to_the_mini_batch_direction(tmp_path):
    problem = random_problem(6, 4, 8, seed=6)
    run = attsvm.train(problem, optimizer=optimizers.log_gradient_descent(growing), batch_size=1, steps=5000)
    prediction = attsvm.predict_direction(problem, run)
    assert (run.selected == attsvm.optimal_tokens(problem)).all()
    assert attsvm.direction_error(run, prediction) < 1e-5
    assert attsvm.direction_error(run, prediction.solution) > 1e-3
    assert prediction.mini_batch.changed
    assert {one.name for one in prediction.hypotheses} >= {"optimal_tokens", "all_margins"}
    assert "full_batch" not in {one.name for one in prediction.hypotheses}
    assert_survives_a_file(prediction, tmp_path)


@pytest.mark.optimized
def test_running_average_keeps_the_att_svm_that_each_batch_leaves():
    problem = random_problem(6, 4, 8, seed=6)
    selected = attsvm.optimal_tokens(problem)
    error = {}
    for average in (0.0, 0.9):
        optimizer = optimizers.normalized_gradient_descent(0.1, average=average)
        run = attsvm.train(problem, optimizer=optimizer, batch_size=1, steps=5000)
        error[average] = attsvm.direction_error(run, attsvm.solve_svm(problem, selected))
    assert error[0.9] < 1e-3 < error[0.0]


def growing(step):
    return 0.1 * (1 + step / 100)


def test_running_average_divides_by_the_mean_of_the_norms():
    first, second = np.array([[3.0, 4.0]]), np.array([[0.0, 1e-3]])
    optimizer = optimizers.normalized_gradient_descent(0.5, average=0.75)
    state = optimizer.init({"W": np.zeros((1, 2))})
    step, state = optimizer.update({"W": first}, state)
    assert np.asarray(step["W"]) == pytest.approx(-0.5 * first / 5, rel=1e-6)
    step, _ = optimizer.update({"W": second}, state)
    mean = (0.75 * 0.25 * 5 + 0.25 * 1e-3) / (1 - 0.75**2)
    # optax computes in float32 here
    assert np.asarray(step["W"]) == pytest.approx(-0.5 * second / mean, rel=1e-5)


def test_running_average_of_any_optimizer_and_its_file():
    wrapped = optimizers.normalized(optax.sgd(0.5), average=0.75)
    state = wrapped.init(np.zeros(2))
    step, _ = wrapped.update(np.array([3.0, 4.0]), state, np.zeros(2))
    assert np.asarray(step) == pytest.approx([-0.3, -0.4], rel=1e-6)
    ours = optimizers.normalized_gradient_descent(0.2, average=0.9)
    assert repr(from_configuration(configuration(ours))) == repr(ours)
    assert "average" not in configuration(optimizers.normalized_gradient_descent(0.2))["arguments"]


@pytest.mark.parametrize(
    ("problem", "options", "expected"),
    [
        ({}, {"penalty": 0.1}, "no penalty"),
        ({}, {"train_head": True}, "a fixed linear head"),
        ({}, {"head": attsvm.heads.Quadratic(0.1)}, "a fixed linear head"),
        ({"num_heads": 2}, {}, "one attention head"),
    ],
)
def test_excess_is_refused_where_the_infimum_is_not_known(problem, options, expected):
    with pytest.raises(attsvm.ProblemError, match=f"optimizer: expected {expected}"):
        attsvm.train(random_problem(3, 4, 5, 0, **problem), optimizer="log_gradient_descent", steps=1, **options)


def test_excess_is_refused_outside_of_training():
    descent = optimizers.log_gradient_descent()
    with pytest.raises(attsvm.ProblemError, match=r"log_gradient_descent: only for attsvm\.train"):
        descent.update(np.ones(2), descent.init(np.zeros(2)))
