"""The whole family on random problems of every kind: against a conic solver, and by certificates alone."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import attsvm
from harness.exact import Rows, check_solution
from oracles.att_svm import at, by_cvxpy, explicit_rows
from oracles.norms import norm_and_dual

pytest.importorskip("cvxpy")

NORMS = ("frobenius", "l1", "l1.3", "l1.75", "l3", "l8", "linf", "nuclear", "spectral")


class Case(NamedTuple):
    """A problem with its selection, and the arrays they were made of."""

    problem: attsvm.Problem
    selected: np.ndarray
    relaxed: np.ndarray | None
    keys: np.ndarray
    queries: np.ndarray | None
    allowed: np.ndarray

    @property
    def shape(self):
        """The shape of the weights, of one column for a prompt."""
        return self.keys.shape[-1], 1 if self.queries is None else self.queries.shape[-1]

    def rows(self):
        """The constraints, written out by loops."""
        return explicit_rows(self.keys, self.queries, self.selected, self.allowed, self.relaxed)


@st.composite
def cases(draw):
    """Sizes around the border of feasibility.

    A prompt, one query a sequence, several, or causal ones; ragged, masked or whole sequences; keys of their own;
    tokens or sets of them; relaxed queries.
    """
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["prompt", "one query", "several queries", "causal"]))
    n, T, d = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    Q = {"several queries": draw(st.integers(1, 3)), "causal": T}.get(kind)
    shape = (n,) if Q is None else (n, Q)
    tokens = generator.standard_normal((n, T, d))
    if draw(st.booleans()):
        tokens = np.round(tokens)  # duplicates, and rows that depend on each other
    if kind == "causal":
        queries, keys = tokens, tokens
    else:
        queries = None if kind == "prompt" else generator.standard_normal((*shape, draw(st.integers(1, 5))))
        keys = generator.standard_normal((n, T, draw(st.integers(1, 5)))) if draw(st.booleans()) else tokens
    allowed = np.ones((*shape, T), bool)
    if kind == "causal":
        allowed &= np.tri(T, dtype=bool)
    shortened = draw(st.sampled_from(["whole", "ragged", "masked"]))
    if shortened == "ragged":
        lengths = generator.integers(1, T + 1, n)
        allowed &= (np.arange(T) < lengths[:, None]).reshape(n, *[1] * (len(shape) - 1), T)
    elif shortened == "masked":
        allowed &= generator.random(allowed.shape) < 0.7
    allowed[..., 0] = True
    selected = np.where(allowed, generator.random(allowed.shape), -1).argmax(axis=-1)
    if draw(st.booleans()):
        kept = allowed & (generator.random(allowed.shape) < 0.25)
        np.put_along_axis(kept, selected[..., None], True, axis=-1)
        selected = kept
    relaxed = generator.random(shape) < 0.4 if draw(st.booleans()) else None
    problem = attsvm.Problem(tokens, queries=queries, mask=allowed, keys=None if keys is tokens else keys)
    spelled = allowed if Q is not None else allowed[:, None]
    return Case(problem, selected, relaxed, keys, queries, spelled)


def accept(case, solution, norm):
    """Accept an answer by its own numbers, in exact arithmetic, or fail."""
    assert check_solution(Rows.of_problem(case.problem, case.selected, case.relaxed), norm, solution) == ""
    if solution.status == "infeasible":
        assert solution.bound > 1e12
    else:
        assert solution.status == "optimal"
        rows, right, _, _ = case.rows()
        assert solution.gap <= (max(1e-10, 1e-15 * solution.value) if norm == "frobenius" else 1e-8)
        margin = (rows @ solution.direction.ravel())[right > 0].min() / solution.value
        assert solution.margin == pytest.approx(margin, rel=1e-12)


@pytest.mark.filterwarnings("ignore:pnorm with p=1.3", "ignore:Solution may be inaccurate")
@pytest.mark.parametrize("name", NORMS)
def test_random_problems_of_every_kind_agree_with_a_conic_solver(name):
    """Value, feasibility and certificate; each status in at least a fifth of the examples."""
    seen = {"optimal": 0, "infeasible": 0}

    @seed(0)  # examples that do not depend on the text of the test
    @settings(max_examples=120)
    @given(cases())
    def agrees(case):
        solution = attsvm.solve_svm(case.problem, case.selected, name, relaxed=case.relaxed)
        rows, right, equality, _ = case.rows()
        seen[solution.status] += 1
        if not (right > 0).any():
            assert (solution.status, solution.value) == ("optimal", 0.0)
            return
        accept(case, solution, name)
        status, value = by_cvxpy(rows, right, equality, name, case.shape)
        if solution.status == "infeasible":
            assert status.startswith("infeasible")
        else:
            assert status.startswith("optimal")
            assert solution.value == pytest.approx(value, rel=1e-6 if status == "optimal" else 1e-3)

    agrees()
    assert min(seen.values()) >= sum(seen.values()) / 5, seen


@settings(max_examples=40)
@given(st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_any_exponent_is_optimal_or_says_how_far_it_is(reciprocal, seed):
    """1/p anywhere in [0, 1]: the gap that is reported is the gap that there is."""
    generator = np.random.default_rng(seed)
    keys, queries = generator.standard_normal((3, 4, 3)), generator.standard_normal((3, 3))
    selected = generator.integers(0, 4, 3)
    p = 1 / reciprocal if reciprocal > 1e-12 else np.inf
    solution = attsvm.solve_svm(attsvm.Problem(keys, queries=queries), selected, norm=p)
    rows, right, _, places = explicit_rows(keys, queries, selected)
    lengths, dual = np.linalg.norm(rows, axis=1), at(places, solution.dual, False)
    if solution.status == "infeasible":
        assert (dual * lengths) @ right > 1e12 * norm_and_dual(p)[1](rows.T @ dual)
        return
    norm, dual_norm = norm_and_dual(p)
    upper = norm(solution.direction.ravel()) / (rows @ solution.direction.ravel()).min()
    gap = 1 - right @ dual / dual_norm(rows.T @ dual) / upper
    assert gap == pytest.approx(solution.gap, rel=1e-3, abs=1e-11)
    assert (solution.status == "optimal") == (solution.gap <= 1e-8)


def feasible_arrays(seed, n=4, T=5, d=6):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n, T, d)), generator.standard_normal((n, d)), generator.integers(0, T, n)


def has_one_solution(name):
    return name not in ("l1", "linf", "spectral")


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("seed", range(3))
def test_permuted_tokens_and_sequences_permute_the_answer(name, seed):
    tokens, queries, selected = feasible_arrays(seed)
    n, T, _ = tokens.shape
    generator = np.random.default_rng(100 + seed)
    plain = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected, norm=name)
    sequences = generator.permutation(n)
    orders = np.stack([generator.permutation(T) for _ in range(n)])  # new position t holds old token orders[i, t]
    moved = np.take_along_axis(tokens[sequences], orders[..., None], axis=1)
    chosen = (orders == selected[sequences, None]).argmax(axis=1)
    permuted = attsvm.solve_svm(attsvm.Problem(moved, queries=queries[sequences]), chosen, norm=name)
    assert permuted.value == pytest.approx(plain.value, rel=2e-8)
    if has_one_solution(name):
        assert np.linalg.norm(permuted.direction - plain.direction) <= 1e-4 * np.linalg.norm(plain.direction)
        expected = np.take_along_axis(plain.dual[sequences], orders, axis=1)
        np.testing.assert_allclose(permuted.dual, expected, atol=1e-4 * plain.dual.max())


@pytest.mark.parametrize("name", NORMS)
def test_a_batch_is_its_members(name):
    """Two leading axes; some members infeasible, one with fewer tokens, one with a query of zeros."""
    generator = np.random.default_rng(3)
    tokens, queries = generator.standard_normal((2, 4, 3, 5, 4)), generator.standard_normal((2, 4, 3, 4))
    queries[0, 1, 1] = queries[0, 1, 0]
    queries[1, 2, 0] = 0
    selected = generator.integers(0, 5, (2, 4, 3))
    tokens[0, 1, 1] = tokens[0, 1, 0]
    selected[0, 1, 1] = (selected[0, 1, 0] + 1) % 5
    mask = np.ones((2, 4, 3, 5), bool)
    mask[1, 1] = generator.random((3, 5)) < 0.5
    np.put_along_axis(mask, selected[..., None], True, axis=-1)
    problem = attsvm.Problem(tokens, queries=queries, mask=mask)
    together = attsvm.solve_svm(problem, selected, norm=name)
    assert {together.status[0, 1], together.status[1, 2]} == {"infeasible"}
    assert np.count_nonzero(together.status == "optimal") >= 4
    for index in np.ndindex(2, 4):
        alone = attsvm.solve_svm(problem[index], selected[index], norm=name)
        assert together.status[index] == alone.status
        if alone.status == "optimal":
            assert together.value[index] == pytest.approx(alone.value, rel=2e-8)
            case = Case(problem[index], selected[index], None, tokens[index], queries[index], mask[index][:, None])
            accept(case, together[index], name)
