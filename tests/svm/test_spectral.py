"""The spectral norm: reference optima, and an answer where the optimum is not unique."""

import numpy as np
import pytest

import attsvm
from oracles.att_svm import at, bounds, explicit_rows

SEEDS = range(10)


def random_arrays(seed, n=6, T=8, d=10):
    problem = attsvm.datasets.random_problem(n, T, d, seed)
    return problem, attsvm.optimal_tokens(problem)


@pytest.mark.parametrize("seed", SEEDS)
def test_reference_optima(reference, seed):
    data = reference("att_svm_optima.npz")
    tokens, queries, selected = (data[f"s{seed}_{name}"] for name in ("X", "Z", "selected"))
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected, norm="spectral")
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(float(data[f"s{seed}_spectral"]), rel=1e-6)
    rows, right, equality, places = explicit_rows(tokens, queries, selected)
    lower, upper, _ = bounds(rows, right, equality, solution.direction, at(places, solution.dual, False), "spectral")
    assert (upper - lower) / upper <= 1e-8
    assert solution.violation <= 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_no_component_off_the_queries(seed):
    """n = 6 < d = 10: the optimum is not unique, and this one lives where the data do."""
    problem, selected = random_arrays(seed)
    solution = attsvm.solve_svm(problem, selected, norm="spectral")
    basis, _ = np.linalg.qr(problem.queries.T)
    off = solution.direction - solution.direction @ basis @ basis.T
    assert np.linalg.norm(off) <= 1e-13 * np.linalg.norm(solution.direction)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_margin_ratio_of_others_is_at_most_one(seed):
    """margin(W) · value / N(W) in (0, 1] compares where directions cannot."""
    problem, selected = random_arrays(seed)
    solution = attsvm.solve_svm(problem, selected, norm="spectral")
    assert attsvm.margin_ratio(problem, solution.direction, selected, norm="spectral") == pytest.approx(1, abs=1e-8)
    for norm in ("frobenius", "nuclear", "l1", "linf"):
        other = attsvm.solve_svm(problem, selected, norm=norm).direction
        ratio = solution.value * smallest_margin(problem, selected, other) / np.linalg.norm(other, 2)
        assert 0 < ratio <= 1 + 1e-8


def smallest_margin(problem, selected, weights):
    rows, _, _, _ = explicit_rows(problem.tokens, problem.queries, selected)
    return (rows @ weights.ravel()).min()


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_nearly_infeasible_selections_stay_optimal(seed):
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((4, 4, 5)), generator.standard_normal((4, 5))
    queries[1] = queries[0]
    tokens[1, 1] = tokens[1, 0] + tokens[0, 0] - tokens[0, 1] + 1e-5 * generator.standard_normal(5)
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), np.zeros(4, int), norm="spectral")
    assert solution.status == "optimal"
    assert solution.value > 5e4
