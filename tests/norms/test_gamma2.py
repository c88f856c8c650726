"""γ2: closed forms, bounds that hold, and its Att-SVM against CVXPY."""

import builtins

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.norms import Gamma2, Lp, Spectral, check

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


def test_without_clarabel_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "clarabel":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(attsvm.ProblemError, match=r"pip install attsvm\[conic\]"):
        Gamma2().value(np.eye(2))
