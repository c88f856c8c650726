"""Norms, correlation, direction error and margins, against mpmath, SciPy and brute force."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attsvm
from attsvm.datasets import random_problem
from attsvm.norms import Lp, Nuclear, parse_norm

NORMS = ["frobenius", "nuclear", "spectral", 1, 1.75, 3.0, "linf"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e150])
def test_norms_agree_with_their_definitions_at_every_scale(norm, scale):
    matrix = np.random.default_rng(0).standard_normal((3, 4, 5))
    norm = parse_norm(norm)
    if isinstance(norm, Lp):
        expected = [np.linalg.norm(member.ravel(), norm.p) for member in matrix]
    else:
        expected = [np.linalg.norm(member, "nuc" if isinstance(norm, Nuclear) else 2) for member in matrix]
    np.testing.assert_allclose(norm.values(matrix * scale), np.array(expected) * scale, rtol=1e-14)


@given(st.sampled_from(NORMS), st.integers(0, 1000))
def test_dual_norms_bound_the_inner_product(norm, seed):
    a, b = np.random.default_rng(seed).standard_normal((2, 3, 4))
    norm = parse_norm(norm)
    assert abs(np.sum(a * b)) <= norm.values(a) * norm.dual.values(b) * (1 + 1e-14)
    assert norm.dual.dual.name == norm.name


@pytest.mark.parametrize("norm", ["l0.5", 0.9, "nuc lear", None, float("nan")])
def test_what_is_no_norm_is_refused(norm):
    with pytest.raises(attsvm.ProblemError, match="norm:"):
        parse_norm(norm)


def test_names_of_norms():
    assert [parse_norm(n).name for n in ("fro", "l2", 2, "l1.75", np.inf, "linf", Nuclear())] == [
        *["frobenius"] * 3,
        "l1.75",
        "linf",
        "linf",
        "nuclear",
    ]


@given(st.integers(0, 10_000), st.floats(-16, 0), st.sampled_from([1e-300, 1.0, 1e150]))
def test_direction_error_keeps_its_digits(seed, exponent, scale):
    generator = np.random.default_rng(seed)
    a = generator.standard_normal((4, 5))
    b = a + 10.0**exponent * generator.standard_normal((4, 5))
    a, b = a * scale, b * scale
    with mpmath.workdps(60):
        x, y = mpmath.matrix(a.ravel().tolist()), mpmath.matrix(b.ravel().tolist())
        dot = mpmath.fsum(p * q for p, q in zip(x, y, strict=True))
        exact = 1 - dot / (mpmath.norm(x) * mpmath.norm(y))
    error = attsvm.direction_error(a, b)
    # the unit vectors are rounded to eps, so the square root of twice the error is off by a few eps
    assert abs(np.sqrt(2 * error) - float(mpmath.sqrt(2 * exact))) <= 4e-16 * np.sqrt(20)
    # 1 - correlation is the same number, as far as it has digits
    assert abs(1 - attsvm.correlation(a, b) - float(exact)) <= 1e-15


def test_direction_error_along_axes_and_without_direction():
    generator = np.random.default_rng(3)
    path, target = generator.standard_normal((7, 4, 5)), generator.standard_normal((4, 5))
    path[0] = 0
    errors = attsvm.direction_error(path, target, axis=(-2, -1))
    assert errors.shape == (7,)
    assert errors[0] == 1
    assert errors[3] == pytest.approx(attsvm.direction_error(path[3], target), rel=1e-14)
    assert attsvm.direction_error(target, -target) == pytest.approx(2, abs=1e-15)
    with pytest.raises(attsvm.ProblemError, match="expected finite numbers"):
        attsvm.correlation(path, np.nan * target, axis=(-2, -1))
    with pytest.raises(attsvm.ProblemError, match="expected the shape"):
        attsvm.correlation(path, target)


def bregman_by_hand(a, b, p):
    with mpmath.workdps(80):
        x, y = ([mpmath.mpf(float(entry)) for entry in array.ravel()] for array in (a, b))
        p = mpmath.mpf(p)
        x, y = ([u / mpmath.fsum(abs(w) ** p for w in z) ** (1 / p) for u in z] for z in (x, y))
        found = mpmath.fsum(
            (abs(u) ** p - abs(w) ** p) / p - mpmath.sign(w) * abs(w) ** (p - 1) * (u - w)
            for u, w in zip(x, y, strict=True)
        )
        return max(found, 0)  # it is convex; only its rounding, below 1e-70, is negative


@given(
    st.integers(0, 10_000),
    st.sampled_from([1.001, 1.1, 1.75, 2, 3.0, 7.5, 50, 3000]),
    st.floats(-16, 2),
    st.sampled_from([(1e-300, 1.0), (1.0, 1e150), (1e150, 1e-150)]),
)
def test_bregman_divergence_keeps_its_digits(seed, p, exponent, scales):
    generator = np.random.default_rng(seed)
    b = generator.standard_normal((3, 4)) * 10.0 ** generator.integers(-6, 1, (3, 4))
    a = b * (1 + 10.0**exponent * generator.standard_normal((3, 4)))
    a[0, 0], b[0, 1], a[0, 2], b[0, 2] = 0, 0, 0, 0
    if exponent < -1:
        a[0, 1] = b[0, 0] = 0
    a, b = a * scales[0], b * scales[1]
    exact = bregman_by_hand(a, b, p)
    found = attsvm.measures.bregman_divergence(a, b, p)
    # an error of a few eps in the entries of the unit vectors, and in their norms' powers, and no more
    root = np.sqrt((p - 1) / 2)
    tolerance = 4e-15 * (root * float(mpmath.sqrt(exact)) + float(exact) * (1 + np.log10(p))) + (4e-16 * root) ** 2
    assert abs(found - float(exact)) <= tolerance
    if p == 2:
        assert found == pytest.approx(attsvm.direction_error(a, b), rel=1e-12, abs=1e-30)


def test_bregman_divergence_along_axes_without_direction_and_out_of_range():
    path, target = np.random.default_rng(3).standard_normal((7, 4, 5)), np.random.default_rng(4).standard_normal((4, 5))
    path[0] = 0
    found = attsvm.measures.bregman_divergence(target, path, 1.75, axis=(-2, -1))
    assert found.shape == (7,)
    assert found[0] == 1
    assert found[3] == pytest.approx(attsvm.measures.bregman_divergence(target, path[3], 1.75), rel=1e-14)
    assert found[3] != pytest.approx(attsvm.measures.bregman_divergence(path[3], target, 1.75), rel=1e-3)
    assert attsvm.measures.bregman_divergence(target, -target, 3.0) == pytest.approx(2, abs=1e-14)
    for p in (1, 0.5, np.inf, np.nan, "2"):
        with pytest.raises(attsvm.ProblemError, match=r"p: expected 1 < p < inf, got"):
            attsvm.measures.bregman_divergence(target, target, p)
    with pytest.raises(attsvm.ProblemError, match="expected the shape"):
        attsvm.measures.bregman_divergence(path, target, 3.0)
    with pytest.raises(attsvm.ProblemError, match="expected finite numbers"):
        attsvm.measures.bregman_divergence(target, np.nan * target, 3.0)


def test_bregman_divergence_is_that_of_the_published_runs(reference):
    data = reference("mirror_descent.npz")
    for seed, p in ((seed, p) for seed in range(1, 5) for p in (1.75, 2.0, 3.0)):
        name = f"s{seed}_p{p:g}".replace(".", "_")
        found = attsvm.measures.bregman_divergence(data[f"{name}_svm"], data[f"{name}_W_at"][1:], p, axis=(-2, -1))
        np.testing.assert_allclose(found, data[f"{name}_bregman_at"], rtol=1e-9)


@given(st.integers(0, 100), st.sampled_from(NORMS), st.booleans())
def test_margin_is_the_smallest_difference_of_logits_over_the_norm(seed, norm, as_sets):
    problem = random_problem(3, 4, 5, seed, num_queries=2)
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((5, 5)) * 10.0 ** generator.integers(-100, 100)
    selected = generator.integers(0, 4, (3, 2))
    sets = np.arange(4) == selected[..., None]
    if as_sets:
        sets |= np.arange(4) == (selected[..., None] + 1) % 4
    smallest = min(
        (problem.tokens[i, t] - problem.tokens[i, u]) @ weights @ problem.queries[i, q]
        for i, q, t, u in np.ndindex(3, 2, 4, 4)
        if sets[i, q, t] and not sets[i, q, u]
    )
    expected = smallest / parse_norm(norm).values(weights)
    found = attsvm.margin(problem, weights, sets if as_sets else selected, norm)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_margin_ratio_is_one_at_the_solution_and_below_elsewhere():
    problem = random_problem(seed=4)
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected)
    assert attsvm.margin_ratio(problem, 1e9 * solution.direction, selected) == pytest.approx(1, abs=1e-12)
    other = solution.direction + 0.01 * np.random.default_rng(0).standard_normal((10, 10))
    ratios = attsvm.margin_ratio(problem, np.stack([other, 0 * other, -other]), selected)
    assert ratios[0] < 1 - 1e-6
    assert ratios[1] == 0
    assert ratios[2] < 0


def test_margin_refuses_what_has_none():
    problem = random_problem(2, 1, 3)
    with pytest.raises(attsvm.ProblemError, match="so there is no margin"):
        attsvm.margin(problem, np.ones((3, 3)), [0, 0])
    with pytest.raises(attsvm.ProblemError, match=r"weights: expected shape \(..., 3, 3\), got \(3,\)"):
        attsvm.margin(random_problem(2, 3, 3), np.ones(3), [0, 0])
