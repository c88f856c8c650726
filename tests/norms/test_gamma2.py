"""γ2: closed forms, bounds that hold, and its Att-SVM against CVXPY."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.norms import Lp, Spectral, check
from attsvm.norms.factors import Gamma2

HADAMARD = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])


@pytest.mark.parametrize(
    ("matrix", "value", "dual"),
    [
        (HADAMARD, 2.0, 8.0),  # √n, and n √n
        (np.eye(5), 1.0, 5.0),
        (np.ones((3, 4)), 1.0, 12.0),
        (np.diag([2.0, 0.0, 0.0]), 2.0, 2.0),
        (1e200 * np.eye(2), 1e200, 2e200),
        (np.zeros((2, 3)), 0.0, 0.0),
    ],
)
def test_values_that_are_known(matrix, value, dual):
    for norm, expected in ((Gamma2(), value), (Gamma2().dual, dual)):
        found = norm.value(matrix)
        assert expected * (1 - 1e-14) <= found <= expected * (1 + 1e-11)  # an upper bound


def test_the_bounds_are_bounds_and_the_pieces_agree():
    generator = np.random.default_rng(0)
    for shape in ((4, 3), (3, 5)):
        X, Y = generator.standard_normal((2, max(shape), 8))
        X, Y = X[: shape[0]], Y[: shape[1]]
        W = X @ Y.T
        assert Gamma2().value(W) <= np.linalg.norm(X, axis=1).max() * np.linalg.norm(Y, axis=1).max()
        assert Lp(np.inf).value(W) <= Gamma2().value(W) <= Spectral().value(W) * (1 + 1e-9)
        units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (X, Y)]
        G = generator.standard_normal(shape)
        assert np.vdot(G, units[0] @ units[1].T) <= Gamma2().dual.value(G)
    assert check(Gamma2()).missing == ("prox", "steepest")


def test_its_att_svm_is_that_of_a_convex_program():
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=1)
    kept = np.zeros((3, 4), bool)
    kept[:, 0] = kept[0, 1] = True
    solution = attsvm.solve_svm(problem, kept, "gamma2")
    assert solution.status == "optimal"
    M, t = cp.Variable((10, 10), PSD=True), cp.Variable()
    logits = [problem.tokens[i] @ M[:5, 5:] @ problem.queries[i] for i in range(3)]
    rows = [logits[i][0] - logits[i][u] >= 1 for i in range(3) for u in range(1, 4) if not kept[i, u]]
    program = cp.Problem(cp.Minimize(t), [*rows, logits[0][0] == logits[0][1], cp.diag(M) <= t])
    assert solution.value == pytest.approx(program.solve(cp.CLARABEL), rel=1e-6)
    batch = attsvm.Problem(np.stack([problem.tokens] * 2), queries=np.stack([problem.queries] * 2))
    both = attsvm.solve_svm(batch, kept, "gamma2")
    np.testing.assert_allclose(both.value, solution.value, rtol=1e-12)
    tokens = problem.tokens.copy()
    tokens[1, 0] = tokens[1, 1:].mean(axis=0)
    impossible = attsvm.Problem(tokens, queries=problem.queries)
    assert attsvm.solve_svm(impossible, np.zeros(3, int), "gamma2").status == "infeasible"


def test_values_are_those_of_a_convex_program():
    generator = np.random.default_rng(3)
    graded = generator.standard_normal((7, 6)) * np.logspace(0, -6, 7)[:, None]  # a few entries determine its norm
    for W in (
        generator.standard_normal((5, 6)),
        generator.standard_normal((8, 2)) @ generator.standard_normal((2, 5)),
        graded,
    ):
        rows = len(W)
        M, t = cp.Variable((sum(W.shape), sum(W.shape)), PSD=True), cp.Variable()
        # Clarabel stops at about 1e-8
        value = cp.Problem(cp.Minimize(t), [M[:rows, rows:] == W, cp.diag(M) <= t]).solve(cp.CLARABEL)
        assert Gamma2().value(W) == pytest.approx(value, rel=1e-7)
        dual = cp.Problem(cp.Maximize(cp.sum(cp.multiply(W, M[:rows, rows:]))), [cp.diag(M) == 1]).solve(cp.CLARABEL)
        assert Gamma2().dual.value(W) == pytest.approx(dual, rel=1e-7)


def test_64_dimensions_are_solved_and_certified():
    problem = attsvm.datasets.random_problem(6, 8, 64, seed=5)
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), "gamma2", tol=1e-9)
    assert solution.status == "optimal"
