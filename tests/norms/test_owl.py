"""Norms of sorted entries against CVXPY, with their duals and proximal maps."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.norms import (
    Lp,
    Nuclear,
    OnSingularValues,
    Owl,
    Spectral,
    check,
    parse_norm,
    read_norm,
    written_norm,
)
from attsvm.norms.owl import DualOwl

# Clarabel is asked for more digits than it always reaches
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

SHAPE = 4, 3
WEIGHTS = tuple(np.linspace(2, 0, 12))


def flat(W):
    return cp.abs(cp.vec(W, order="C"))


EXPRESSIONS = {
    "owl of 12 weights": (Owl(WEIGHTS), lambda W: cp.dotsort(flat(W), np.array(WEIGHTS))),
    "dual owl of 12 weights": (
        DualOwl(WEIGHTS),
        lambda W: cp.max(
            cp.hstack(
                [cp.sum_largest(flat(W), k + 1) / t for k, t in enumerate(np.cumsum(WEIGHTS[:-1]))]
                + [cp.sum(flat(W)) / sum(WEIGHTS)]
            )
        ),
    ),
}


def least(expression, constraints=()):
    problem = cp.Problem(cp.Minimize(expression), list(constraints))
    problem.solve(cp.CLARABEL, tol_gap_rel=1e-11, tol_gap_abs=1e-11, tol_feas=1e-11)
    return problem.value


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_value_dual_and_proximal_map_are_those_of_convex_programs(name):
    norm, expression = EXPRESSIONS[name]
    assert norm.name == name
    x = np.random.default_rng(3).standard_normal(SHAPE)
    W = cp.Variable(SHAPE)
    # Clarabel stops at a relative gap of about 1e-9
    assert norm.value(x) == pytest.approx(least(expression(W), [x == W]), rel=1e-7)
    assert norm.dual.value(x) == pytest.approx(1 / least(expression(W), [cp.vdot(x, W) == 1]), rel=1e-7)
    for step in (0.1, 0.6):
        w = norm.prox(x, step)
        objective = norm.value(w) + float(((w - x) ** 2).sum()) / (2 * step)
        assert objective == pytest.approx(least(expression(W) + cp.sum_squares(W - x) / (2 * step)), rel=1e-7)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_their_pieces_agree_and_they_are_read_from_files(name):
    norm, _ = EXPRESSIONS[name]
    report = check(norm, jax=name == "owl of 12 weights")
    assert "dual" not in report.missing
    assert max(error for test, error in report.errors.items() if "gradient" not in test) < 1e-9
    assert read_norm(written_norm(norm)) == norm


def test_special_cases_are_the_norms_that_they_should_be():
    x = np.random.default_rng(5).standard_normal(SHAPE)
    for norm, known in (
        (Owl(np.ones(12)), Lp(1)),
        (Owl([1.0] + 11 * [0.0]), Lp(np.inf)),
        (OnSingularValues(Owl([1.0, 1.0, 1.0])), Nuclear()),
        (OnSingularValues(Owl([1.0, 0.0, 0.0])), Spectral()),
    ):
        assert norm.value(x) == pytest.approx(known.value(x), rel=1e-14)
        assert norm.dual.value(x) == pytest.approx(known.dual.value(x), rel=1e-14)
        np.testing.assert_allclose(norm.prox(x, 0.4), known.prox(x, 0.4), atol=1e-13)
        assert np.vdot(x, norm.steepest(x)) == pytest.approx(known.dual.value(x), rel=1e-13)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Owl([]), "weights: expected descending"),
        (lambda: Owl([1.0, 2.0]), "weights: expected descending"),
        (lambda: Owl([1.0, -1.0]), "weights: expected numbers >= 0"),
        (lambda: Owl([1.0, 0.5]).value(np.eye(2)), "expected at most as many entries"),
        (lambda: parse_norm("nuclear+l1"), "^norm: expected .* got 'nuclear\\+l1'"),
        (lambda: parse_norm("max(frobenius;2*spectral)"), "^norm: expected .* got 'max\\(frobenius;2\\*spectral\\)'"),
        (lambda: parse_norm("2*max(l1;linf)"), "^norm: expected .* got '2\\*max\\(l1;linf\\)'"),
        (lambda: parse_norm("ksupport3"), "^norm: expected .* got 'ksupport3'"),
    ],
)
def test_wrong_numbers_and_names_are_refused(make, words):
    with pytest.raises(attsvm.ProblemError, match=words):
        make()
