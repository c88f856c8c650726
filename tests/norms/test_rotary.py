"""The norm of rotations against CVXPY: value, dual, proximal map and the Att-SVM, with certificates."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError
from attsvm.datasets import random_problem
from attsvm.norms import Nuclear, Rotary, Scaled, check, parse_norm, read_norm, written_norm
from attsvm.norms.rotary import DualRotary

# Clarabel is asked for more digits than it always reaches
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

J, D, COLUMNS = 2, 3, 2
FREQUENCIES = {"apart": [1.0, 0.5, 0.25, 0.1], "of RoPE": (10_000.0 ** (-np.arange(4) / 4)).tolist()}


def of_blocks(parts):
    """Half the nuclear norms of [[A, −B], [B, A]], which are the complex nuclear norms, and the spectral norms."""
    whole = [cp.bmat([[A, -B], [B, A]]) for A, B in parts]
    return 0.5 * sum(map(cp.normNuc, whole)), cp.maximum(*map(cp.sigma_max, whole))


def parts_of(W, number):
    rows = W.shape[0] // (2 * number)
    halves = [W[k * rows : (k + 1) * rows] for k in range(2 * number)]
    return list(zip(halves[::2], halves[1::2], strict=True))


def solved(objective, constraints=()):
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    return problem.solve(cp.CLARABEL, tol_gap_rel=1e-12, tol_gap_abs=1e-12, tol_feas=1e-12)


def test_value_dual_and_proximal_maps_are_those_of_convex_programs():
    x = np.random.default_rng(3).standard_normal((2 * J * D, COLUMNS))
    for k, norm in enumerate((Rotary(J), DualRotary(J))):
        W = cp.Variable(x.shape)
        size = of_blocks(parts_of(W, J))[k]
        assert norm.value(x) == pytest.approx(solved(size, [x == W]), rel=1e-8)
        assert norm.dual.value(x) == pytest.approx(1 / solved(size, [cp.vdot(x, W) == 1]), rel=1e-8)
        for step in (0.3, 1.5):
            # the objective at the minimiser, whose entries have half as many digits
            least = solved(size + cp.sum_squares(W - x) / (2 * step))
            w = norm.prox(x, step)
            assert norm.value(w) + np.square(w - x).sum() / (2 * step) == pytest.approx(least, rel=1e-8)
            np.testing.assert_allclose(w, W.value, atol=1e-4)


@pytest.mark.parametrize("norm", [Rotary(3), DualRotary(2), Scaled(Rotary(2), 0.3)], ids=str)
def test_the_pieces_of_the_norms_agree(norm):
    assert check(norm, jax=norm == Rotary(3)).missing == ()
    assert check(norm, shape=(norm.sample_shape[0],), jax=False).missing == ()
    assert read_norm(written_norm(norm)) == norm


def test_one_real_frequency_is_the_nuclear_norm():
    A = np.random.default_rng(1).standard_normal((3, 4))
    real = np.concatenate([A, 0 * A])
    assert Rotary(1).value(real) == pytest.approx(Nuclear().value(A), rel=1e-14)
    np.testing.assert_allclose(Rotary(1).prox(real, 0.4)[:3], Nuclear().prox(A, 0.4), atol=1e-14)
    assert parse_norm("rotary12") == Rotary(12)
    assert Rotary(2).value(np.zeros((8, 3))) == 0
    assert Rotary(2).value(np.full((8, 3), 1e300)) == pytest.approx(1e300 * Rotary(2).value(np.ones((8, 3))), rel=1e-14)


@pytest.mark.parametrize(("name", "method"), [("apart", None), ("of RoPE", None), ("apart", "semismooth-newton")])
def test_the_least_norm_is_that_of_a_semidefinite_program(name, method):
    # Clarabel loses digits where the weights have more columns: 1e-8 is its own error at d = 5
    problem = random_problem(4, 5, 3, seed=8).with_rotations(FREQUENCIES[name])
    selected = np.arange(4)
    solution = attsvm.solve_svm(problem, selected, norm="rotary4", method=method)
    assert solution.status == "optimal"
    W = cp.Variable((problem.key_dim, problem.query_dim))
    margins = [
        (problem.keys[i, kept] - problem.keys[i, t]) @ W @ problem.queries[i] >= 1
        for i, kept in enumerate(selected)
        for t in range(5)
        if t != kept
    ]
    least = solved(of_blocks(parts_of(W, 4))[0], margins)
    # the weights are feasible, so that they are above the optimum, by no more than the gap
    assert least * (1 - 1e-8) <= solution.value <= least * (1 + solution.gap + 1e-8)
    # the dual norm of A*(λ), by NumPy alone
    differences = np.take_along_axis(problem.keys, selected[:, None, None], axis=1) - problem.keys
    pull = np.einsum("nt,ntk,nq->kq", solution.dual, differences, problem.queries)
    sizes = [np.linalg.norm(A + 1j * B, 2) for A, B in parts_of(pull, 4)]
    assert solution.dual.sum() / max(sizes) >= least * (1 - 1e-8 - solution.gap)


def test_sets_relaxed_queries_tight_gaps_and_infeasible_selections():
    problem = random_problem(4, 5, 6, seed=2).with_rotations([1.0, 0.3])
    selected = np.array([0, 1, 2, 3])
    plain = attsvm.solve_svm(problem, selected, norm="rotary2", tol=1e-12)
    assert plain.status == "optimal"
    assert plain.gap <= 1e-12
    relaxed = attsvm.solve_svm(problem, selected, norm="rotary2", relaxed=selected == 0)
    assert relaxed.status == "optimal"
    assert relaxed.value < plain.value
    sets = attsvm.solve_svm(problem, np.arange(5) < np.full((4, 1), 2), norm="rotary2")
    assert sets.status == "optimal"
    # without a rotation a token between two others of its sequence cannot have the largest logit
    still = attsvm.Problem([[[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]], queries=[[1.0, 1.0]]).with_rotations([0.0])
    assert attsvm.solve_svm(still, [1], norm="rotary1").status == "infeasible"


def test_weights_that_do_not_fit_are_refused_by_name():
    problem = random_problem(3, 4, 5, seed=0)
    with pytest.raises(ProblemError, match=r"norm: expected weights with a multiple of 2J = 4 rows .*got 5 rows"):
        attsvm.solve_svm(problem, [0, 0, 0], norm="rotary2")
    biased = problem.with_rotations([1.0, 0.1]).with_position_bias("absolute")  # 20 + 4 rows, a multiple of 4
    for call in (attsvm.solve_svm, lambda X, kept, norm: attsvm.margin(X, np.ones(X.weights_shape), kept, norm)):
        with pytest.raises(ProblemError, match="norm: expected one without rotations for a problem with bias_index"):
            call(biased, [0, 0, 0], norm="rotary2")
    with pytest.raises(ProblemError, match="num_frequencies"):
        Rotary(0)
    with pytest.raises(ProblemError, match='"rotary<J>"'):
        parse_norm("rotary")
