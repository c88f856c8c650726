"""A prediction head defined outside the package: trained with, trained itself, saved, and named on the command line."""

import json

# docs: begin
from dataclasses import dataclass

import jax.numpy as jnp

from attsvm import ProblemError
from attsvm.heads import Head


@dataclass(frozen=True)
class Saturating(Head):
    """f = scale · tanh(v'o / scale), with the prediction head of the problem as v."""

    scale: float = 3.0

    name = "saturating"
    defined_everywhere = True

    def initial(self, problem):
        if problem.head is None or problem.num_classes is not None:
            raise ProblemError("head: saturating: expected a problem with a head (d,)")
        return {"v": problem.head}

    def outputs(self, parameters, pooled):
        f = jnp.sum(parameters["v"] * pooled, axis=2)  # (n, Q, B)
        return self.scale * jnp.tanh(f / self.scale)


# docs: end

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import attsvm  # noqa: E402
from attsvm.training import Run  # noqa: E402
from oracles.attention import mean_loss  # noqa: E402

HERE = "test_new_prediction_head:Saturating"


@pytest.fixture
def problem():
    return attsvm.datasets.random_problem(4, 5, 6, seed=0)


def loss_of(problem, W):
    """The mean logistic loss with this head, written out in NumPy."""
    return mean_loss(problem, W, output=lambda o: 3 * np.tanh(o @ problem.head / 3))


@pytest.mark.parametrize("head", [Saturating(), HERE])
def test_training_with_it_reports_its_loss(problem, head):
    run = attsvm.train(problem, head=head, steps=200)
    assert run.head == "saturating"
    assert run.loss == pytest.approx(loss_of(problem, run.weights), rel=1e-9)
    assert run.loss < loss_of(problem, np.zeros((6, 6)))


def test_it_is_trained_together_with_the_attention(problem):
    run = attsvm.train(problem, head=Saturating(), train_head=True, steps=50)
    assert run.history["v"].shape == (len(run.history["steps"]), 6)
    assert not np.allclose(run.parameters["v"], problem.head)


def test_a_batch_of_problems_is_trained_like_each_alone():
    batch = attsvm.datasets.random_problem(4, 5, 6, seed=0, batch=(3,))
    run = attsvm.train(batch, head=Saturating(), steps=30)
    alone = attsvm.train(batch[1], head=Saturating(), steps=30)
    np.testing.assert_allclose(run[1].weights, alone.weights, rtol=1e-9)


def test_a_run_with_it_is_saved_and_resumed(problem, tmp_path):
    attsvm.train(problem, head=Saturating(), steps=10).save(tmp_path / "run.npz")
    loaded = Run.load(tmp_path / "run.npz")
    assert loaded.head == "saturating"
    further = attsvm.train(problem, head=Saturating(), init=loaded, steps=10)
    whole = attsvm.train(problem, head=Saturating(), steps=20)
    np.testing.assert_allclose(further.weights, whole.weights, rtol=1e-12)


def test_the_direction_of_a_run_is_predicted(problem):
    prediction = attsvm.predict_direction(problem, attsvm.train(problem, head=Saturating(), steps=2000))
    assert prediction.solution.status in ("optimal", "infeasible")


def test_a_problem_that_it_does_not_fit_is_refused_by_name(problem):
    headless = attsvm.Problem(problem.tokens, labels=problem.labels, queries=problem.queries)
    with pytest.raises(attsvm.ProblemError, match="saturating"):
        attsvm.train(headless, head=Saturating(), steps=1)


def test_the_command_line_trains_with_it(command, problem, tmp_path):
    problem.save(tmp_path / "problem.npz")
    code, out, error = command("train", tmp_path / "problem.npz", "--head", HERE, "--steps", 10, "--json")
    assert code == 0, error
    result = json.loads(out)
    assert result["head"] == "saturating"
    assert result["loss"] == pytest.approx(float(attsvm.train(problem, head=Saturating(), steps=10).loss))
