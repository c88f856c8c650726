"""A loss defined outside the package: trained with, saved, and named on the command line."""

import json

# docs: begin
import jax
import jax.numpy as jnp

from attsvm.losses import Loss


def value(m):
    """The squared hinge max(0, 3 - m)², made smooth by a softplus."""
    return jax.nn.softplus(3 - m) ** 2


def log_slope(m):
    """Its logarithm stays finite where the slope itself is below the smallest float."""
    # log softplus(x) is x to rounding for very negative x
    log_softplus = jnp.where(m > 30, 3 - m, jnp.log(jax.nn.softplus(jnp.maximum(3 - m, -27.0))))
    return jnp.log(2.0) + log_softplus - jax.nn.softplus(m - 3)


SMOOTH_HINGE = Loss(value, log_slope, name="smooth-hinge", defined_everywhere=True)

# docs: end

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import attsvm  # noqa: E402
from attsvm.training import Run  # noqa: E402

HERE = "test_new_loss:SMOOTH_HINGE"


@pytest.fixture
def problem():
    return attsvm.datasets.random_problem(4, 5, 6, seed=0)


def test_its_slope_is_the_derivative_of_its_value():
    with jax.enable_x64(True):
        margins = jnp.linspace(-50.0, 29.0, 200)
        slopes = jax.vmap(jax.grad(value))(margins)
        np.testing.assert_allclose(-np.exp(log_slope(margins)), slopes, rtol=1e-9)


@pytest.mark.parametrize("loss", [SMOOTH_HINGE, HERE])
def test_training_with_it_converges_to_the_att_svm(problem, loss):
    run = attsvm.train(problem, loss=loss, steps=20_000)
    prediction = attsvm.predict_direction(problem, run)
    assert attsvm.direction_error(run.weights, prediction.solution.direction) < 1e-4


def test_a_run_with_it_is_saved_and_resumed(problem, tmp_path):
    run = attsvm.train(problem, loss=SMOOTH_HINGE, steps=10)
    run.save(tmp_path / "run.npz")
    further = attsvm.train(problem, loss=HERE, init=Run.load(tmp_path / "run.npz"), steps=10)
    np.testing.assert_allclose(further.weights, attsvm.train(problem, loss=SMOOTH_HINGE, steps=20).weights, rtol=1e-12)


def test_a_regularization_path_of_it_approaches_the_same_direction(problem):
    path = attsvm.regularization_path(problem, [1.0, 10.0, 100.0], loss=SMOOTH_HINGE)
    assert path.norm == attsvm.norms.Lp(2.0)
    assert path.direction_errors[0] > path.direction_errors[1] > path.direction_errors[2]


def test_what_is_no_loss_is_refused(problem):
    with pytest.raises(attsvm.ProblemError, match=r"^loss: test_new_loss:HERE: expected a Loss or a callable"):
        attsvm.train(problem, loss="test_new_loss:HERE", steps=1)


def test_the_command_line_trains_with_it(command, problem, tmp_path):
    problem.save(tmp_path / "problem.npz")
    code, out, error = command("train", tmp_path / "problem.npz", "--loss", HERE, "--steps", 10, "--json")
    assert code == 0, error
    assert json.loads(out)["loss"] == pytest.approx(float(attsvm.train(problem, loss=SMOOTH_HINGE, steps=10).loss))
