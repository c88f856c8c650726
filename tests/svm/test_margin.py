"""The interval of a head's margin ratio, against CVXPY, by hand and on trained weights."""

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm._utils.linear_algebra import softmax
from attsvm.selection import selection_sets
from attsvm.svm import Constraints, Grams, HeadProblem, margin_interval
from attsvm.svm.constraints.dual_products import DualProducts, GramProducts


def head(seed, n=3, Q=4, T=5, d=6, ragged=True):
    """A random head, what it may attend to, and what it selects."""
    generator = np.random.default_rng(seed)
    keys, queries = generator.standard_normal((n, T, d)), generator.standard_normal((n, Q, d + 1))
    queries[..., -1] = 1
    problem = HeadProblem(keys, queries, generator.standard_normal((d, 2)) @ generator.standard_normal((2, d + 1)))
    allowed = np.ones((n, Q, T), bool)
    if ragged:
        allowed[0, :, 3:] = False
        allowed[1, -1] = False
    return problem, allowed, selection(problem, allowed)


def selection(problem, allowed):
    return np.where(allowed.any(axis=-1), softmax(problem.logits(), allowed).argmax(axis=-1), -1)


def best_norm(problem, allowed, selected):
    """The least Frobenius norm with margins of 1, by CVXPY, and the margins of the head's own W."""
    W = cvxpy.Variable(problem.weights.shape)
    constraints, own = [], []
    for i, q, t in np.argwhere(allowed):
        kept = selected[i, q]
        difference, z = problem.keys[i, kept] - problem.keys[i, t], problem.queries[i, q]
        if t != kept and difference.any():
            constraints.append(difference @ W @ z >= 1)
            own.append(difference @ problem.weights @ z)
    solved = cvxpy.Problem(cvxpy.Minimize(cvxpy.norm(W, "fro")), constraints)
    return solved.solve(solver="CLARABEL"), min(own)


@pytest.mark.parametrize("gap", [1e-2, 1e-6])
def test_the_interval_holds_the_ratio_and_is_as_narrow_as_asked(gap):
    problem, allowed, selected = head(0)
    norm, own = best_norm(problem, allowed, selected)
    ratio = own / np.linalg.norm(problem.weights) * norm
    interval, dual = margin_interval(problem, allowed, selected, gap)
    assert interval.lower * (1 - 1e-7) <= ratio <= interval.upper * (1 + 1e-7)
    assert interval.width <= gap
    assert interval.status == "optimal"
    assert (dual >= 0).all()
    assert not dual[~allowed].any()


def test_the_best_matrix_itself_has_a_ratio_of_one():
    problem, allowed, selected = head(1)
    svm = attsvm.Problem(problem.keys, queries=problem.queries, mask=allowed, query_mask=selected >= 0)
    best = attsvm.solve_svm(svm, selected)
    interval, _ = margin_interval(problem._replace(weights=best.direction), allowed, selected, 1e-4)
    assert interval.lower == pytest.approx(1, abs=1e-4)
    assert interval.upper == pytest.approx(1, abs=1e-4)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_the_ratio_does_not_depend_on_the_scale_of_the_weights(seed, scale):
    problem, allowed, selected = head(seed)
    one, _ = margin_interval(problem, allowed, selected, 1e-3)
    other, _ = margin_interval(problem._replace(weights=scale * problem.weights), allowed, selected, 1e-3)
    assert 0 < one.lower <= one.upper <= 1 + 1e-9
    assert other.upper == pytest.approx(one.upper, rel=1e-9)


def test_exact_duplicates_of_the_selected_token_are_counted_and_left_out():
    problem, allowed, selected = head(2, ragged=False)
    twice = np.concatenate([problem.keys, problem.keys], axis=1)
    doubled = problem._replace(keys=twice)
    both = np.concatenate([allowed, allowed], axis=2)
    one, _ = margin_interval(problem, allowed, selected, 1e-6)
    other, _ = margin_interval(doubled, both, selected, 1e-6)
    assert one.duplicates == 0
    assert other.duplicates == selected.size
    assert other.constraints == 2 * one.constraints + selected.size
    assert other.upper == pytest.approx(one.upper, rel=1e-5)


