"""A map from logits to attention defined outside the package: trained with, saved, and named on the command line."""

import json

# docs: begin
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm.training import AttentionMap


@dataclass(frozen=True)
class Tempered(AttentionMap):
    """The softmax at a temperature."""

    temperature: float = 0.5
    name = "tempered"

    def attention(self, logits, allowed):
        if allowed is not None:
            logits = jnp.where(allowed, logits, -jnp.inf)
        return jax.nn.softmax(logits / self.temperature, axis=2)


TEMPERED = Tempered(0.5)

# docs: end

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import attsvm  # noqa: E402
from attsvm.optimizers import gradient_descent  # noqa: E402
from attsvm.training import Run  # noqa: E402

HERE = "test_new_map:TEMPERED"


@pytest.fixture
def problem():
    return attsvm.datasets.random_problem(4, 5, 6, seed=0)


def test_training_with_it_is_that_of_its_formula(problem):
    run = attsvm.train(problem, map=HERE, optimizer=gradient_descent(0.1), steps=50)
    twice = attsvm.train(problem, optimizer=gradient_descent(0.4), steps=50)
    # the softmax of 2 x'Wz is that of the weights 2W, whose gradient is twice that of W
    np.testing.assert_allclose(2 * run.weights, twice.weights, rtol=1e-10)
    np.testing.assert_allclose(run.probability, twice.probability, rtol=1e-10)
    # other temperatures are other maps, which share no compiled program
    assert Tempered(0.5) == TEMPERED != Tempered(0.25)


def test_its_limit_is_not_made_up(problem):
    run = attsvm.train(problem, map=HERE, steps=10)
    with pytest.raises(
        attsvm.ProblemError, match=r"run: expected a map whose limit is known, .*, got test_new_map:TEMPERED"
    ):
        attsvm.predict_direction(problem, run)


def test_a_run_with_it_is_saved_and_resumed(problem, tmp_path):
    run = attsvm.train(problem, map=HERE, steps=10)
    run.save(tmp_path / "run.npz")
    further = attsvm.train(problem, init=Run.load(tmp_path / "run.npz"), steps=10)
    assert further.map == HERE
    np.testing.assert_allclose(further.weights, attsvm.train(problem, map=HERE, steps=20).weights, rtol=1e-12)


def test_the_command_line_trains_with_it(command, problem, tmp_path):
    problem.save(tmp_path / "problem.npz")
    code, out, error = command("train", tmp_path / "problem.npz", "--map", HERE, "--steps", 10, "--json")
    assert code == 0, error
    assert json.loads(out)["loss"] == pytest.approx(float(attsvm.train(problem, map=HERE, steps=10).loss))
