"""An optimizer defined outside the package: trained with, saved, resumed, and named on the command line."""

import json

# docs: begin
import jax
import jax.numpy as jnp
import optax

from attsvm.optimizers import chain


def largest_entries(*, fraction=0.5, learning_rate=0.1):
    """Steps of one length along the sign of every gradient entry that is at least a fraction of the largest one."""

    def init(params):
        return optax.EmptyState()

    def update(updates, state, params=None, *, log_scale, **extra):
        # log_scale has what was taken out of the gradient; the steps do not depend on it
        def step(g):
            size = jnp.abs(g)
            largest = jnp.max(size)
            return jnp.where((size >= fraction * largest) & (largest > 0), -learning_rate * jnp.sign(g), 0.0)

        return jax.tree.map(step, updates), state

    return chain(optax.GradientTransformationExtraArgs(init, update), name="largest_entries")


# docs: end

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import attsvm  # noqa: E402
from attsvm.training import Run  # noqa: E402

HERE = "test_new_optimizer:largest_entries"


@pytest.fixture
def problem():
    return attsvm.datasets.random_problem(4, 5, 6, seed=0)


@pytest.mark.parametrize("optimizer", [largest_entries(), HERE])
def test_its_steps_are_those_of_its_definition(problem, optimizer):
    run = attsvm.train(problem, optimizer=optimizer, steps=30, record=range(31))
    moved = np.diff(run.history["weights"], axis=0)
    assert moved.shape[0] == 30
    sizes = np.abs(moved)
    assert (np.isclose(sizes, 0.1, rtol=1e-9) | (sizes == 0)).all()
    assert ((sizes > 0).sum(axis=(1, 2)) >= 1).all()
    assert (sizes == 0).any()


@pytest.mark.parametrize(("fraction", "norm"), [(0.0, "linf"), (1.0, "l1")])
def test_its_ends_are_sign_and_coordinate_descent(problem, fraction, norm):
    run = attsvm.train(problem, optimizer=largest_entries(fraction=fraction), steps=50)
    descent = attsvm.optimizers.steepest_descent(norm=norm, learning_rate=0.1)
    np.testing.assert_allclose(run.weights, attsvm.train(problem, optimizer=descent, steps=50).weights, rtol=1e-12)


def test_it_composes_with_momentum(problem):
    run = attsvm.train(problem, optimizer=attsvm.optimizers.momentum(largest_entries(), decay=0.5), steps=20)
    assert run.status == "finished"


def test_the_direction_of_its_runs_needs_a_norm(problem):
    run = attsvm.train(problem, optimizer=largest_entries(), steps=20)
    assert run.norm is None
    with pytest.raises(attsvm.ProblemError, match=r"norm: .*largest_entries"):
        attsvm.predict_direction(problem, run)
    assert attsvm.predict_direction(problem, run, norm="linf").standing in ("conjecture", "none")


def test_a_run_with_it_is_saved_and_resumed(problem, tmp_path):
    attsvm.train(problem, optimizer=HERE, steps=10).save(tmp_path / "run.npz")
    loaded = Run.load(tmp_path / "run.npz")
    further = attsvm.train(problem, optimizer=HERE, init=loaded, steps=10)
    np.testing.assert_array_equal(further.weights, attsvm.train(problem, optimizer=HERE, steps=20).weights)


def test_what_is_no_optimizer_is_refused(problem):
    with pytest.raises(attsvm.ProblemError, match=r"^optimizer: test_new_optimizer:HERE: expected an optimiser"):
        attsvm.train(problem, optimizer="test_new_optimizer:HERE", steps=1)


def test_the_command_line_trains_with_it(command, problem, tmp_path):
    problem.save(tmp_path / "problem.npz")
    options = ("--optimizer", HERE, "--learning-rate", 0.05, "--steps", 10, "--json")
    code, out, error = command("train", tmp_path / "problem.npz", *options)
    assert code == 0, error
    result = json.loads(out)
    assert result["optimizer"] == HERE  # from which the run can be resumed
    alone = attsvm.train(problem, optimizer=largest_entries(learning_rate=0.05), steps=10)
    assert result["loss"] == pytest.approx(float(alone.loss))
