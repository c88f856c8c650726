"""The matrix-free method for large Frobenius Att-SVMs: against the one on written rows, and what it holds in memory."""

import tracemalloc

import numpy as np
import pytest

import attsvm
from attsvm.selection import selection_sets
from attsvm.svm.constraints.constraints import Constraints
from harness.exact import Rows, check_solution
from oracles.att_svm import gap_by_hand


def random_case(seed):
    """Two hundred rows or so: masks, sets, relaxed queries, prompts and several queries a sequence, drawn at random."""
    generator = np.random.default_rng(seed)
    n, T, d = generator.integers(8, 24), generator.integers(5, 12), generator.integers(8, 20)
    Q = generator.choice([1, 3])
    tokens = generator.standard_normal((n, T, d))
    queries = generator.standard_normal((n, Q, generator.integers(5, 16)))
    mask = generator.random((n, Q, T)) < 0.8
    selected = generator.integers(0, T, (n, Q))
    np.put_along_axis(mask, selected[..., None], True, axis=-1)
    if seed % 3 == 1:
        kept = mask & (generator.random((n, Q, T)) < 0.2)
        np.put_along_axis(kept, selected[..., None], True, axis=-1)
        selected = kept
    relaxed = generator.random((n, Q)) < 0.3 if seed % 4 == 2 else None
    return attsvm.Problem(tokens, queries=queries, mask=mask), selected, relaxed


@pytest.mark.parametrize(
    ("seed", "status", "shared"),
    [
        (0, "optimal", False), (1, "optimal", True), (2, "optimal", False), (5, "infeasible", True),
        (10, "infeasible", False), (13, "infeasible", True), (18, "optimal", False), (18, "optimal", True),
        (19, "optimal", False), (19, "optimal", True), (21, "optimal", True), (22, "optimal", False),
    ],
)  # fmt: skip
def test_agrees_with_the_method_on_written_rows(seed, status, shared, monkeypatch):
    """With several queries a sequence, both where they share its tokens and where these are copied for each."""
    if shared:
        monkeypatch.setattr("attsvm.svm.constraints.constraints.STORED_NUMBERS", 0)
    problem, selected, relaxed = random_case(seed)
    large = attsvm.solve_svm(problem, selected, relaxed=relaxed, method="projected-gradient")
    small = attsvm.solve_svm(problem, selected, relaxed=relaxed, method="least-distance")
    assert large.stats["method"] == "projected-gradient"
    assert small.stats["method"] == "least-distance"
    assert large.status == small.status == status
    if small.status == "optimal":
        assert large.gap <= 1e-10
        assert large.value == pytest.approx(small.value, rel=1e-9)
        np.testing.assert_allclose(large.direction, small.direction, atol=1e-9 * small.value)
        np.testing.assert_array_equal(large.support, small.support)


@pytest.mark.parametrize(("n", "d"), [(60, 100), (90, 100), (200, 40)])
def test_infeasible_is_proved(n, d):
    problem = attsvm.datasets.random_problem(n, 10, d, seed=1, prompt=True)
    selected = np.random.default_rng(0).integers(0, 10, n)
    solution = attsvm.solve_svm(problem, selected, method="projected-gradient")
    assert solution.status == "infeasible"
    assert solution.bound > 1e12
    assert check_solution(Rows.of_problem(problem, selected), "frobenius", solution) == ""


def test_value_by_another_solver():
    """Bounds from both sides that share no code with the package."""
    problem = attsvm.datasets.random_problem(60, 15, 40, seed=5)
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected)
    assert solution.stats["method"] == "projected-gradient"
    assert "never formed" in solution.stats["why"]
    assert gap_by_hand(problem, selected, solution) <= 1e-13


def test_warm_start_saves_steps():
    problem = attsvm.datasets.random_problem(60, 15, 40, seed=6)
    selected = attsvm.optimal_tokens(problem)
    cold = attsvm.solve_svm(problem, selected)
    for warm_start, part in ((cold, 0.5), (cold.direction, 0.95)):
        warm = attsvm.solve_svm(problem, selected, warm_start=warm_start)
        assert warm.status == "optimal"
        assert warm.stats["steps"] < part * cold.stats["steps"]
        np.testing.assert_allclose(warm.direction, cold.direction, atol=1e-12 * cold.value)


def test_any_warm_start_leads_to_the_same_answer():
    problem = attsvm.datasets.random_problem(40, 12, 30, seed=7)
    selected = attsvm.optimal_tokens(problem)
    cold = attsvm.solve_svm(problem, selected)
    other = attsvm.solve_svm(problem, (selected + 1) % 12)
    generator = np.random.default_rng(0)
    for warm_start in (other, -cold.direction, np.zeros((30, 30)), generator.standard_normal((30, 30))):
        warm = attsvm.solve_svm(problem, selected, warm_start=warm_start)
        np.testing.assert_allclose(warm.direction, cold.direction, atol=1e-11 * cold.value)


