"""The soft margin: its optimum, its bounds, and what it becomes as C grows."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import attsvm
from attsvm.selection import selection_sets
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.variants.slack import _multiples
from harness.exact import Rows, check_soft, check_solution, soft_objective
from oracles.att_svm import explicit_rows


def rows_by_hand(problem: attsvm.Problem, selected: np.ndarray) -> np.ndarray:
    """(x_selected − x_t) z' of every other token, flattened, without our code."""
    queries = 1 if problem.queries is None else problem.query_dim
    return explicit_rows(problem.tokens, problem.queries, selected)[0].reshape(-1, problem.key_dim * queries)


def bounds_by_hand(solution, rows: np.ndarray, C: float) -> tuple[float, float]:
    """P(W) and D(λ) of what is returned."""
    W = solution.direction.ravel()
    primal = 0.5 * W @ W + C * np.maximum(1 - rows @ W, 0).sum()
    multipliers = solution.dual.ravel()[solution.dual.ravel() >= 0]
    return primal, multipliers.sum() - 0.5 * np.sum(np.square(multiplied(solution, rows)))


def multiplied(solution, rows: np.ndarray) -> np.ndarray:
    """A*(λ): rows stand in the order of the tokens, the selected one left out."""
    others = np.ones(solution.dual.shape, bool)
    np.put_along_axis(others, np.asarray(solution.selected)[..., None], False, axis=-1)
    return solution.dual[others] @ rows


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 5), st.integers(2, 6), st.integers(1, 5)),
    exponent=st.floats(-6, 8),
    prompt=st.booleans(),
    best=st.booleans(),
)
def test_bounds_meet_and_clarabel_agrees(seed, shape, exponent, prompt, best):
    C = 10.0**exponent
    problem = attsvm.datasets.random_problem(*shape, seed, prompt=prompt)
    assume(problem.copies.first is None)  # tokens of one number and of unit length
    selected = attsvm.optimal_tokens(problem) if best else np.random.default_rng(seed).integers(shape[1], size=shape[0])
    solution = attsvm.solve_svm(problem, selected, slack=C)
    assert solution.status == "optimal"
    assert solution.gap <= 1e-10
    assert (solution.dual >= 0).all()
    assert (solution.dual <= C).all()
    rows = rows_by_hand(problem, selected)
    primal, dual = bounds_by_hand(solution, rows, C)
    # a margin is good to 1e-15 or so, and what it lacks costs C times that; likewise λ up to C in the dual
    rounding = 1e-15 * C * rows.size * max(1.0, solution.value)
    assert solution.objective == pytest.approx(primal, rel=1e-12, abs=rounding)
    assert primal - dual <= 1e-10 * primal + 10 * rounding
    assert solution.value == pytest.approx(np.linalg.norm(solution.direction), rel=1e-14)
    assert np.array_equal(solution.support, solution.dual > 0)
    if C <= 1e3:  # beyond, Clarabel's own answer has fewer digits than this asks for
        w = cp.Variable(rows.shape[1])
        peer = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * cp.sum(cp.pos(1 - rows @ w))))
        peer.solve(solver=cp.CLARABEL)
        assert solution.objective == pytest.approx(peer.value, rel=1e-6, abs=1e-9)


def test_beyond_the_largest_multiplier_it_is_the_hard_margin():
    problem = attsvm.datasets.random_problem(seed=4)
    selected = attsvm.optimal_tokens(problem)
    hard = attsvm.solve_svm(problem, selected)
    largest = hard.value * hard.dual.max()  # W = A*(V λ), since λ is scaled to a dual norm of 1
    above, below = (attsvm.solve_svm(problem, selected, slack=factor * largest) for factor in (1.001, 0.999))
    assert np.allclose(above.direction, hard.direction, rtol=0, atol=1e-12 * hard.value)
    assert above.objective == pytest.approx(0.5 * hard.value**2, rel=1e-12)
    assert below.objective < above.objective * (1 - 1e-9)
    assert below.margin * below.value < 1


def test_one_competitor_has_a_closed_form():
    # minimise w²/2·r² ... : with one row of norm r, W = min(C, 1/r²)·row
    tokens = np.array([[[2.0, 1.0], [0.0, 0.0]]])
    for C in (0.01, 0.2, 5.0):
        solution = attsvm.solve_svm(attsvm.Problem(tokens), [0], slack=C)
        multiplier = min(C, 1 / 5)
        assert np.allclose(solution.direction, multiplier * tokens[0, 0], rtol=1e-14)
        assert solution.objective == pytest.approx(2.5 * multiplier**2 + C * (1 - 5 * multiplier), rel=1e-14)


def test_rows_of_zeros_cost_what_they_lack():
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    queries = np.array([[0.0], [1.0]])  # no weights give the first sequence a margin
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), [0, 0], slack=10.0)
    assert solution.status == "optimal"
    assert solution.dual.tolist() == [[0.0, 10.0], [0.0, pytest.approx(1.0)]]
    assert solution.objective == pytest.approx(0.5 + 10.0)


