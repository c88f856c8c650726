"""``attsvm problem``: an example is written and described; the description is that of the arrays."""

import json

import numpy as np
import pytest

import attsvm


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command("problem", *arguments)


def test_an_example_is_written_once_and_described(run):
    status, out, _ = run("my_problem.npz", "--example", "--json")
    assert status == 0
    problem = attsvm.Problem.load("my_problem.npz")
    expected = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    np.testing.assert_array_equal(problem.tokens, expected.tokens)
    found = json.loads(out)
    assert found["shapes"] == {"tokens": [6, 8, 10], "labels": [6], "queries": [6, 10], "head": [10]}
    assert found["data"]["sha256"] == problem.data_hash
    value = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).value
    assert found["optimal_tokens"] == {"status": {"optimal": 1}, "value": value}
    assert sum(found["labels"].values()) == 6
    status, _, error = run("my_problem.npz", "--example", "--seed", "1")
    assert status == 2
    assert error.startswith("attsvm: my_problem.npz: ")
    np.testing.assert_array_equal(attsvm.Problem.load("my_problem.npz").tokens, expected.tokens)


def test_masks_batches_prompts_and_missing_labels_are_described(run):
    tokens = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    attsvm.Problem(tokens, mask=np.broadcast_to(np.arange(4) < 3, (3, 4))).save("batch.npz")
    status, out, _ = run("batch.npz")
    assert status == 0
    for words in ("batch of problems", "3 × 4 × 5", "a prompt p", "75.0%"):
        assert words in out
    assert "Att-SVM" not in out
    queries, query_mask = np.ones((3, 2, 5)), np.array([[True, True], [True, False], [True, False]])
    padded = attsvm.Problem(tokens[0], labels=np.ones((3, 2)), queries=queries, query_mask=query_mask)
    padded.save("padded.npz")
    assert json.loads(run("padded.npz", "--json")[1])["labels"] == {"+1": 4}
    assert run("missing.npz")[0] == 2
