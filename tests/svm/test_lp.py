"""Entrywise ℓp Att-SVMs: certificates recomputed by hand, every p, every kind of constraint.

Reference optima, singular steps and growing rows are those of the nuclear and the spectral norm, too.
"""

import numpy as np
import pytest

import attsvm
from attsvm.svm.methods.lp import choice as lp
from attsvm.svm.methods.semidefinite import choice as semidefinite
from oracles.att_svm import gap_by_hand

SEEDS = range(10)
EXPONENTS = [1.0, 1.05, 1.1, 1.2, 1.5, 1.75, 3.0, 8.0, 20.0, 50.0, np.inf]
STEEP_EXPONENTS = [1.001, 1.01, 2.0 + 1e-9, 4.0, 100.0, 1000.0]
OF_MATRICES = ["nuclear", "spectral"]
WITH_REFERENCE_VALUES = [1.0, 1.2, 1.75, 3.0, 8.0, np.inf, *OF_MATRICES]


def allowed_gap(norm):
    return 1e-10 if norm not in OF_MATRICES and 1.2 <= norm <= 3 else 1e-8


def one_hot(selected, num_tokens):
    return np.asarray(selected)[..., None] == np.arange(num_tokens)


def random_arrays(seed, n=4, T=5, d=6):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, T, d)), generator.normal(size=(n, d)), generator.integers(0, T, n)


def random_case(seed):
    tokens, queries, selected = random_arrays(seed)
    return attsvm.Problem(tokens, queries=queries), selected


@pytest.mark.parametrize("norm", [*EXPONENTS, *OF_MATRICES])
def test_every_reference_problem_is_optimal_by_its_certificate(reference, norm):
    """In the nuclear norm they end by Newton's method on the face of the optimum, to the last digits."""
    data = reference("att_svm_optima.npz")
    for seed in SEEDS:
        tokens, queries, selected = (data[f"s{seed}_{name}"] for name in ("X", "Z", "selected"))
        problem = attsvm.Problem(tokens, queries=queries)
        solution = attsvm.solve_svm(problem, selected, norm=norm)
        assert solution.status == "optimal"
        gap = gap_by_hand(problem, selected, solution, norm)
        assert gap <= (1e-12 if norm == "nuclear" else allowed_gap(norm))
        if norm in WITH_REFERENCE_VALUES:
            name = norm if norm in OF_MATRICES else f"l{norm:g}"
            assert solution.value == pytest.approx(float(data[f"s{seed}_{name}"]), rel=1e-6)


@pytest.mark.parametrize("p", STEEP_EXPONENTS)
def test_extreme_exponents(p):
    for seed in range(5):
        problem, selected = random_case(seed)
        assert gap_by_hand(problem, selected, attsvm.solve_svm(problem, selected, norm=p), p) <= 1e-8


@pytest.mark.parametrize("p", [1.0, 1.1, 1.2, 1.75, 3.0, 20.0, np.inf])
@pytest.mark.parametrize("kind", ["relaxed", "sets", "prompt", "causal"])
def test_every_kind_of_constraint(kind, p):
    for seed in range(4):
        tokens, queries, selected = random_arrays(seed, *((2, 4, 9) if kind == "prompt" else ()))
        relaxed = np.array([True, False, True, False]) if kind == "relaxed" else None
        allowed = None
        if kind == "sets":
            selected = one_hot(selected, 5) | one_hot((selected + 1) % 5, 5)
        elif kind == "prompt":
            queries = None
        elif kind == "causal":
            queries, allowed = tokens[:3, 1:], np.broadcast_to(np.tri(5, dtype=bool)[1:], (3, 4, 5))
            tokens, selected = tokens[:3], np.random.default_rng(seed).integers(0, 2, (3, 4))
        problem = attsvm.Problem(tokens, queries=queries, mask=allowed)
        solution = attsvm.solve_svm(problem, selected, norm=p, relaxed=relaxed)
        assert solution.status == "optimal"
        assert gap_by_hand(problem, selected, solution, p, relaxed) <= allowed_gap(p)
        if relaxed is not None:
            assert solution.value < attsvm.solve_svm(problem, selected, norm=p).value


@pytest.mark.parametrize("norm", [1.0, 1.2, 3.0, 20.0, *OF_MATRICES])
def test_sets_that_two_sequences_share(norm):
    # the same equalities twice: their multipliers are not unique, and the matrix of a step is singular
    tokens, queries, selected = random_arrays(1)
    tokens[1], queries[1], selected[1] = tokens[0], queries[0], selected[0]
    sets = one_hot(selected, 5) | one_hot((selected + 1) % 5, 5)
    problem = attsvm.Problem(tokens, queries=queries)
    solution = attsvm.solve_svm(problem, sets, norm=norm)
    assert solution.status == "optimal"
    assert gap_by_hand(problem, sets, solution, norm) <= allowed_gap(norm)


