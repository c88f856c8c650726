"""Norms of P W R: their pieces, and their Att-SVM by a change of coordinates."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.norms import Lp, Nuclear, OnRows, Weighted, check, read_norm, written_norm

# Clarabel sometimes stops above the gap that it aims at
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

GENERATOR = np.random.default_rng(1)
P, R = GENERATOR.standard_normal((5, 5)), GENERATOR.standard_normal((4, 4))
NORMS = [
    Weighted(P, R),
    Weighted(P, None),
    Weighted(None, R, Nuclear()),
    Weighted(P, R, Lp(1)),
    Weighted(P, None, OnRows(Lp(1))),
]


@pytest.fixture(scope="module")
def problem():
    problem = attsvm.datasets.random_problem(4, 4, 5, seed=0)
    return attsvm.Problem(problem.tokens, queries=problem.queries[:, :4])


@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_their_pieces_agree(norm):
    report = check(norm, jax=norm is NORMS[0])
    assert report.missing == (() if norm.of == Lp(2) else ("prox",))
    assert max(error for test, error in report.errors.items() if "gradient" not in test) < 1e-11
    copy = read_norm(written_norm(norm))
    assert (copy, hash(copy)) == (norm, hash(norm))
    assert norm != Weighted(2 * P, None, norm.of)


EXPRESSIONS = {
    "frobenius": lambda V: cp.norm(V, "fro"),
    "nuclear": cp.normNuc,
    "l1": lambda V: cp.sum(cp.abs(V)),
    "l2,1": lambda V: cp.sum(cp.norm(V, 2, axis=1)),
}


@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_their_att_svm_is_that_of_a_convex_program(norm, problem):
    kept = np.zeros((4, 4), bool)
    kept[:, 0] = kept[0, 1] = True  # the first sequence keeps two tokens
    solution = attsvm.solve_svm(problem, kept, norm)
    assert solution.status == "optimal"
    W = cp.Variable((5, 4))
    logits = [problem.tokens[i] @ W @ problem.queries[i] for i in range(4)]
    rows = [logits[i][0] - logits[i][t] >= 1 for i in range(4) for t in range(1, 4) if not kept[i, t]]
    V = (np.eye(5) if norm.left is None else P) @ W @ (np.eye(4) if norm.right is None else R)
    program = cp.Problem(cp.Minimize(EXPRESSIONS[norm.of.name](V)), [*rows, logits[0][0] == logits[0][1]])
    # Clarabel stops at a relative gap of 1e-8
    assert solution.value == pytest.approx(program.solve(cp.CLARABEL), rel=1e-7)
    again = attsvm.solve_svm(problem, kept, norm, warm_start=solution)
    assert again.value == pytest.approx(solution.value, rel=1e-8)


def test_an_infeasible_selection_is_infeasible_in_every_norm(problem):
    tokens = problem.tokens.copy()
    tokens[1, 0] = tokens[1, 1:].mean(axis=0)
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=problem.queries), np.zeros(4, int), NORMS[0])
    assert solution.status == "infeasible"


def test_prompts_and_steepest_descent():
    prompts = attsvm.datasets.random_problem(3, 4, 5, seed=1, prompt=True)
    norm, selected = Weighted(P, None), attsvm.optimal_tokens(prompts)
    solution = attsvm.solve_svm(prompts, selected, norm)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(np.linalg.norm(P @ solution.direction), rel=1e-12)
    with pytest.raises(attsvm.ProblemError, match="no matrix on the right for vectors"):
        attsvm.solve_svm(prompts, selected, Weighted(P, R))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Weighted(None, None), "left, right: expected at least one matrix"),
        (lambda: Weighted(np.ones((2, 3)), None), r"left: expected a square matrix, got shape \(2, 3\)"),
        (lambda: Weighted(None, np.ones((2, 2))), "right: expected an invertible matrix"),
        (lambda: Weighted(np.diag([1.0, np.nan]), None), "left: expected finite numbers, got nan"),
        (lambda: Weighted(P, None).value(np.eye(3)), r"expected matrices of 5 x any entries, got shape \(3, 3\)"),
        (
            lambda: attsvm.solve_svm(attsvm.datasets.random_problem(2, 3, 6, 0), [0, 0], Weighted(P, R)),
            r"expected matrices of 5 x 4 entries, got shape \(6, 6\)",
        ),
    ],
)
def test_matrices_that_do_not_fit_are_named(make, words):
    with pytest.raises(attsvm.ProblemError, match=words):
        make()
