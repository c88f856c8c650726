"""Scores, selections and local optimality against their definitions, entry by entry."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attsvm
from attsvm.datasets import random_problem
from attsvm.selection import is_locally_optimal, selection_sets


def ragged(seed, query_axis):
    generator = np.random.default_rng(seed)
    base = random_problem(4, 5, 3, seed, num_queries=3 if query_axis else None)
    mask = generator.random((4, 3, 5) if query_axis else (4, 5)) < 0.6
    mask[..., 0] = True
    query_mask = generator.random((4, 3)) < 0.7 if query_axis else None
    return attsvm.Problem(base.tokens, base.labels, base.queries, base.head, mask=mask, query_mask=query_mask)


@given(st.integers(0, 200), st.booleans())
def test_scores_and_optimal_tokens_by_their_definition(seed, query_axis):
    problem = ragged(seed, query_axis)
    gamma, best = attsvm.scores(problem), attsvm.optimal_tokens(problem)
    for index in np.ndindex(problem.query_shape):
        row = []
        for t in range(5):
            allowed = problem.mask[(*index, t)] and (problem.query_mask is None or problem.query_mask[index])
            row.append(problem.labels[index] * problem.tokens[index[0], t] @ problem.head if allowed else -np.inf)
        np.testing.assert_allclose(gamma[index], row, rtol=1e-14, atol=1e-15)
        assert best[index] == (-1 if np.isneginf(row).all() else np.argmax(row))


def test_integers_and_single_sets_mean_the_same():
    problem = ragged(1, True)
    selected = attsvm.optimal_tokens(problem)
    sets = selection_sets(problem, selected)
    assert (sets.sum(axis=-1) == problem.query_mask).all()
    np.testing.assert_array_equal(selection_sets(problem, sets), sets)
    trials = selection_sets(problem, np.stack([selected, selected]))
    assert trials.shape == (2, *sets.shape)


@pytest.mark.parametrize(
    ("selected", "message"),
    [
        ([0, 1, 2], r"selected: expected shape \(4,\) of the problem, got \(3,\)"),
        ([0, 1, 2, 5], "got 5 for query"),
        ([0, 1, 2, -1], "got -1 for query"),
        ([0.0, 1.0, 2.0, 0.0], "entries of type float64"),
        (np.zeros((4, 5), bool), "expected at least one token for each query"),
        ([0, 1, 2, 4], r"token 4 of query \(3, 0\) is masked|token 4 of query \(3,\) is masked"),
    ],
)
def test_a_wrong_selection_is_named(selected, message):
    base = random_problem(4, 5, 3)
    mask = np.ones((4, 5), bool)
    mask[3, 4] = False
    problem = attsvm.Problem(base.tokens, base.labels, base.queries, base.head, mask=mask)
    with pytest.raises(attsvm.ProblemError, match=message):
        selection_sets(problem, selected)


def test_scores_need_labels_head_and_two_classes():
    tokens = np.ones((2, 3, 4))
    with pytest.raises(attsvm.ProblemError, match="it has no labels"):
        attsvm.scores(attsvm.Problem(tokens, head=np.ones(4)))
    with pytest.raises(attsvm.ProblemError, match="it has no head"):
        attsvm.scores(attsvm.Problem(tokens, labels=[1, -1]))
    with pytest.raises(attsvm.ProblemError, match="3 classes"):
        attsvm.scores(attsvm.Problem(tokens, labels=[1, 2], head=np.ones((3, 4))))


@given(st.integers(0, 300))
def test_local_optimality_by_its_definition(seed):
    problem = random_problem(2, 4, 4, seed)
    selected = np.random.default_rng(seed).integers(0, 4, 2)
    solution = attsvm.solve_svm(problem, selected)
    if solution.status == "infeasible":
        return
    gamma = attsvm.scores(problem)
    beaten = all(
        gamma[i, selected[i]] > gamma[i, t]
        for i, t in np.ndindex(2, 4)
        if t != selected[i]
        and (problem.tokens[i, selected[i]] - problem.tokens[i, t]) @ solution.direction @ problem.queries[i] < 1 + 1e-7
    )
    assert is_locally_optimal(problem, selected, solution.support) == beaten


def test_a_tie_is_not_locally_optimal():
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    problem = attsvm.Problem(tokens, labels=[1], head=[1.0, 1.0])
    solution = attsvm.solve_svm(problem, [0])
    assert solution.support.tolist() == [[False, True]]
    assert not is_locally_optimal(problem, [0], solution.support)


def test_ties_of_optimal_tokens_and_a_head_of_zeros_are_said():
    tokens = np.array([[[1.0, 2.0], [2.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]])
    problem = attsvm.Problem(tokens, labels=[1, 1], head=[0.1, 0.1])
    with pytest.warns(UserWarning, match=r"^1 of 2 queries have several tokens with the highest score.*only one\.$"):
        assert attsvm.optimal_tokens(problem).tolist() == [0, 1]
    with pytest.warns(UserWarning, match=r"^1 of 2 queries"):
        attsvm.classify(problem, np.ones(2))
    with pytest.warns(UserWarning, match=r"^2 of 2 queries.* Every score is 0: the head is zero\.$"):
        attsvm.optimal_tokens(problem.with_head(np.zeros(2)))
    alone = attsvm.Problem(tokens, labels=[1, 1], head=[0.1, 0.1], mask=[[1, 0, 0], [1, 1, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attsvm.optimal_tokens(alone).tolist() == [0, 1]