def test_callback_hears_of_the_gap_and_may_stop():
    problem = attsvm.datasets.random_problem(60, 15, 40, seed=6)
    selected = attsvm.optimal_tokens(problem)
    heard = []
    attsvm.solve_svm(problem, selected, callback=lambda at: heard.append((at.step, at.gap)))
    steps, gaps = zip(*heard, strict=True)
    assert list(steps) == sorted(steps)
    assert gaps[-1] <= 1e-12
    solution = attsvm.solve_svm(problem, selected, callback=lambda at: at.gap < 1e-2)
    assert solution.status == "inaccurate"
    assert 1e-8 < solution.gap <= 1e-2
    assert attsvm.solve_svm(problem, selected, tol=1e-2, callback=lambda at: at.gap < 1e-2).status == "optimal"


@pytest.mark.parametrize("method", [None, "projected-gradient"])
def test_batches_of_large_problems(method, gap_without_rounding):
    problem = attsvm.datasets.random_problem(40, 12, 30, seed=8, batch=(2,))
    selected = attsvm.optimal_tokens(problem)
    together = attsvm.solve_svm(problem, selected, warm_start=np.zeros((2, 30, 30)), method=method)
    assert together.stats["method"] == (method or "least-distance")
    assert gap_without_rounding(problem, selected, together).max() <= 1e-13
    assert together.gap.max() <= 1e-12  # with rounding errors
    for k in range(2):
        alone = attsvm.solve_svm(problem[k], selected[k])
        np.testing.assert_allclose(together.direction[k], alone.direction, atol=1e-12 * alone.value)
    warm = attsvm.solve_svm(problem, selected, warm_start=together, method="projected-gradient")
    assert (warm.stats["steps"] < 60).all()


def test_rows_of_zeros_are_infeasible_by_themselves():
    problem = attsvm.datasets.random_problem(40, 12, 30, seed=9)
    queries = problem.queries.copy()
    queries[3] = 0
    solution = attsvm.solve_svm(attsvm.Problem(problem.tokens, queries=queries), np.zeros(40, int))
    assert solution.status == "infeasible"
    assert solution.bound == np.inf


def test_what_the_products_lose_the_rows_give():
    """Queries over twelve decades: the method is changed where the rows can be written out, and says so."""
    generator = np.random.default_rng(3)
    problem = attsvm.datasets.random_problem(60, 12, 20, seed=3)
    queries = problem.queries * 10.0 ** generator.uniform(-6, 6, (60, 1))
    solution = attsvm.solve_svm(attsvm.Problem(problem.tokens, queries=queries), generator.integers(0, 12, 60))
    assert solution.status == "optimal"
    assert solution.gap <= max(1e-10, 1e-15 * solution.value)
    assert solution.stats["method"] == "least-distance"
    assert "written out" in solution.stats["why"]


@pytest.mark.parametrize("sets", [False, True])
def test_memory_grows_with_the_data_and_not_with_the_rows(sets, gap_without_rounding):
    generator = np.random.default_rng(0)
    T, d, Q = 128, 96, 48
    tokens = generator.standard_normal((1, T, d))
    queries = tokens[:, -Q:]
    mask = np.arange(T) <= np.arange(T - Q, T)[:, None]
    selected = np.broadcast_to(mask, (1, Q, T)) & (np.arange(T) < (2 if sets else 1))
    problem = attsvm.Problem(tokens, queries=queries, mask=mask[None])
    tracemalloc.start()
    try:
        solution = attsvm.solve_svm(problem, selected)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert solution.status == "optimal"
    assert gap_without_rounding(problem, selected, solution) <= 1e-12
    assert solution.gap <= 1e-11  # with rounding errors
    num_rows = mask.sum() - Q
    assert peak <= 8 * (6 * T * d + 6 * d * d + 40 * Q * T)
    assert peak <= 0.01 * 8 * num_rows * d * d


def test_projection_on_equalities_is_the_same_by_products(monkeypatch):
    problem = attsvm.datasets.random_problem(12, 6, 8, seed=1)
    generator = np.random.default_rng(1)
    kept = generator.random((12, 6)) < 0.5
    kept[:, 0] = True
    constraints = Constraints.of(problem, selection_sets(problem, kept))
    weights = generator.standard_normal((8, 8))
    plain = constraints.project(weights)
    monkeypatch.setattr("attsvm.svm.constraints.constraints.STORED_NUMBERS", 0)
    np.testing.assert_allclose(constraints.project(weights), plain, atol=1e-13)
