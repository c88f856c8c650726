"""Sums, largest norms, OWL and k-support norms against CVXPY, with their duals and proximal maps."""

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attsvm
from attsvm.norms import (
    DualOwl,
    KSupport,
    Largest,
    LargestEntries,
    LargestWithLength,
    Lp,
    Nuclear,
    OnRows,
    OnSingularValues,
    Owl,
    Scaled,
    Spectral,
    Sum,
    SumAndLargest,
    SumWithLength,
    check,
    max_of,
    parse_norm,
    read_norm,
    sum_of,
    written_norm,
)

# Clarabel is asked for more digits than it always reaches
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

SHAPE = 4, 3
WEIGHTS = tuple(np.linspace(2, 0, 12))


def flat(W):
    return cp.abs(cp.vec(W, order="C"))


def k_support(W):
    """The least Σ ‖v_J‖ over W = Σ v_J, with one v_J for each set J of two entries."""
    sets = list(combinations(range(12), 2))
    parts = cp.Variable((len(sets), 2))
    places = [[(i, sets[i].index(entry)) for i in range(len(sets)) if entry in sets[i]] for entry in range(12)]
    sums = [sum(parts[place] for place in of_entry) for of_entry in places]
    return cp.sum(cp.norm(parts, 2, axis=1)), [cp.hstack(sums) == cp.vec(W, order="C")]


EXPRESSIONS = {
    "nuclear+0.5*frobenius": (
        sum_of([Nuclear(), Lp(2)], [1, 0.5]),
        lambda W: cp.normNuc(W) + 0.5 * cp.norm(W, "fro"),
    ),
    "max(frobenius;1.5*spectral)": (
        max_of([Lp(2), Spectral()], [1, 1.5]),
        lambda W: cp.maximum(cp.norm(W, "fro"), 1.5 * cp.sigma_max(W)),
    ),
    "nuclear+0.3*l1": (sum_of([Nuclear(), Lp(1)], [1, 0.3]), lambda W: cp.normNuc(W) + 0.3 * cp.sum(cp.abs(W))),
    "max(l1;3*linf)": (
        max_of([Lp(1), Scaled(Lp(np.inf), 3)]),
        lambda W: cp.maximum(cp.sum(flat(W)), 3 * cp.max(flat(W))),
    ),
    "l1+3*linf": (
        sum_of([Lp(1), Lp(np.inf)], [1, 3]),
        lambda W: cp.sum(flat(W)) + 3 * cp.max(flat(W)),
    ),
    "max(l1;0.8*l1+2*linf;3*linf)": (
        max_of([max_of([Lp(1), parse_norm("0.8*l1+2*linf")]), Lp(np.inf)], [1, 3]),
        lambda W: cp.maximum(cp.sum(flat(W)), 0.8 * cp.sum(flat(W)) + 2 * cp.max(flat(W)), 3 * cp.max(flat(W))),
    ),
    "l2,1+linf": (
        sum_of([OnRows(Lp(1)), Lp(np.inf)]),
        lambda W: cp.sum(cp.norm(W, 2, axis=1)) + cp.max(flat(W)),
    ),
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
    "ksupport2": (KSupport(2), k_support),
    "ksupport2 of the rows": (OnRows(KSupport(2)), None),
}


def least(W, expression, constraints=(), others=0.0):
    """The least value of the norm and other terms; an expression may need constraints of its own."""
    term = expression(W)
    own = []
    if isinstance(term, tuple):
        term, own = term
    problem = cp.Problem(cp.Minimize(term + others), [*constraints, *own])
    problem.solve(cp.CLARABEL, tol_gap_rel=1e-11, tol_gap_abs=1e-11, tol_feas=1e-11)
    return problem.value


