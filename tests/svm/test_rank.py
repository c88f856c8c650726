"""The nuclear Att-SVM of a largest rank, against minimisations over factors that share no code with it."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import attsvm
from oracles.att_svm import explicit_rows


def small(seed, n=3, T=4, d=4):
    problem = attsvm.datasets.random_problem(n, T, d, seed)
    return problem, attsvm.optimal_tokens(problem)


def lowest_by_slsqp(rows, right, equality, shape, rank, starts=8):
    """The least ½(‖K‖² + ‖Q‖²) that SLSQP finds from random starts."""
    rows, (d_k, d_q) = rows.reshape(-1, *shape), shape
    generator = np.random.default_rng(0)

    def split(x):
        return x[: d_k * rank].reshape(d_k, rank), x[d_k * rank :].reshape(d_q, rank)

    def excess(x):
        K, Q = split(x)
        return np.einsum("aij,ij->a", rows, K @ Q.T) - right

    def slope(x):
        K, Q = split(x)
        return np.concatenate([(rows @ Q).reshape(len(rows), -1), (rows.mT @ K).reshape(len(rows), -1)], axis=1)

    lines = [("ineq", ~equality)] + [("eq", equality)] * bool(equality.any())
    constraints = [
        {"type": kind, "fun": lambda x, w=which: excess(x)[w], "jac": lambda x, w=which: slope(x)[w]}
        for kind, which in lines
    ]
    found = []
    for _ in range(starts):
        start = 2 * generator.standard_normal((d_k + d_q) * rank)
        options = {"maxiter": 500, "ftol": 1e-12}
        end = minimize(lambda x: 0.5 * x @ x, start, jac=lambda x: x, constraints=constraints, options=options)
        short = excess(end.x)
        if np.where(equality, -np.abs(short), short).min() > -1e-7:
            found.append(end.fun)
    return min(found)


@pytest.mark.parametrize("kind", ["plain", "relaxed", "sets", "queries", "keys"])
@pytest.mark.parametrize("rank", [1, 2])
def test_no_start_of_slsqp_ends_below_it(kind, rank):
    generator = np.random.default_rng(5)
    problem, selected = small(4 if kind == "sets" else 0, 3, 3 if kind == "sets" else 4, 5)
    tokens, queries, mask, relaxed, keys = problem.tokens, problem.queries, None, None, None
    if kind == "relaxed":
        relaxed = np.array([False, True, False])
    if kind == "sets":
        selected = (np.arange(3) == selected[:, None]) | (np.arange(3) == (selected[:, None] + 1) % 3)
    if kind == "queries":
        queries, mask = tokens[:2, 1:], np.broadcast_to(np.tri(4, dtype=bool)[1:], (2, 3, 4))
        tokens, selected = tokens[:2], np.array([[0, 1, 2], [1, 0, 3]])
    if kind == "keys":
        keys = generator.standard_normal((3, 4, 3))
    problem = attsvm.Problem(tokens, queries=queries, keys=keys, mask=mask)
    solution = attsvm.solve_svm(problem, selected, "nuclear", rank=rank, relaxed=relaxed)
    nuclear = attsvm.solve_svm(problem, selected, "nuclear", relaxed=relaxed)

    rows, right, equality, _ = explicit_rows(tokens if keys is None else keys, queries, selected, mask, relaxed)
    lowest = lowest_by_slsqp(rows, right, equality, solution.direction.shape, rank)
    singular = np.linalg.svd(solution.direction, compute_uv=False)
    assert singular.sum() <= lowest * (1 + 1e-6)  # SLSQP stops at about this distance
    assert (singular[rank:] <= 1e-9 * singular[0]).all()  # below which singular values are no part of the rank
    margins = rows @ solution.direction.ravel()
    assert np.where(equality, -np.abs(margins), margins - right).min() >= -1e-9
    # the nuclear optimum bounds it from below, and the gap says by how much
    assert solution.value == pytest.approx(singular.sum(), rel=1e-12)
    assert solution.gap == pytest.approx(1 - nuclear.value / solution.value, abs=1e-8)
    assert solution.status == ("optimal" if solution.gap <= 1e-8 else "inaccurate")


@pytest.mark.parametrize("seed", range(2))
def test_rank_one_is_the_best_pair_of_vectors(seed):
    """W = a b': least ‖a‖‖b‖ by turns with CVXPY, from all signs of b'z_i, and from the answer, which stays."""
    problem, selected = small(seed, 3, 3, 4)
    rows, _, _, _ = explicit_rows(problem.tokens, problem.queries, selected)
    rows = rows.reshape(-1, 4, 4)
    vector, matrix = cp.Variable(4), cp.Parameter((len(rows), 4))
    program = cp.Problem(cp.Minimize(cp.sum_squares(vector)), [matrix @ vector >= 1])

    def by_turns(b, turns=10):
        for _ in range(turns):
            matrix.value = rows @ b
            program.solve(solver=cp.CLARABEL)
            if program.status != "optimal":
                return np.inf
            a = vector.value
            matrix.value = np.einsum("aij,i->aj", rows, a)
            program.solve(solver=cp.CLARABEL)
            b = vector.value
        return np.linalg.norm(a) * np.linalg.norm(b)

    starts = [[1.0, *signs] for signs in itertools.product([-1.0, 1.0], repeat=2)]  # −b gives the same pairs
    lowest = min(by_turns(np.linalg.pinv(problem.queries) @ start) for start in starts)
    solution = attsvm.solve_svm(problem, selected, "nuclear", rank=1)
    assert solution.value <= lowest * (1 + 1e-8)
    own = by_turns(np.linalg.svd(solution.direction)[2][0], turns=2)
    assert solution.value == pytest.approx(own, rel=1e-7)  # Clarabel's accuracy


def test_from_the_rank_of_the_nuclear_optimum_on_it_is_the_answer():
    """At that rank factors alone find it too, so that their local minima are those of the norm."""
    found = 0
    for seed in range(3):
        problem, selected = small(seed, 6, 8, 10)
        nuclear = attsvm.solve_svm(problem, selected, "nuclear")
        rank = np.linalg.matrix_rank(nuclear.direction, 1e-9 * nuclear.value)
        values = [attsvm.solve_svm(problem, selected, "nuclear", rank=m) for m in (rank - 1, rank, rank + 1)]
        assert [one.status for one in values] == ["inaccurate", "optimal", "optimal"]
        np.testing.assert_allclose([one.value for one in values[1:]], nuclear.value, rtol=1e-8)
        assert values[0].value > nuclear.value * (1 + 1e-6)
        assert np.linalg.matrix_rank(values[0].direction, 1e-9 * nuclear.value) <= rank - 1
        found += rank
    assert found >= 9


def test_a_batch_is_solved_like_its_problems():
    problem = attsvm.datasets.random_problem(4, 5, 6, 3, batch=(3,))
    tokens, queries = problem.tokens.copy(), problem.queries.copy()
    selected = attsvm.optimal_tokens(problem)
    tokens[1, 1], queries[1, 1], selected[1, 1] = tokens[1, 0], queries[1, 0], (selected[1, 0] + 1) % 5
    problem = attsvm.Problem(tokens, queries=queries)
    solution = attsvm.solve_svm(problem, selected, "nuclear", rank=1)
    for i in range(3):
        one = attsvm.solve_svm(problem[i], selected[i], "nuclear", rank=1)
        assert solution[i].status == one.status
        np.testing.assert_allclose(solution[i].direction, one.direction, rtol=1e-6, atol=1e-6)
    assert solution[1].status == "infeasible"
    assert solution.certificate is not None
    assert solution.certificate.bound[1] > 1e12


def test_where_only_the_rank_excludes_a_selection_the_bound_is_not_reached():
    """a₁b₁, a₂b₁, a₁b₂ ≥ 1 and a₂b₂ ≤ −1: possible for matrices, but not for products of two numbers."""
    tokens = np.array([[[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]], [[0.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]])
    problem = attsvm.Problem(tokens, queries=np.eye(2))
    assert attsvm.solve_svm(problem, [0, 0], "nuclear").status == "optimal"
    solution = attsvm.solve_svm(problem, [0, 0], "nuclear", rank=1)
    assert solution.status == "inaccurate"
    assert solution.gap == np.inf
    assert solution.margin <= 0
    assert np.isfinite(solution.direction).all()


def test_callbacks_see_the_gap_and_a_warm_start_is_one_more_start():
    problem, selected = small(1, 6, 8, 10)
    seen = []
    solution = attsvm.solve_svm(problem, selected, "nuclear", rank=2, callback=lambda at: seen.append(at.gap))
    assert solution.stats["steps"] == 25
    assert seen[-1] == pytest.approx(solution.gap, rel=1e-6)
    again = attsvm.solve_svm(problem, selected, "nuclear", rank=2, warm_start=solution)
    assert again.stats["steps"] == 26
    assert again.value == pytest.approx(solution.value, rel=1e-9)
