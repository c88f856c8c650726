"""The nuclear and the spectral norm: the true rank, and the edges of what float64 can hold."""

import re

import numpy as np
import pytest

import attsvm
from attsvm.svm.methods.semidefinite import choice as semidefinite
from oracles.att_svm import explicit_rows, gap_by_hand, nearly_infeasible

SEEDS = range(10)


def random_case(seed, n=6, T=8, d=10):
    problem = attsvm.datasets.random_problem(n, T, d, seed)
    return problem, attsvm.optimal_tokens(problem)


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, 1e-6])
def test_nearly_infeasible_selections_keep_their_digits(epsilon, seed, norm):
    """Values up to two millions, where the rounding errors of a margin reach the tolerance."""
    problem, selected = nearly_infeasible(epsilon, seed)
    solution = attsvm.solve_svm(problem, selected, norm=norm)
    assert solution.status == "optimal" or epsilon < 1e-5
    assert solution.value > 0.5 / epsilon
    assert gap_by_hand(problem, selected, solution, norm) <= 1.1e-8


@pytest.mark.parametrize("seed", SEEDS)
def test_a_spectral_solution_has_no_component_off_the_queries(seed):
    """n = 6 < d = 10: the optimum is not unique, and this one lives where the data do."""
    problem, selected = random_case(seed)
    solution = attsvm.solve_svm(problem, selected, norm="spectral")
    basis, _ = np.linalg.qr(problem.queries.T)
    off = solution.direction - solution.direction @ basis @ basis.T
    assert np.linalg.norm(off) <= 1e-13 * np.linalg.norm(solution.direction)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_spectral_margin_ratio_of_others_is_at_most_one(seed):
    """margin(W) · value / N(W) in (0, 1] compares where directions cannot."""
    problem, selected = random_case(seed)
    solution = attsvm.solve_svm(problem, selected, norm="spectral")
    assert attsvm.margin_ratio(problem, solution.direction, selected, norm="spectral") == pytest.approx(1, abs=1e-8)
    for norm in ("frobenius", "nuclear", "l1", "linf"):
        other = attsvm.solve_svm(problem, selected, norm=norm).direction
        ratio = solution.value * smallest_margin(problem, selected, other) / np.linalg.norm(other, 2)
        assert 0 < ratio <= 1 + 1e-8


def smallest_margin(problem, selected, weights):
    rows, _, _, _ = explicit_rows(problem.tokens, problem.queries, selected)
    return (rows @ weights.ravel()).min()


def published_problem(torch, n, T, d, seed):
    """The data of the published rank experiment, as the reference file describes it."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(d, generator=generator)
    labels = torch.sign(torch.randn(n, generator=generator))
    tokens, queries = torch.randn(n, T, d, generator=generator), torch.randn(n, d, generator=generator)
    head, tokens, queries = (array / array.norm(dim=-1, keepdim=True) for array in (head, tokens, queries))
    tokens, queries = tokens.double().numpy(), queries.double().numpy()
    scores = labels.double().numpy()[:, None] * (tokens @ head.double().numpy())
    return tokens, queries, scores.argmax(axis=-1)


def test_solutions_have_their_true_rank(reference):
    """Nothing beyond it above 1e-7 of the first singular value; what is not separable is infeasible, not of rank 1."""
    torch = pytest.importorskip("torch")
    ranks = []
    for key, entry in reference("rank.json").items():
        sizes = map(int, re.match(r"n(\d+)_T(\d+)_d(\d+)", key).groups())
        n, T, d = sizes
        for seed, (_, _, expected), separable in zip(
            entry["seeds"], entry["rank_fro_nuc7_nuc4"], entry["separable"], strict=True
        ):
            tokens, queries, selected = published_problem(torch, n, T, d, seed)
            problem = attsvm.Problem(tokens, queries=queries)
            if problem.copies.first is not None:  # d = 1, where tokens are ±1: those with equal keys are one token here
                continue
            solution = attsvm.solve_svm(problem, selected, norm="nuclear")
            assert (solution.status == "optimal") == separable, (key, seed)
            assert (solution.status == "infeasible") == (not separable), (key, seed)
            if separable:
                singular_values = np.linalg.svd(solution.direction, compute_uv=False)
                assert np.count_nonzero(singular_values > 1e-4 * singular_values[0]) == expected, (key, seed)
                assert (singular_values[expected:] < 1e-7 * singular_values[0]).all(), (key, seed)
                ranks.append(expected)
    assert min(ranks) == 1
    assert max(ranks) >= 4


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
def test_many_problems_are_solved_by_one_call(norm, monkeypatch):
    """One call of each method for all of them that it is for, and a status each."""
    calls = []

    def counted(original):
        def call(part, problems, *arguments):
            calls.append(len(problems.right))
            return original(part, problems, *arguments)

        return call

    for name in ("solve_on_face", "interior_point"):
        monkeypatch.setattr(semidefinite, name, counted(getattr(semidefinite, name)))
    each = [random_case(seed) for seed in range(20)]
    parts = [(problem.tokens, problem.queries, selected) for problem, selected in each]
    tokens, queries, selected = (np.stack(part) for part in zip(*parts, strict=True))
    tokens[7, 1], queries[7, 1], selected[7, 1] = tokens[7, 0], queries[7, 0], (selected[7, 0] + 1) % 8
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected, norm=norm)
    assert (solution.status == np.where(np.arange(20) == 7, "infeasible", "optimal")).all()
    assert calls[0] == 19
    assert len(calls) <= 2
    if norm == "nuclear":  # in batches too, every problem ends on its face
        assert np.delete(solution.gap, 7).max() <= 1e-11


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
def test_an_unfinished_answer_is_no_worse_than_its_warm_start(norm):
    problem, selected = random_case(0, 12, 20, 16)  # too many rows for the Frobenius norm to come first
    done = attsvm.solve_svm(problem, selected, norm=norm)
    assert done.status == "optimal"
    short = attsvm.solve_svm(problem, selected, norm=norm, warm_start=done, callback=lambda at: True)
    assert short.status == "inaccurate"
    assert short.value == pytest.approx(done.value, rel=1e-7)
    for useless in (np.zeros((16, 16)), -done.direction):
        again = attsvm.solve_svm(problem, selected, norm=norm, warm_start=useless)
        assert again.status == "optimal"


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
def test_a_loose_tolerance_keeps_relaxed_rows_exact(norm):
    """The gap may be as large as asked; what scaling cannot repair may not."""
    for seed in range(5):
        (problem, selected), relaxed = random_case(seed), np.arange(6) % 2 == 1
        solution = attsvm.solve_svm(problem, selected, norm=norm, relaxed=relaxed, tol=1e-4)
        assert solution.status == "optimal"
        assert solution.violation <= 1e-9
        assert solution.gap <= 1e-4


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
def test_its_own_method_can_be_forced(norm):
    problem, selected = random_case(0)
    assert attsvm.solve_svm(problem, selected, norm=norm, method="semidefinite").stats["method"] == "semidefinite"