@pytest.mark.parametrize("name", [name for name, (_, expression) in EXPRESSIONS.items() if expression])
def test_value_dual_and_proximal_map_are_those_of_convex_programs(name):
    norm, expression = EXPRESSIONS[name]
    assert norm.name == name
    x = np.random.default_rng(3).standard_normal(SHAPE)
    W = cp.Variable(SHAPE)
    # Clarabel stops at a relative gap of about 1e-9
    assert norm.value(x) == pytest.approx(least(W, expression, [x == W]), rel=1e-7)
    assert norm.dual.value(x) == pytest.approx(1 / least(W, expression, [cp.vdot(x, W) == 1]), rel=1e-7)
    for step in (0.1, 0.6):
        w = norm.prox(x, step)
        objective = norm.value(w) + float(((w - x) ** 2).sum()) / (2 * step)
        assert objective == pytest.approx(least(W, expression, others=cp.sum_squares(W - x) / (2 * step)), rel=1e-7)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_their_pieces_agree_and_their_names_are_read(name):
    norm, _ = EXPRESSIONS[name]
    report = check(norm, jax=name == "owl of 12 weights")
    assert "dual" not in report.missing
    assert max(error for test, error in report.errors.items() if "gradient" not in test) < 1e-9
    assert read_norm(written_norm(norm)) == norm
    if "owl" not in name and "of the rows" not in name:
        assert parse_norm(name) == norm


def test_combinations_of_one_kind_of_sizes_are_norms_of_these_sizes():
    assert sum_of([Nuclear(), Lp(2)], [1, 0.5]) == OnSingularValues(SumWithLength([Lp(1), Lp(2)], [1, 0.5]))
    assert max_of([OnRows(Lp(1)), Scaled(Lp(2), 2.0)]) == OnRows(LargestWithLength([Lp(1), Lp(2)], [1, 2]))
    assert max_of([Lp(2), Lp(2)], [1, 2]) == Largest([Lp(2), Lp(2)], [1, 2])  # the form of ‖W‖₂ is itself
    assert sum_of([Nuclear(), Lp(1)]) == Sum([Nuclear(), Lp(1)])
    assert parse_norm("0.5*frobenius+2*l2,1") == OnRows(SumWithLength([Lp(1), Lp(2)], [2, 0.5]))
    assert parse_norm("2*max(l1;3*linf)") == Scaled(SumAndLargest(((1.0, 0.0), (0.0, 3.0))), 2)
    # (0.4, 0.5) is below the line between (1, 0) and (0, 1)
    inner = max_of([Lp(1), Lp(np.inf)])
    assert max_of([inner, parse_norm("0.4*l1+0.5*linf")]) == inner
    assert max_of([Lp(1), parse_norm("l1+linf")]) == SumAndLargest(((1.0, 1.0),))
    assert sum_of([Nuclear(), Spectral()]) == OnSingularValues(SumAndLargest(((1.0, 1.0),)))
    # on a column both norms are the length
    assert sum_of([Nuclear(), Lp(2)], [1, 0.5]).of_vectors == Scaled(Lp(2), 1.5)


def test_special_cases_are_the_norms_that_they_should_be():
    x = np.random.default_rng(5).standard_normal(SHAPE)
    for norm, known in (
        (Owl(np.ones(12)), Lp(1)),
        (Owl([1.0] + 11 * [0.0]), Lp(np.inf)),
        (KSupport(1), Lp(1)),
        (KSupport(12), Lp(2)),
        (KSupport(50), Lp(2)),
        (LargestEntries(1), Lp(np.inf)),
        (OnSingularValues(KSupport(1)), Nuclear()),
        (OnSingularValues(Owl([1.0, 0.0, 0.0])), Spectral()),
    ):
        assert norm.value(x) == pytest.approx(known.value(x), rel=1e-14)
        assert norm.dual.value(x) == pytest.approx(known.dual.value(x), rel=1e-14)
        np.testing.assert_allclose(norm.prox(x, 0.4), known.prox(x, 0.4), atol=1e-13)
        assert np.vdot(x, norm.steepest(x)) == pytest.approx(known.dual.value(x), rel=1e-13)


