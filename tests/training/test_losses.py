"""Losses: slopes that do not underflow, users' own, and runs far below the smallest float."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, optimizers, train
from attsvm.datasets import random_problem
from attsvm.losses import LOSSES, Loss
from oracles import training as oracle

START = np.random.default_rng(0).normal(size=(3, 3))


@pytest.fixture(scope="module")
def problem():
    return random_problem(4, 5, 3, 0)


@pytest.mark.parametrize("name", ["logistic", "exponential", "linear", "correlation"])
def test_slopes_keep_their_accuracy_from_one_end_to_the_other(name):
    margins = np.array([-1e4, -800.0, -30.0, -1.0, 0.0, 1e-9, 2.0, 40.0, 800.0, 1e4])
    with jax.enable_x64(True), mpmath.workdps(50):
        for label in (1.0, -1.0):
            labels = jnp.full((1, 10, 1), label)
            slope = LOSSES.find(name).slope(jnp.asarray(label * margins)[None, :, None], labels)
            signs = np.broadcast_to(slope.direction, (1, 10, 1))[0, :, 0]
            logs = np.asarray(slope.log_slope)[0, :, 0]
            for sign, log, m in zip(signs, logs, margins, strict=True):
                (exact,), _ = oracle.margin_slope(name, int(label) * mpmath.mpf(m), int(label))
                error = mpmath.mpf(sign) * mpmath.exp(mpmath.mpf(log)) / exact - 1
                # the logarithm itself is rounded
                assert abs(error) <= 1e-15 * (4 + abs(m))


def test_the_logistic_slope_has_its_derivatives_at_every_margin():
    log_slope = LOSSES.find("logistic").log_slope
    with jax.enable_x64(True):
        for m in (-40.0, -1.0, 0.0, 1e-9, 3.0):
            sigmoid = 1 / (1 + mpmath.exp(-mpmath.mpf(m)))
            # two and four roundings in a sigmoid and its derivative
            assert jax.grad(log_slope)(m) == pytest.approx(float(-sigmoid), rel=1e-15)
            assert jax.grad(jax.grad(log_slope))(m) == pytest.approx(float(-sigmoid * (1 - sigmoid)), rel=4e-15)


def test_cross_entropy_keeps_the_accuracy_of_every_class():
    scores = np.array([[0.0, 1.0, -2.0], [900.0, 0.0, -900.0], [-900.0, 0.0, 3.0], [5.0, 5.0, 5.0]])
    with jax.enable_x64(True), mpmath.workdps(900):
        for label in range(3):
            outputs = jnp.asarray(scores)[None, :, :, None]
            slope = LOSSES.find("cross_entropy").slope(outputs, jnp.full((1, 4, 1), float(label)))
            values = np.asarray(LOSSES.find("cross_entropy").values(outputs, jnp.full((1, 4, 1), float(label))))
            direction, logs = np.asarray(slope.direction)[0, ..., 0], np.asarray(slope.log_slope)[0, :, 0]
            for row, f in enumerate(oracle.exact(scores)):
                exact, _ = oracle.class_slope(f, label)
                loss = mpmath.log(sum(mpmath.exp(x - f[label]) for x in f))
                assert values[0, row, 0] == pytest.approx(float(loss), rel=1e-13, abs=1e-300)
                scale = mpmath.exp(mpmath.mpf(logs[row]))
                for c in range(3):
                    error = mpmath.mpf(direction[row, c]) * scale - exact[c]
                    # entries may underflow below the largest of their query
                    assert abs(error) <= mpmath.mpf("1e-12") * abs(exact[c]) + scale * 1e-307


@pytest.mark.parametrize("name", ["logistic", "exponential"])
def test_a_loss_written_out_trains_as_the_named_one_while_it_lasts(problem, name):
    written = {"logistic": lambda m: jnp.log1p(jnp.exp(-m)), "exponential": lambda m: jnp.exp(-m)}[name]
    run, other = (train(problem, loss=loss, init=START, steps=40) for loss in (name, written))
    np.testing.assert_allclose(run.weights, other.weights, rtol=0, atol=1e-12)
    # with larger margins the gradient of the written loss underflows to zero; all margins are large and positive here
    selected = np.argmax(np.einsum("ntd,de,ne->nt", problem.tokens, START, problem.queries), axis=-1)
    outputs = np.sum(problem.tokens[np.arange(4), selected] * problem.head, axis=-1)
    far = attsvm.Problem(problem.tokens, np.sign(outputs), problem.queries, 1e5 * problem.head)
    beyond = [train(far, loss=loss, init=10 * START, steps=5) for loss in (name, written)]
    assert [run.status for run in beyond] == ["finished", "stalled"]


# ℓ = σ(−m), which falls like e^−m
SIGMOID = Loss(lambda m: jax.nn.sigmoid(-m), lambda m: -jax.nn.softplus(m) - jax.nn.softplus(-m), "sigmoid")


def test_a_loss_that_does_not_fit_the_labels_is_answered_by_one_that_does():
    classes = attsvm.Problem(np.ones((3, 2, 4)), [0, 1, 2], head=np.ones((3, 4)))
    with pytest.raises(ProblemError, match="class scores, such as cross_entropy, to fit the labels"):
        train(classes)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "cross_entropy", SIGMOID])
def test_runs_go_on_where_the_loss_is_below_the_smallest_float(loss):
    # one query, and a head that grows without bound with the attention
    tokens, label = [[[1.0, 0.3], [-1.0, 0.2], [0.1, -0.4]]], [1]
    head = [[-200.0, 3.0], [200.0, 0.0], [-150.0, 9.0]] if loss == "cross_entropy" else [800.0, 0.0]
    problem = attsvm.Problem(tokens, label, head=head)
    step = optimizers.normalized_gradient_descent(50.0, scope="each")
    run = train(
        problem, loss=loss, train_head=True, optimizer=step, init={"p": [1.0, 0.0]}, steps=200, record=[50, 200]
    )
    assert run.status == "finished"
    assert run.loss == 0.0  # below 1e-308
    np.testing.assert_allclose(np.diff(np.linalg.norm(run.history["v"].reshape(2, -1), axis=1)), 150 * 50.0, rtol=0.2)
    assert np.linalg.norm(run.history["weights"][1] - run.history["weights"][0]) > 1000
    stalled = train(problem, loss=loss, optimizer=optimizers.gradient_descent(1.0), init={"p": [1000.0, 0.0]}, steps=5)
    assert stalled.status == "stalled"


def test_correlation_is_another_name_of_the_linear_loss(problem):
    run, other = (train(problem, loss=loss, init=START, steps=9) for loss in ("linear", "correlation"))
    np.testing.assert_array_equal(run.weights, other.weights)


def test_a_loss_of_labels_that_are_padded_may_be_undefined():
    generator = np.random.default_rng(3)
    tokens, queries = generator.normal(size=(2, 3, 2)), generator.normal(size=(2, 2, 2))
    mask = np.array([[True, True], [True, False]])
    problem = attsvm.Problem(tokens, [[1, -1], [1, 0]], queries, np.ones(2), query_mask=mask)
    # m^(1/3) has no slope at the margin 0 of a padded query
    run = train(problem, loss=lambda m: 1e-3 * jnp.sign(m) * jnp.abs(m) ** (1 / 3) - m, steps=20, train_head=True)
    assert run.status == "finished"
    assert np.isfinite(run.loss)


def test_a_loss_that_loses_its_value_stops_the_trial(problem):
    # log of the margin, defined only for positive ones
    positive = attsvm.Problem(np.abs(problem.tokens), np.ones(4), problem.queries, np.ones(3))
    run = train(positive, loss=lambda m: jnp.log(m - 0.3), init=START, steps=500, train_head=True)
    assert run.status == "non_finite"
    assert run.step > 0
    assert all(np.isfinite(x).all() for x in run.history.values())


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (3, "Loss or a callable"),
        (Loss, "got Loss"),
        ("attsvm.heads:Linear", "Loss or a callable"),
        ("hinge", "hinge"),
        ("cross_entropy", "fit the labels"),
        (lambda m: np.log(m), "trace"),
        (lambda m: jnp.sum(m), "elementwise"),
        (lambda a, b: a, "trace"),
    ],
)
def test_losses_that_do_not_fit_are_named(problem, loss, words):
    with pytest.raises(ProblemError, match=f"loss: .*{words}"):
        train(problem, loss=loss)


def test_losses_are_found_by_import_path(problem):
    run, other = (train(problem, loss=x, init=START, steps=9) for x in ("attsvm.losses.linear:LINEAR", "linear"))
    np.testing.assert_array_equal(run.weights, other.weights)