def test_nothing_to_drop_costs_nothing():
    solution = attsvm.solve_svm(attsvm.Problem(np.ones((2, 1, 3))), [0, 0], slack=1.0)
    assert (solution.status, solution.value, solution.objective, solution.gap) == ("optimal", 0.0, 0.0, 0.0)


def test_batch_and_masks():
    problem = attsvm.datasets.random_problem(4, 5, 2, seed=1, batch=(3, 2))
    selected = attsvm.optimal_tokens(problem)
    together = attsvm.solve_svm(problem, selected, slack=3.0)
    for index in np.ndindex(3, 2):
        alone = attsvm.solve_svm(problem[index], selected[index], slack=3.0)
        assert together[index].objective == pytest.approx(alone.objective, rel=1e-12)
        assert np.allclose(together[index].direction, alone.direction, rtol=0, atol=1e-9)
    one = problem[0, 0]
    mask = np.ones((4, 5), bool)
    mask[:, 4] = False
    kept = np.minimum(selected[0, 0], 3)
    masked = attsvm.solve_svm(attsvm.Problem(one.tokens, queries=one.queries, mask=mask), kept, slack=3.0)
    removed = attsvm.solve_svm(attsvm.Problem(one.tokens[:, :4], queries=one.queries), kept, slack=3.0)
    assert masked.objective == pytest.approx(removed.objective, rel=1e-13)
    assert (masked.dual[:, 4] == 0).all()


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_many_rows_are_solved_by_products(C):
    problem = attsvm.datasets.random_problem(120, 20, 6, seed=0)
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), slack=C)
    assert solution.stats["method"] == "projected-gradient"
    assert solution.status == "optimal"
    primal, dual = bounds_by_hand(solution, rows_by_hand(problem, attsvm.optimal_tokens(problem)), C)
    assert primal - dual <= 1e-7 * primal


@pytest.mark.parametrize("far", [1e5, 1e7, 1e9])
def test_features_far_from_0_have_their_hard_margin(far):
    """Polynomial features of two samples (scikit-learn#4648): doubles lose the margins, not the answer."""
    x = np.array([[1, far], [2, far]])
    features = np.c_[x[:, 0] ** 2, np.sqrt(2) * x[:, 0] * x[:, 1], x[:, 1] ** 2, np.ones(2)]
    problem = attsvm.Problem(features[:, None, :], labels=[-1, 1])
    hard, soft = attsvm.solve_head(problem, [0, 0]), attsvm.solve_head(problem, [0, 0], slack=1.0)
    assert hard.status == soft.status == "optimal"
    assert soft.objective == pytest.approx(0.5 * hard.value**2)
    pairs = attsvm.Problem(np.stack([[-1, 1] * features.T, 0 * features.T], axis=-1).transpose(1, 2, 0))
    rows = Rows.of_problem(pairs, [0, 0])
    for answer in (hard, soft):
        whole = replace(answer, dual=np.stack([0 * answer.dual, answer.dual], axis=-1))
        assert (check_soft(rows, 1.0, whole) if answer is soft else check_solution(rows, "frobenius", whole)) == ""


@pytest.mark.parametrize("length", [1e4, 1e12, 1e30])
@pytest.mark.parametrize("C", [1e-3, 1e3])
def test_long_tokens_are_never_worse_than_no_weights_or_the_hard_margin(length, C):
    for seed in range(4):
        generator = np.random.default_rng(seed)
        tokens = generator.standard_normal((3, 3, 1 + 2 * (seed % 2))) * length
        problem, selected = attsvm.Problem(tokens), generator.integers(0, 3, 3)
        rows = Rows.of_problem(problem, selected)
        soft, hard = (attsvm.solve_svm(problem, selected, slack=each) for each in (C, None))
        weights = [0 * soft.direction] + [hard.direction] * (hard.status == "optimal")
        best = min(soft_objective(rows, C, each) for each in weights)
        assert soft_objective(rows, C, soft.direction) <= best * (1 + 1e-8)
        assert check_soft(rows, C, soft) == ""
        assert soft.status == "optimal" or hard.status == "infeasible"


@given(seed=st.integers(0, 10**6), C=st.sampled_from([1e-4, 0.1, 1.0, 100.0]))
def test_the_best_multiple_of_weights_has_the_least_objective(seed, C):
    generator = np.random.default_rng(seed)
    problem = attsvm.Problem(generator.standard_normal((3, 4, 2)))
    selected, weights = generator.integers(0, 4, 3), generator.standard_normal((2, 1))
    constraints = Constraints.of(problem, selection_sets(problem, selected))
    margins = constraints.apply(weights)[constraints.inequality]

    def objective(s):
        return 0.5 * s**2 * np.sum(weights**2) + C * np.maximum(0, 1 - s * margins).sum()

    *_, best = _multiples(constraints, C, weights)
    least = minimize_scalar(objective, bounds=(0, 1e3), method="bounded", options={"xatol": 1e-9}).fun
    assert objective(best[0, 0] / weights[0, 0]) <= min(least, objective(0)) * (1 + 1e-9)
