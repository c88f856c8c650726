"""ν: linear programs over all matrices of signs, and its Att-SVM."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import attsvm
from attsvm.norms import check
from attsvm.norms.factors import Gamma2, Nu

GROTHENDIECK = 1.7822139781913692


def _atoms(rows, columns):
    """All matrices s t' of signs."""
    signs = [np.array(list(product((-1.0, 1.0), repeat=k))) for k in (rows, columns)]
    return np.array([np.outer(s, t) for s in signs[0] for t in signs[1]])


def _least_sum(W):
    atoms = _atoms(*W.shape)
    found = linprog(np.ones(len(atoms)), A_eq=atoms.reshape(len(atoms), -1).T, b_eq=W.ravel(), method="highs")
    return found.fun


def test_value_and_dual_are_those_over_all_matrices_of_signs():
    generator = np.random.default_rng(0)
    for W in (
        generator.standard_normal((3, 4)),
        generator.standard_normal((4, 3)) * (generator.random((4, 3)) < 0.5),
        generator.standard_normal((4, 1)) @ generator.standard_normal((1, 4)),
        np.diag([0.0, 2.0, 0.0]),
    ):
        # HiGHS solves the reference up to about 1e-9
        assert Nu().value(W) == pytest.approx(_least_sum(W), rel=1e-8)
        largest = np.abs(np.tensordot(_atoms(*W.shape), W, 2)).max()
        assert largest <= Nu().dual.value(W) <= largest * (1 + 1e-14)
    assert check(Nu(), shape=(3, 2)).missing == ("prox", "steepest")


def test_its_att_svm_is_the_linear_program_over_all_matrices_of_signs():
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=1)
    kept = np.zeros((3, 4), bool)
    kept[:, 0] = kept[0, 1] = True
    solution = attsvm.solve_svm(problem, kept, "nu")
    assert solution.status == "optimal"
    atoms = _atoms(4, 4)
    logits = np.einsum("ntd,ade,ne->ant", problem.tokens, atoms, problem.queries)
    margins = (logits[..., :1] - logits).reshape(len(atoms), -1).T
    inequality, equality = ~kept.ravel(), np.arange(12) == 1
    found = linprog(
        np.ones(len(atoms)),
        A_ub=-margins[inequality],
        b_ub=-np.ones(inequality.sum()),
        A_eq=margins[equality],
        b_eq=np.zeros(1),
        method="highs",
    )
    assert solution.value == pytest.approx(found.fun, rel=1e-8)
    # tolerances of the linear programs must not depend on the scale of the rows
    for scale in (1e-60, 1e-10, 1e8, 1e14, 1e60):
        scaled = attsvm.solve_svm(attsvm.Problem(scale * problem.tokens, queries=problem.queries), kept, "nu")
        assert scaled.status == "optimal"
        assert scale * scaled.value == pytest.approx(solution.value, rel=1e-11)  # the gap at which the cuts end
    # with 17 rows and columns, the bounds are those of γ2
    large = attsvm.datasets.random_problem(2, 3, 17, seed=0)
    bracket = attsvm.solve_svm(large, [0, 0], "nu")
    lower = attsvm.solve_svm(large, [0, 0], "gamma2").value
    assert bracket.status == "inaccurate"
    assert bracket.value == pytest.approx(GROTHENDIECK * lower, rel=1e-8)
    assert bracket.gap == pytest.approx(1 - 1 / GROTHENDIECK, rel=1e-7)
    assert Gamma2().value(solution.direction) <= solution.value * (1 + 1e-9)  # the value of γ2 is a bound from above
