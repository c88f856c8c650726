"""Proximal pivoting against CVXPY, on rows that depend on each other, and its part in `solve_svm`."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm.selection import selection_sets
from attsvm.svm.certificate import FROBENIUS, certify
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.frobenius import choice
from attsvm.svm.methods.frobenius.dual_search import DualSearch
from attsvm.svm.methods.frobenius.projected_gradient import BoundedProgram, Stopped
from attsvm.svm.methods.frobenius.proximal_pivoting import ProximalPivoting


def ordered_pairs(seed, num_tokens=9, dim=8, num_queries=5):
    """Pairs of tokens, for each query in an order of its own: those of a level are level, and every pair occurs twice.

    There are more pairs than the rows have dimensions.
    """
    rng = np.random.default_rng(seed)
    vectors, queries = rng.standard_normal((num_tokens, dim)), rng.standard_normal((num_queries, dim))
    pairs = []
    for k in range(num_queries):
        level = rng.permutation(num_tokens) // 2
        pairs += [(k, i, j) for i in range(num_tokens) for j in range(num_tokens) if i != j and level[i] >= level[j]]
        tied = [level[i] == level[j] for q, i, j in pairs if q == k]
        kept = tied if k == 0 else kept + tied
    query, first, second = np.array(2 * pairs).T
    problem = attsvm.Problem(np.stack([vectors[first], vectors[second]], axis=1), queries=queries[query])
    return problem, np.stack([np.ones(2 * len(kept), bool), 2 * kept], axis=1)


def solve_by_pivoting(constraints):
    """Weights and multipliers, or None and a ray, from a start at 0."""
    products = DualProducts(constraints)
    search = DualSearch(products, 2e-15, 500)
    point, ray = search.by_pivoting_or_ray(np.zeros(constraints.right.shape))
    if ray is not None:
        return None, products.of_original_rows(ray)
    return products.adjoint(point), products.of_original_rows(point)


@pytest.mark.parametrize("seed", range(3))
def test_it_solves_rows_that_depend_on_each_other(seed):
    problem, selected = ordered_pairs(seed)
    constraints = Constraints.of(problem, selection_sets(problem, selected), None)
    W = cp.Variable((8, 8))
    image = cp.sum(cp.multiply((problem.tokens[:, 0] - problem.tokens[:, 1]) @ W, problem.queries), axis=1)
    tied = selected[:, 1]
    oracle = cp.Problem(cp.Minimize(cp.norm(W, "fro")), [image[tied] == 0, image[~tied] >= 1])
    oracle.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)

    done = certify(constraints, FROBENIUS, *solve_by_pivoting(constraints), 1e-8)
    assert done.gap <= 1e-9
    assert done.violation <= 1e-9
    assert done.value == pytest.approx(oracle.value, rel=1e-8)


@pytest.mark.parametrize("dim", [3, 8])
def test_it_proves_that_there_are_no_weights(dim):
    """In three dimensions nine tokens have few orders; in eight, one pair is kept in the opposite order, too."""
    problem, selected = ordered_pairs(0, dim=dim)
    selected = selected.copy()
    selected[0] = selected[0, ::-1] if not selected[0, 1] else [True, False]
    constraints = Constraints.of(problem, selection_sets(problem, selected), None)
    weights, ray = solve_by_pivoting(constraints)
    assert weights is None
    strict = ~selected.all(axis=1)
    free = ray.sum(axis=(1, 2))
    signed = np.where(strict, np.maximum(free, 0), free) * np.where(selected[:, 0], 1, -1)
    rows = np.einsum("ai,aj->aij", problem.tokens[:, 0] - problem.tokens[:, 1], problem.queries)
    pull = np.linalg.norm(np.einsum("a,aij->ij", signed, rows))
    assert np.abs(signed[strict]) @ np.linalg.norm(rows, axis=(1, 2))[strict] > 1e12 * pull


def test_the_slower_schedule_solves_orders_that_can_hardly_be_kept():
    """Sixteen tokens in 11 dimensions: the value is 366. The oracle is least-distance programming."""
    generator, num_tokens = np.random.default_rng(4), 16
    level = np.stack([generator.permutation(num_tokens) // 2 for _ in range(num_tokens)])
    contexts = np.stack([generator.permutation(num_tokens)[:8] for _ in range(200)])
    own = np.take_along_axis(level[contexts[:, -1]], contexts, axis=1)
    place = np.argmax((own == own.max(axis=1, keepdims=True)) * generator.uniform(size=own.shape), axis=1)
    vocabulary = generator.standard_normal((num_tokens, 11))
    graph = attsvm.token_graph(contexts, contexts[np.arange(200), place])
    problem = graph.problem(vocabulary / np.linalg.norm(vocabulary, axis=1, keepdims=True))
    constraints = Constraints.of(problem, selection_sets(problem, graph.selected), None)
    done = certify(constraints, FROBENIUS, *solve_by_pivoting(constraints), 1e-8)
    oracle = attsvm.solve_svm(problem, graph.selected, method="least-distance")
    assert done.value == pytest.approx(oracle.value, rel=1e-8)
    assert done.value > 300


def test_a_large_problem_is_finished_by_pivoting(monkeypatch):
    monkeypatch.setattr(choice, "STORED_NUMBERS", 1_000)
    monkeypatch.setattr(choice, "FEW_WEIGHTS", 10)
    monkeypatch.setattr(choice, "FIRST_STEPS", 20)
    problem, selected = ordered_pairs(1)
    solution = attsvm.solve_svm(problem, selected)
    assert solution.stats["method"] == "proximal-pivoting"
    assert solution.stats["steps"] > 20  # with the products before it
    assert solution.status == "optimal"
    watched = attsvm.solve_svm(problem, selected, callback=lambda progress: None)
    assert (watched.direction == solution.direction).all()
    again = attsvm.solve_svm(problem, selected, method="least-distance")
    # the direction error is half the square of the distance, and that is at most the root of the gaps
    assert solution.value == pytest.approx(again.value, rel=1e-9)
    assert attsvm.direction_error(solution.direction, again.direction) < 1e-9


def test_where_pivoting_fails_the_rows_are_written_out_before_more_products(monkeypatch):
    monkeypatch.setattr(choice, "STORED_NUMBERS", 1_000)
    monkeypatch.setattr(choice, "FEW_WEIGHTS", 10)
    monkeypatch.setattr(choice, "FIRST_STEPS", 20)
    monkeypatch.setattr(DualSearch, "by_pivoting_or_ray", lambda search, start: (np.zeros(start.shape), None))
    problem, selected = ordered_pairs(1)
    products = []
    solution = attsvm.solve_svm(problem, selected, callback=lambda progress: products.append(progress.step))
    assert max(products) <= 20
    assert solution.stats["method"] == "least-distance"
    assert solution.status == "optimal"


def rows(seed, m, dimension):
    """Unit rows A and h > 0 such that some w has Aw ≥ h, and the least norm of such a w."""
    generator = np.random.default_rng(seed)
    A = generator.standard_normal((m, dimension))
    A *= np.sign(A @ generator.standard_normal(dimension))[:, None] / np.linalg.norm(A, axis=1, keepdims=True)
    h = generator.uniform(0.05, 1, m)
    w = cp.Variable(dimension)
    return A, h, cp.Problem(cp.Minimize(cp.norm(w)), [A @ w >= h]).solve(solver="CLARABEL")


class Bounds:
    """The best bounds on the least norm, and whether they are close."""

    def __init__(self, A, h, gap):
        self.A, self.h, self.gap, self.lower, self.upper = A, h, gap, 0.0, np.inf

    def meet(self, point, image):
        size, smallest = np.linalg.norm(self.A.T @ point.ravel()), (image.ravel() / self.h).min()
        if (point >= 0).all() and size > 0:
            self.lower = max(self.lower, float(self.h @ point.ravel()) / size)
        if smallest > 0:
            self.upper = min(self.upper, size / smallest)
        return self.lower >= (1 - self.gap) * self.upper


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.sampled_from([(4, 2), (30, 40), (60, 12)]), st.sampled_from([np.float32, np.float64]))
def test_bounds_meet_at_the_least_norm(seed, shape, dtype):
    gap = 1e-3 if dtype == np.float32 else 1e-7
    A, h, least = rows(seed, *shape)
    K = A @ A.T
    bounds = Bounds(A, h, gap)

    def block(some, others):
        return K[np.ix_(some, others)].astype(dtype)

    two = (2, len(h) // 2)
    all_rows = np.ones(two, bool)
    program = BoundedProgram(lambda x: (K @ x.ravel()).reshape(two), h.reshape(two), all_rows, all_rows, 200)
    pivoting = ProximalPivoting(program, block, 0.2 * gap * h.reshape(two))
    assert any(bounds.meet(*point) for point in pivoting.points(h.reshape(two), all_rows))
    assert bounds.lower <= least * (1 + 1e-6)
    assert bounds.upper >= least * (1 - 1e-6)
    assert bounds.lower >= (1 - gap) * bounds.upper


def test_it_makes_no_more_products_than_allowed():
    A, h, _ = rows(0, 30, 40)
    calls = []

    def times(point):
        calls.append(point)
        return A @ (A.T @ point)

    all_rows = np.ones(len(h), bool)
    program = BoundedProgram(times, h, all_rows, all_rows, 3)
    with pytest.raises(Stopped):
        list(ProximalPivoting(program, lambda a, b: A[a] @ A[b].T, 1e-9).points(h, all_rows))
    assert program.steps == len(calls) == 3


@pytest.mark.parametrize("start", [np.zeros(4), np.ones(4)])
def test_it_ends_without_an_answer_where_there_is_none(start):
    A = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])  # w and −w cannot both be positive
    all_rows = np.ones(4, bool)
    program = BoundedProgram(lambda x: A @ (A.T @ x), np.ones(4), all_rows, all_rows, 500)
    list(ProximalPivoting(program, lambda a, b: A[a] @ A[b].T, 0.1).points(start, start > 0))
    assert program.steps < 500