@given(st.integers(0, 10_000), st.integers(1, 14), st.sampled_from([0.3, 1.0, 4.0]))
def test_proximal_points_of_the_k_support_norm_are_optimal_all_together(seed, k, power):
    """Arrays with ties and zeros, of many sizes: x − w is a subgradient, of dual norm 1 and aligned with w."""
    generator = np.random.default_rng(seed)
    x = np.sign(generator.standard_normal((5, *SHAPE))) * generator.integers(0, 4, (5, *SHAPE)) ** power
    x[3:] = generator.standard_normal((2, *SHAPE)) * 10.0 ** generator.uniform(-2, 2, (2, 1, 1))
    norm = KSupport(k)
    for own, w in zip(x, norm.proxes(x, 1.0), strict=True):
        assert norm.dual.value(own - w) <= 1 + 1e-13
        assert np.vdot(own - w, w) == pytest.approx(norm.value(w), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("size", [1e-9, 1e-4, 1.0])
def test_no_parts_bound_a_dual_norm_by_less_than_it_is(size):
    """Parts of any quality are given. The oracle is the least part of an entrywise program, which HiGHS solves."""
    x, z = np.random.default_rng(4).standard_normal((2, *SHAPE))
    norm = Sum([Lp(1), Lp(np.inf)], [1, 3])
    W = cp.Variable(SHAPE)
    program = cp.Problem(cp.Minimize(cp.sum(flat(W)) + 3 * cp.max(flat(W))), [cp.vdot(x, W) == 1])
    exact = 1 / program.solve(cp.HIGHS)
    best = norm.split(x, exact).arrays
    known = norm.with_parts(np.array([[best[0] + size * z, best[1]]]))
    bound = known.dual.value(2 * x)
    assert 2 * exact * (1 - 1e-12) <= bound <= 2 * exact * (1 + 10 * min(size, 1e-6) + 1e-4 * (size > 1e-6))
    assert known.value(x) == norm.value(x)


@pytest.mark.parametrize("name", [name for name in EXPRESSIONS if "owl" not in name and "rows" not in name])
def test_the_answer_in_them_is_that_of_a_convex_program(name):
    norm, expression = EXPRESSIONS[name]
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=2)
    problem = attsvm.Problem(problem.tokens, queries=problem.queries[:, :3])
    selected = np.zeros(3, int)
    solution = attsvm.solve_svm(problem, selected, norm)
    assert solution.status == "optimal"
    W = cp.Variable(SHAPE)
    rows = [
        (problem.tokens[i, 0] - problem.tokens[i, t]) @ W @ problem.queries[i] >= 1
        for i in range(3)
        for t in range(1, 4)
    ]
    assert solution.value == pytest.approx(least(W, expression, rows), rel=1e-7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Owl([]), "weights: expected descending"),
        (lambda: Owl([1.0, 2.0]), "weights: expected descending"),
        (lambda: Owl([1.0, -1.0]), "weights: expected numbers >= 0"),
        (lambda: KSupport(0), "k: expected"),
        (lambda: sum_of([Lp(1)]), "expected two norms or more"),
        (lambda: sum_of([Lp(1), Lp(2)], [1.0]), "expected two norms or more and one number for each"),
        (lambda: sum_of([Lp(1), Lp(2)], [1.0, 0.0]), "weights: expected numbers > 0"),
        (lambda: max_of([Lp(1), Lp(2), Lp(3)]), "norms: expected two norms, got 3"),
        (lambda: Owl([1.0, 0.5]).value(np.eye(2)), "expected at most as many entries"),
        (lambda: parse_norm("nuclear+no-norm"), "norm: expected"),
        (lambda: parse_norm("max(nuclear)"), "norm: expected"),
    ],
)
def test_wrong_numbers_are_named(make, words):
    with pytest.raises(attsvm.ProblemError, match=words):
        make()