def test_ties_that_no_matrix_breaks_are_infeasible():
    keys = np.array([[[1.0, 0], [0, 1], [1, 1], [0, 0]]])  # k0 + k1 = k2 + k3
    queries = np.array([[[1.0], [1.0]]])
    allowed = np.ones((1, 2, 4), bool)
    problem = HeadProblem(keys, queries, np.zeros((2, 1)))
    interval, dual = margin_interval(problem, allowed, np.array([[0, 1]]))
    assert (interval.status, interval.lower, interval.upper, dual) == ("infeasible", None, None, None)


def test_ties_of_weights_that_are_zero_have_a_ratio_of_zero():
    problem, allowed, _ = head(3)
    flat = problem._replace(weights=np.zeros_like(problem.weights))
    interval, _ = margin_interval(flat, allowed, selection(flat, allowed))
    assert (interval.margin, interval.lower, interval.upper, interval.width) == (0, 0, 0, 0)


def test_queries_without_a_choice_have_no_margin():
    problem, allowed, _ = head(4)
    allowed = allowed & (np.arange(5) == 0)
    interval, dual = margin_interval(problem, allowed, selection(problem, allowed))
    assert (interval.status, interval.constraints, interval.upper, dual) == ("optimal", 0, None, None)


def large_head(padding):
    """A head for which Gram matrices are less work, and its constraints."""
    problem, allowed, _ = head(5, n=3, Q=8, T=8, d=600)
    if padding == "left":
        allowed = allowed[:, ::-1, ::-1]
    selected = selection(problem, allowed)
    svm = attsvm.Problem(problem.keys, queries=problem.queries, mask=allowed, query_mask=selected >= 0)
    return problem, allowed, selected, svm


@pytest.mark.parametrize("padding", ["right", "left"])
def test_products_by_gram_matrices_are_the_products(padding):
    problem, allowed, selected, svm = large_head(padding)
    constraints = Constraints.of(svm, selection_sets(svm, selected))
    plain = DualProducts(constraints)
    multipliers = np.random.default_rng(0).random(allowed.shape) * plain.there
    for dtype, close in ((np.float64, 1e-12), (np.float32, 1e-5)):
        grams = Grams.of(problem.keys, problem.queries, allowed, dtype)
        images = GramProducts(constraints, selected, grams).times(multipliers)
        expected = plain.times(multipliers)
        assert np.abs(images - expected)[plain.there].max() < close * np.abs(expected).max()


@pytest.mark.parametrize("padding", ["right", "left"])
def test_blocks_are_the_products_with_single_rows(padding):
    problem, allowed, selected, svm = large_head(padding)
    constraints = Constraints.of(svm, selection_sets(svm, selected))
    plain = DualProducts(constraints)
    rows, columns = np.split(np.random.default_rng(0).permutation(np.flatnonzero(plain.there))[:20], [14])
    units = np.eye(allowed.size)[columns].reshape(-1, *allowed.shape)
    expected = np.stack([plain.times(unit).reshape(-1)[rows] for unit in units], axis=-1)
    single = GramProducts(constraints, selected, Grams.of(problem.keys, problem.queries, allowed, np.float32))
    assert np.abs(plain.block(rows, columns) - expected).max() < 1e-12
    assert np.abs(single.block(rows, columns) - expected).max() < 1e-5
    assert single.block(rows, rows).diagonal() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("gap", "dtype"), [(1e-2, np.float32), (1e-8, np.float32), (1e-8, np.float64)])
def test_solves_on_gram_matrices_are_confirmed_in_float64(gap, dtype, monkeypatch):
    problem, allowed, selected, svm = large_head("right")
    grams = Grams.of(problem.keys, problem.queries, allowed, dtype)
    interval, _ = margin_interval(problem, allowed, selected, gap, grams=grams)
    monkeypatch.setattr("attsvm.svm.certified_interval.FIRST_STEPS", 1)
    by_pivoting, _ = margin_interval(problem, allowed, selected, gap, grams=grams)
    ratio = attsvm.margin_ratio(svm, problem.weights, selected)
    for one in (interval, by_pivoting):
        assert one.lower * (1 - 1e-9) <= ratio <= one.upper * (1 + 1e-9)
        assert one.width <= gap
    assert by_pivoting.steps < 80  # products alone need hundreds
