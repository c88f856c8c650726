"""The awkward cases, in every norm: closed forms where there are any, and the right status always."""

import numpy as np
import pytest

import attsvm
from oracles.norms import norm_and_dual

NORMS = ["frobenius", "l1", "l1.5", "l3", "linf", "nuclear", "spectral"]
TOLERANCE = {"frobenius": 1e-13}  # the others stop at a gap of 1e-8


@pytest.fixture(params=NORMS)
def norm(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["W", "prompt"])
def prompt(request):
    return request.param


def random(n: int, T: int, d: int, prompt: bool, seed: int = 0) -> attsvm.Problem:
    problem = attsvm.datasets.random_problem(n, T, d, seed, prompt=prompt)
    return attsvm.Problem(problem.tokens, queries=problem.queries)


def row(problem: attsvm.Problem, i: int, kept: int, t: int) -> np.ndarray:
    difference = problem.tokens[i, kept] - problem.tokens[i, t]
    return difference if problem.queries is None else np.outer(difference, problem.queries[i])


def test_one_competitor_is_one_row(norm, prompt):
    # min N(W) with ⟨R, W⟩ ≥ 1 is 1/N*(R)
    problem = random(1, 2, 6, prompt)
    solution = attsvm.solve_svm(problem, [0], norm)
    # of a prompt the spectral and the nuclear norm are the Euclidean one
    expected = 1 / norm_and_dual(norm)[1](np.atleast_2d(row(problem, 0, 0, 1)))
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(expected, rel=TOLERANCE.get(norm, 2e-8))
    assert solution.support.sum() == 1


def test_a_query_of_zeros_cannot_keep_a_token(norm):
    problem = random(3, 4, 5, prompt=False)
    queries = problem.queries.copy()
    queries[1] = 0
    solution = attsvm.solve_svm(attsvm.Problem(problem.tokens, queries=queries), [0, 0, 0], norm)
    assert (solution.status, solution.bound) == ("infeasible", np.inf)
    assert np.isnan([solution.value, solution.gap, solution.margin]).all()
    assert np.isnan(solution.direction).all()
    assert not solution.support.any()
    certificate = solution.certificate
    assert certificate.dual[1].sum() == pytest.approx(1.0)
    assert (certificate.dual >= 0).all()
    assert not certificate.dual[[0, 2]].any()


@pytest.mark.parametrize("of", [0, 2], ids=["kept", "dropped"])
def test_a_duplicate_does_not_matter(norm, of):
    problem = random(2, 4, 5, prompt=False)
    tokens = problem.tokens.copy()
    tokens[0, 3] = tokens[0, of]
    mask = np.ones((2, 4), bool)
    mask[0, 3] = False
    masked = attsvm.solve_svm(attsvm.Problem(tokens, queries=problem.queries, mask=mask), [0, 0], norm)
    doubled = attsvm.solve_svm(attsvm.Problem(tokens, queries=problem.queries), [0, 0], norm)
    assert masked.status == doubled.status == "optimal"
    assert masked.value == pytest.approx(doubled.value, rel=TOLERANCE.get(norm, 3e-8))
    assert not doubled.dual[0, 3]
    assert doubled.support[0, 3] == doubled.support[0, of]


def test_a_sequence_of_equal_tokens_asks_for_nothing(norm):
    problem = random(3, 4, 5, prompt=False)
    tokens = problem.tokens.copy()
    tokens[1] = 0
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=problem.queries), [0, 2, 0], norm)
    others = attsvm.solve_svm(attsvm.Problem(tokens[[0, 2]], queries=problem.queries[[0, 2]]), [0, 0], norm)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(others.value, rel=TOLERANCE.get(norm, 3e-8))


def test_queries_with_a_single_token_ask_for_nothing(norm, prompt):
    problem = random(3, 1, 4, prompt)
    solution = attsvm.solve_svm(problem, [0, 0, 0], norm)
    assert (solution.status, solution.value, solution.gap) == ("optimal", 0.0, 0.0)
    assert np.isnan(solution.margin)
    assert "no margin" in repr(solution)
    assert not solution.direction.any()
    assert not solution.support.any()


def test_an_all_relaxed_problem_needs_no_weights(norm, prompt):
    problem = random(3, 4, 5, prompt)
    solution = attsvm.solve_svm(problem, [0, 1, 2], norm, relaxed=[True] * 3)
    assert (solution.status, solution.value, solution.gap) == ("optimal", 0.0, 0.0)


@pytest.mark.parametrize("feasible", [True, False])
def test_a_single_dimension(norm, prompt, feasible):
    tokens = np.array([[[3.0], [1.0], [0.5]], [[2.0], [1.5], [2.5 if not feasible else -1.0]]])
    problem = attsvm.Problem(tokens, queries=None if prompt else np.ones((2, 1)))
    solution = attsvm.solve_svm(problem, [0, 0], norm)
    if feasible:
        assert solution.status == "optimal"
        assert solution.value == pytest.approx(2.0, rel=2e-8)  # the least difference is 1/2
    else:
        assert solution.status == "infeasible"


@pytest.mark.parametrize("exponent", [-6, 6])
def test_scaled_tokens_scale_the_value_and_nothing_else(norm, prompt, exponent):
    problem = random(4, 5, 8, prompt)
    scaled = attsvm.Problem(problem.tokens * 10.0**exponent, queries=problem.queries)
    one, other = (attsvm.solve_svm(each, [0, 1, 2, 3], norm) for each in (problem, scaled))
    assert one.status == other.status == "optimal"
    assert other.value * 10.0**exponent == pytest.approx(one.value, rel=TOLERANCE.get(norm, 3e-8))
    if norm not in ("l1", "linf", "spectral"):  # whose optimum need not be unique
        assert attsvm.direction_error(one.direction, other.direction) < 1e-7


def test_nearly_infeasible(norm, prompt):
    # two rows at an angle of almost π: the value is about a million
    angle = 1e-6
    tokens = np.array([[[1.0, angle], [0.0, 0.0]], [[-1.0, angle], [0.0, 0.0]]])
    queries = None if prompt else np.array([[1.0, 0.0], [1.0, 0.0]])
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), [0, 0], norm)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(1 / angle, rel=1e-6)
    assert solution.gap <= 1e-8


def test_float32_input_is_solved_in_float64(norm, prompt):
    problem = random(3, 4, 6, prompt)
    single = attsvm.Problem(
        problem.tokens.astype(np.float32),
        queries=None if prompt else problem.queries.astype(np.float32),
    )
    solution = attsvm.solve_svm(single, [0, 1, 2], norm)
    assert solution.direction.dtype == np.float64
    assert solution.gap <= 1e-8
    assert solution.value == pytest.approx(attsvm.solve_svm(problem, [0, 1, 2], norm).value, rel=1e-4)


def test_rows_of_zeros_in_the_tokens_are_tokens(norm, prompt):
    problem = random(3, 4, 12, prompt)
    tokens = problem.tokens.copy()
    tokens[:, 2] = 0
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=problem.queries), [0, 1, 2], norm)
    assert solution.status == "optimal"
    margins = [
        np.sum(row(attsvm.Problem(tokens, queries=problem.queries), 2, 2, t) * solution.direction) for t in (0, 1, 3)
    ]
    assert min(margins) >= 1 - 1e-9


def test_equal_logits_that_no_weights_give(norm):
    # a set of two tokens must be equal, and yet a third between them must lie below both
    tokens = np.array([[[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]]])
    problem = attsvm.Problem(tokens, queries=np.ones((1, 1)))
    solution = attsvm.solve_svm(problem, [[True, True, False]], norm)
    assert solution.status == "infeasible"