@pytest.mark.parametrize("norm", [1.0, 1.1, 1.75, 3.0, 20.0, np.inf, *OF_MATRICES])
@pytest.mark.parametrize("kind", ["plain", "relaxed", "sets", "queries"])
def test_growing_rows_find_the_same_optimum(norm, kind, monkeypatch):
    generator = np.random.default_rng(2)
    tokens, shape = generator.normal(size=(6, 9, 8)), (6, 3) if kind == "queries" else (6,)
    queries, selected = generator.normal(size=(*shape, 8)), generator.integers(0, 9, shape)
    relaxed = np.arange(6) % 2 == 1 if kind == "relaxed" else None
    if kind == "sets":
        selected = one_hot(selected, 9) | one_hot((selected + 1) % 9, 9)
    problem = attsvm.Problem(tokens, queries=queries)
    plain = attsvm.solve_svm(problem, selected, norm=norm, relaxed=relaxed)
    monkeypatch.setattr(lp, "STORED_NUMBERS", 100)
    monkeypatch.setattr(semidefinite, "MOST_ROWS", 30)
    grown = attsvm.solve_svm(problem, selected, norm=norm, relaxed=relaxed)
    assert "growing" in grown.stats["why"]
    assert grown.status == plain.status == "optimal"
    assert grown.value == pytest.approx(plain.value, rel=1e-8 if norm in OF_MATRICES else 1e-9)
    assert gap_by_hand(problem, selected, grown, norm, relaxed) <= allowed_gap(norm)


def test_unused_coordinates_stay_zero():
    tokens, queries, selected = random_arrays(0)
    tokens[..., 2] = 0
    for p in EXPONENTS:
        problem = attsvm.Problem(tokens, queries=queries)
        solution = attsvm.solve_svm(problem, selected, norm=p)
        assert gap_by_hand(problem, selected, solution, p) <= allowed_gap(p)
        if p not in (1, np.inf):
            assert np.abs(solution.direction[2]).max() <= 1e-5 * np.abs(solution.direction).max()


def test_a_bound_that_shortens_a_step_does_not_stop_the_interior_point():
    """Relaxed rows of keys on a line: steps that went too close to their bounds ended the iteration at 9e-8."""
    places = np.array([[-2.6, 1.2, -1.6, 8.7], [-1.5, 1.6, -1.9, 6.6], [1.2, 6.1, -8.6, -1.0]])
    queries = np.array([[0.6, 0.2, 0.6, -1.0], [1.1, 1.2, 0.3, 0.1], [0.6, -0.3, -0.6, 0.1]])
    problem = attsvm.Problem(places[..., None] * [-0.3, 0.8, -0.4, -0.3], queries=queries)
    solution = attsvm.solve_svm(problem, [1, 0, 1], 1.05, relaxed=np.array([True, True, False]))
    assert solution.status == "optimal"
    assert solution.gap <= 1e-12


def test_a_warm_start_saves_steps():
    problem, selected = random_case(0)
    near = attsvm.solve_svm(problem, selected, norm=3.9)
    cold = attsvm.solve_svm(problem, selected, norm=4)
    warm = attsvm.solve_svm(problem, selected, norm=4, warm_start=near)
    assert warm.value == pytest.approx(cold.value, rel=1e-10)
    assert warm.stats["steps"] < cold.stats["steps"]


@pytest.mark.parametrize("p", [1.1, 1.75, 3.0, 20.0])
def test_a_useless_warm_start_does_no_harm(p):
    problem, selected = random_case(0)
    for warm in (np.zeros((6, 6)), -np.ones((6, 6))):
        solution = attsvm.solve_svm(problem, selected, norm=p, warm_start=warm)
        assert gap_by_hand(problem, selected, solution, p) <= allowed_gap(p)


@pytest.mark.parametrize("method", ["newton", "interior-point"])
@pytest.mark.parametrize("p", [1.3, 1.75, 2.5, 3.5])
def test_forced_methods_agree(method, p):
    problem, selected = random_case(2)
    solution = attsvm.solve_svm(problem, selected, norm=p, method=method)
    assert solution.stats["method"] == method
    assert gap_by_hand(problem, selected, solution, p) <= 1e-10
