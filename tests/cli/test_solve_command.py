"""``attsvm solve``, end to end."""

import json

import numpy as np
import pytest

import attsvm


@pytest.fixture
def solve(command):
    return lambda *arguments: command("solve", *arguments)


@pytest.fixture
def problem_file(tmp_path):
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    problem.save(tmp_path / "problem.npz")
    return tmp_path / "problem.npz", problem


@pytest.mark.parametrize("norm", ["frobenius", "l1.75", "linf", "nuclear", "spectral"])
def test_prints_and_writes_what_python_solves(solve, problem_file, tmp_path, norm):
    path, problem = problem_file
    np.save(tmp_path / "kept.npy", [3, 1, 0, 2])
    code, out, _ = solve(
        path, "--selected", tmp_path / "kept.npy", "--norm", norm, "--json", "--out", tmp_path / "s.npz"
    )
    expected = attsvm.solve_svm(problem, [3, 1, 0, 2], norm)
    result = json.loads(out)
    assert code == 0
    assert result["schema"] == "attsvm.solve/1"
    assert result["value"] == expected.value
    assert result["direction"] == expected.direction.tolist()
    assert result["data"]["sha256"] == problem.data_hash
    written = attsvm.Solution.load(tmp_path / "s.npz")
    assert np.array_equal(written.direction, expected.direction)


def test_the_table_names_value_margin_support_gap_and_status(solve, problem_file):
    path, problem = problem_file
    code, out, _ = solve(path, "--selected", "optimal")
    expected = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    assert code == 0
    for shown in ("optimal", f"{expected.value:.10g}", f"{expected.margin:.10g}", f"{int(expected.support.sum())}"):
        assert shown in out


def test_infeasible_is_a_result_with_its_bound(solve, tmp_path):
    np.savez(tmp_path / "p.npz", tokens=[[[0.0], [1.0], [-1.0]]])
    np.savez(tmp_path / "kept.npz", selected=[0])
    code, out, _ = solve(tmp_path / "p.npz", "--selected", tmp_path / "kept.npz")
    assert code == 0
    assert "infeasible" in out
    assert "Farkas" in out
    _, out, _ = solve(tmp_path / "p.npz", "--selected", tmp_path / "kept.npz", "--json")
    result = json.loads(out)
    assert result["value"] is None
    assert result["direction"] == [None]


def test_slack_relaxed_sets_and_batches(solve, problem_file, tmp_path):
    path, problem = problem_file
    np.save(tmp_path / "sets.npy", np.eye(4, 5, dtype=bool) | np.eye(4, 5, 1, dtype=bool))
    np.save(tmp_path / "relaxed.npy", [True, False, False, True])
    _, out, _ = solve(path, "--selected", "optimal", "--slack", 0.1, "--json")
    expected = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), slack=0.1)
    assert json.loads(out)["objective"] == expected.objective
    _, out, _ = solve(path, "--selected", tmp_path / "sets.npy", "--relaxed", tmp_path / "relaxed.npy", "--json")
    sets, relaxed = np.load(tmp_path / "sets.npy"), np.load(tmp_path / "relaxed.npy")
    assert json.loads(out)["value"] == attsvm.solve_svm(problem, sets, relaxed=relaxed).value
    attsvm.datasets.random_problem(3, 4, 5, seed=1, batch=(6,)).save(tmp_path / "many.npz")
    code, out, _ = solve(tmp_path / "many.npz", "--selected", "optimal")
    assert code == 0
    assert out.count("optimal") == 6


NORMS = """
from attsvm.norms import Lp, Norm

ours = Lp(3.0)


class ValueOnly(Norm):
    name = "value only"

    def value(self, x, axes=2):
        return Lp(2.0).value(x, axes)
"""


def test_a_norm_is_found_by_its_import_path(solve, problem_file, tmp_path, monkeypatch):
    path, problem = problem_file
    monkeypatch.chdir(tmp_path)
    (tmp_path / "norms_of_test_solve.py").write_text(NORMS)
    code, out, _ = solve(path, "--selected", "optimal", "--norm", "norms_of_test_solve:ours", "--json")
    assert code == 0
    assert json.loads(out)["value"] == attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=3).value
    code, _, err = solve(path, "--selected", "optimal", "--norm", "norms_of_test_solve:ValueOnly")
    assert code == 2
    assert err.count("\n") == 1
    assert "value only" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.npz", "--selected", "optimal"], "absent.npz: no such file"),
        (["problem.npz"], "--selected: expected `optimal`, or a file .npy or .npz"),
        (["problem.npz", "--selected", "first"], "--selected: expected `optimal`, or a file .npy or .npz, got 'first'"),
        (["problem.npz", "--selected", "optimal", "--tol", "0"], "--tol: expected a positive number, got 0"),
        (["problem.npz", "--selected", "absent.npy"], "absent.npy: no such file"),
        (["problem.npz", "--selected", "text.npy"], "text.npy: not a readable .npy file"),
        (["problem.npz", "--selected", "problem.npz"], "expected an array 'selected'"),
        (["problem.npz", "--selected", "wrong.npy"], r"selected: expected shape"),
        (["problem.npz", "--selected", "optimal", "--out", "problem.npz"], "exists already; use --force"),
        (["problem.npz", "--selected", "optimal", "--out", "no/folder.npz"], "cannot be written"),
    ],
)
def test_a_bad_argument_is_one_line(refused, problem_file, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.npy").write_text("0 1 2 3")
    np.save(tmp_path / "wrong.npy", [0, 1, 2])
    before = {path.name for path in tmp_path.iterdir()}
    refused(said, "solve", *arguments)
    assert {path.name for path in tmp_path.iterdir()} == before
