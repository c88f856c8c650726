"""What a Solution carries through files, indices and print."""

import numpy as np
import pytest

import attsvm
from oracles.results import assert_survives_a_file

PROBLEM = attsvm.datasets.random_problem(3, 4, 4, seed=0)


@pytest.fixture(scope="module")
def solution():
    problem = attsvm.datasets.random_problem(num_sequences=3, num_tokens=4, dim=4, seed=0, batch=(6,), prompt=True)
    selected = np.random.default_rng(0).integers(0, 4, (6, 3))
    return attsvm.solve_svm(problem, selected, relaxed=np.array([True, False, False]))


def test_files_hold_everything(solution, tmp_path):
    assert_survives_a_file(solution, tmp_path)
    assert_survives_a_file(solution[2], tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        *({"norm": norm} for norm in ("linf", "l1.3", "nuclear", "spectral")),
        {"norm": "nuclear", "rank": 1},
        {"norm": "l3", "required": np.linspace(-1, 1, 12).reshape(3, 4), "center": np.eye(4)},
        {"slack": 0.5},
    ],
)
def test_files_hold_every_option(options, tmp_path):
    solution = attsvm.solve_svm(PROBLEM, attsvm.optimal_tokens(PROBLEM), **options)
    for name in options.keys() - {"norm"}:
        np.testing.assert_array_equal(getattr(solution, name), options[name])
    loaded = assert_survives_a_file(solution, tmp_path)
    assert (loaded.norm, loaded.objective) == (solution.norm, solution.objective)
    assert ("C = 0.5" in repr(loaded)) == ("slack" in options)


def test_indexing_follows_the_batch(solution):
    assert solution[1:3].value.shape == (2,)
    np.testing.assert_array_equal(solution[1:3][1].direction, solution.direction[2])
    assert isinstance(solution[0].status, str)
    assert isinstance(solution[0].gap, float)
    assert solution[0].selected.shape == solution[0].relaxed.shape == (3,)


def test_certificate_is_there_exactly_where_infeasible(solution):
    infeasible = solution.status == "infeasible"
    assert 0 < infeasible.sum() < 6
    certificate = solution.certificate
    assert ((certificate.bound > 1e12) == infeasible).all()
    assert (certificate.dual.any(axis=(1, 2)) == infeasible).all()
    assert solution[int(np.flatnonzero(~infeasible)[0])].certificate is None


def test_nan_leaves_only_where_documented(solution):
    infeasible = solution.status == "infeasible"
    for name in ("value", "margin", "gap"):
        assert (np.isnan(getattr(solution, name)) == infeasible).all()
    assert (np.isnan(solution.direction).all(axis=-1) == infeasible).all()
    for name in ("dual", "violation", "raw_violation", "bound"):
        assert not np.isnan(getattr(solution, name)).any()


def test_printed_it_says_what_was_found(solution):
    assert "infeasible" in repr(solution)
    assert "6 problems" in repr(solution)
    feasible = solution[int(np.flatnonzero(solution.status == "optimal")[0])]
    assert "optimal" in repr(feasible)
    assert "gap" in repr(feasible)


def test_a_solution_of_a_prompt_says_which_norm_of_vectors_its_norm_is():
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=0, prompt=True, batch=(2,))
    nuclear, plain = (attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm) for norm in ("nuclear", "l2"))
    np.testing.assert_allclose(nuclear.direction, plain.direction, rtol=1e-10)
    for solution in (nuclear, nuclear[0]):
        assert "nuclear, for a prompt the same as frobenius" in repr(solution)
    assert "for a prompt" not in repr(plain)
