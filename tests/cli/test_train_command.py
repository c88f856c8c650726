"""``attsvm train``, end to end."""

import json

import numpy as np
import optax
import pytest

import attsvm
from attsvm.training import Run


@pytest.fixture
def train(command, monkeypatch, tmp_path):
    """Run the command line in a folder with a problem file: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    attsvm.datasets.random_problem(4, 5, 6, seed=0).save("problem.npz")
    attsvm.datasets.random_problem(3, 4, 5, seed=0, prompt=True).save("prompt.npz")
    attsvm.datasets.random_problem(3, 4, 5, seed=0, batch=(6,)).save("many.npz")
    return lambda *arguments: command("train", *arguments)


def test_writes_the_run_that_python_makes(train):
    code, out, _ = train("problem.npz", "--steps", 300, "--option", "growth=0.01", "--out", "run.npz", "--json")
    problem = attsvm.Problem.load("problem.npz")
    optimizer = attsvm.optimizers.normalized_gradient_descent(lambda k: 0.1 * (1 + 0.01 * k))
    expected = attsvm.train(problem, steps=300, optimizer=optimizer)
    result = json.loads(out)
    assert code == 0
    assert result["schema"] == "attsvm.train/1"
    assert result["status"] == {"finished": 1}
    assert result["loss"] == expected.loss
    assert result["selected"] == expected.selected.tolist()
    assert result["data"]["sha256"] == problem.data_hash
    assert np.array_equal(Run.load("run.npz").weights, expected.weights)


def test_the_limit_is_predicted_as_in_python(train):
    arguments = ("many.npz", "--steps", 300, "--optimizer", "gradient_descent", "--predict")
    code, out, _ = train(*arguments, "--json")
    problem = attsvm.Problem.load("many.npz")
    found = attsvm.predict_direction(problem, attsvm.train(problem, steps=300, optimizer="gradient_descent"))
    prediction = json.loads(out)["prediction"]
    assert (code, prediction["norm"], prediction["standing"]) == (0, "frobenius", found.standing)
    assert [one["statement"] for one in prediction["hypotheses"]] == [one.statement for one in found.hypotheses]
    assert prediction["distance"] is found.distance is None
    assert "not normalized" in " ".join(train(*arguments)[1].split())


@pytest.mark.parametrize(
    ("arguments", "optimizer"),
    [
        (
            ["--optimizer", "mirror_descent", "--option", "p=1.75"],
            attsvm.optimizers.mirror_descent(learning_rate=0.1, p=1.75),
        ),
        (
            ["--optimizer", "steepest_descent", "--option", "norm=linf"],
            attsvm.optimizers.steepest_descent(learning_rate=0.1, norm="linf"),
        ),
        (["--optimizer", "gradient_descent", "--learning-rate", "0.5"], attsvm.optimizers.gradient_descent(0.5)),
        (["--optimizer", "muon"], attsvm.optimizers.normalized(optax.contrib.muon(0.01))),
        (["--optimizer", "attsvm.optimizers:polyak"], "polyak"),
        (["--optimizer", "polyak", "--option", "longest=0.5"], attsvm.optimizers.polyak(longest=0.5)),
        (
            ["--option", "scope=each", "--option", "relative=true"],
            attsvm.optimizers.normalized_gradient_descent(scope="each", relative=True),
        ),
    ],
)
def test_every_optimizer_by_its_name(train, arguments, optimizer):
    code, _, _ = train("problem.npz", "--steps", 50, "--out", "run.npz", *arguments)
    expected = attsvm.train(attsvm.Problem.load("problem.npz"), steps=50, optimizer=optimizer)
    assert code == (0 if expected.status.is_success else 3)
    assert np.array_equal(Run.load("run.npz").weights, expected.weights)


def test_resuming_goes_on(train):
    train("problem.npz", "--steps", 40, "--out", "first.npz")
    train("problem.npz", "--steps", 60, "--init", "first.npz", "--out", "second.npz")
    whole = attsvm.train(attsvm.Problem.load("problem.npz"), steps=100)
    assert np.array_equal(Run.load("second.npz").weights, whole.weights)


def test_factored_prompt_and_batches(train):
    code, out, _ = train("problem.npz", "--attention", "factored", "--option", "rank=2", "--steps", 30)
    assert code == 0
    assert "factored" in out
    # of the Att-SVM, not of the steps on K and Q
    for optimizer, norm in (("row_descent", "gamma2"), ("muon", None)):
        _, out, _ = train("problem.npz", "--attention", "factored", "--optimizer", optimizer, "--steps", 0, "--json")
        assert json.loads(out)["norm_of_optimizer"] == norm
    assert train("prompt.npz", "--steps", 30)[0] == 0
    code, out, _ = train("many.npz", "--steps", 30, "--json")
    assert json.loads(out)["status"] == {"finished": 6}
    assert json.loads(out)["selected"] is None


def test_mini_batches_and_tolerances(train):
    options = ("--batch-size", 2, "--seed", 3, "--option", "margin_tol=0.05")
    code, out, _ = train("problem.npz", "--steps", 10**6, *options, "--json", "--out", "run.npz")
    result, run = json.loads(out), Run.load("run.npz")
    expected = attsvm.train(attsvm.Problem.load("problem.npz"), steps=run.step, batch_size=2, seed=3)
    assert code == 0
    assert result["status"] == {"converged": 1}
    assert result["steps"] == run.step < 10**6
    assert np.array_equal(run.weights, expected.weights)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.npz"], "absent.npz: no such file"),
        (["problem.npz", "--out", "run.txt"], "run.txt: expected a name that ends with .npz"),
        (["problem.npz", "--option", "p=2"], "p: not an option of normalized_gradient_descent"),
        (["problem.npz", "--optimizer", "mirror_descent"], "p: expected a value for mirror_descent"),
        (["problem.npz", "--optimizer", "steepest_descent"], "norm: expected a value for steepest_descent"),
        (["problem.npz", "--optimizer", "mirror_descent", "--option", "p=1"], "p: expected 1 < p < inf, got 1"),
        (
            ["problem.npz", "--optimizer", "adam", "--option", "relative=true"],
            "relative: not an option of adam; its options are learning_rate",
        ),
        (["problem.npz", "--optimizer", "polyak", "--option", "growth=0.1"], "learning_rate: not an option of polyak"),
        (["problem.npz", "--learning-rate", "-1", "--option", "growth=0.1"], "--learning-rate: .*>= 0.*-1"),
        (
            ["problem.npz", "--learning-rate", "1", "--option", "learning_rate=2"],
            "--learning-rate, --option learning_rate: expected only one",
        ),
        (["problem.npz", "--option", "scope"], "--option: expected NAME=VALUE, got 'scope'"),
        (
            ["problem.npz", "--optimizer", "adamw"],
            "--optimizer: expected a name .*got 'adamw'; for optax's adamw, write optax:adamw. The names",
        ),
        (["problem.npz", "--option", "growth=-1"], "growth: expected a number >= 0, got -1"),
        (["problem.npz", "--init", "problem.npz"], "expected a file of kind 'run', got 'problem'"),
    ],
)
def test_a_bad_argument_is_one_line(train, refused, tmp_path, arguments, said):
    before = {path.name for path in tmp_path.iterdir()}
    refused(said, "train", *arguments)
    assert {path.name for path in tmp_path.iterdir()} == before
