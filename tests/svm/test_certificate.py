"""The certificate judges candidates; it must also reject."""

import numpy as np
import pytest

import attsvm
from attsvm.norms import parse_norm
from attsvm.selection import selection_sets
from attsvm.svm.certificate import certify, farkas
from attsvm.svm.constraints.constraints import Constraints

NORMS = ["frobenius", "l1", "l1.5", "l4", "linf", "nuclear", "spectral"]


@pytest.fixture
def constraints():
    problem = attsvm.datasets.random_problem(seed=7)
    return Constraints.of(problem, selection_sets(problem, attsvm.optimal_tokens(problem)))


@pytest.mark.parametrize("norm", NORMS)
def test_any_pair_brackets_the_optimum(constraints, norm):
    """Feasible weights and random multipliers: a positive gap, far from optimal, and margins of at least 1."""
    problem = attsvm.datasets.random_problem(seed=7)
    weights = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).direction
    generator = np.random.default_rng(0)
    multipliers = generator.standard_normal(constraints.right.shape)
    done = certify(constraints, parse_norm(norm), 3.7 * weights, multipliers)
    assert done.violation <= 1e-15
    assert 1e-3 < done.gap < 1
    assert (done.dual >= 0).all()
    dual_value = parse_norm(norm).dual.values(constraints.adjoint(done.dual))
    assert dual_value == pytest.approx(1.0)
    assert (1 - done.gap) * done.value == pytest.approx(done.dual.sum())


def test_weights_that_do_not_separate_have_an_infinite_gap(constraints):
    done = certify(constraints, parse_norm("frobenius"), -np.eye(10), np.ones(constraints.right.shape))
    assert done.gap == np.inf
    assert done.violation > 0


def test_multipliers_of_a_feasible_problem_prove_nothing(constraints):
    for seed in range(20):
        multipliers = np.random.default_rng(seed).random(constraints.right.shape)
        _, bound = farkas(constraints, parse_norm("frobenius"), multipliers)
        assert bound < 1e2


def test_negative_multipliers_are_not_accepted(constraints):
    dual, bound = farkas(constraints, parse_norm("frobenius"), -np.ones(constraints.right.shape))
    assert not dual.any()
    assert bound == 0


def test_what_scaling_cannot_repair_is_a_violation():
    tokens = np.array([[[0.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]]])
    problem = attsvm.Problem(tokens)
    constraints = Constraints.of(problem, selection_sets(problem, [0, 0]), np.array([[False], [True]]))
    done = certify(constraints, parse_norm("frobenius"), np.array([[3.0], [-4.0]]), np.array([[[0, 1.0]], [[0, 0]]]))
    assert done.violation == pytest.approx(0.8)
    assert done.raw_violation == pytest.approx(4 / 3)
    assert done.value == pytest.approx(5 / 3)
    assert done.gap == pytest.approx(0.4)
