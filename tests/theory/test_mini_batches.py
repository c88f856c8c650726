"""The direction of largest expected margin of a batch, against CVXPY and against every batch written out."""

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.theory import mini_batch_direction
from oracles.att_svm import convex_norm, explicit_rows
from oracles.norms import norm_and_dual


def every_batch(n, size):
    return list(combinations(range(n), size))


def largest_expected_margin(rows, places, n, size, shape, norm):
    """max E_B[min over the rows of B], with one variable for each batch; batches without rows count 0."""
    sequences = np.array([i for i, *_ in places])
    batches = [np.isin(sequences, batch) for batch in every_batch(n, size)]
    W, least = cp.Variable(shape), cp.Variable(len(batches))
    images = rows @ cp.vec(W, order="C")
    bounds = [least[k] <= images[mask] for k, mask in enumerate(batches) if mask.any()]
    empty = [least[k] == 0 for k, mask in enumerate(batches) if not mask.any()]
    goal = cp.Maximize(cp.sum(least) / len(batches))
    return cp.Problem(goal, [*bounds, *empty, convex_norm(norm)(W) <= 1]).solve(solver=cp.CLARABEL)


def expected_margin(rows, places, n, size, weights):
    images, sequences = rows @ weights.ravel(), np.array([i for i, *_ in places])
    return np.mean(
        [images[np.isin(sequences, batch)].min(initial=np.inf) if np.isin(sequences, batch).any() else 0.0
         for batch in every_batch(n, size)]
    )  # fmt: skip


@pytest.mark.parametrize("norm", ["frobenius", "linf", "l1.5", "spectral", "nuclear"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_value_is_that_of_cvxpy_over_every_batch(norm, size):
    problem = attsvm.datasets.random_problem(6, 4, 4, seed=size)
    selected = attsvm.optimal_tokens(problem)
    found = mini_batch_direction(problem, selected, size, norm)
    rows, *_, places = explicit_rows(problem.tokens, problem.queries, selected)
    expected = largest_expected_margin(rows, places, 6, size, (4, 4), norm)
    assert found.status == "optimal"
    assert found.gap <= 1e-8
    # Clarabel stops at relative gaps of 1e-8, and its power cones at larger ones
    assert found.value == pytest.approx(expected, rel=1e-6)
    assert expected_margin(rows, places, 6, size, found.direction) == pytest.approx(found.value, rel=1e-9)


def test_masks_queries_and_ragged_sequences_count_as_written_out():
    generator = np.random.default_rng(3)
    tokens, queries = generator.standard_normal((4, 5, 3)), generator.standard_normal((4, 2, 3))
    mask = np.ones((4, 5), bool)
    mask[0, 3:] = mask[3, 1:] = False  # the last sequence has one token, and so no margin
    problem = attsvm.Problem(tokens, queries=queries, mask=mask)
    selected = np.where(mask[:, None], (tokens @ generator.standard_normal((3, 3)) @ queries.mT).mT, -np.inf).argmax(-1)
    allowed = np.broadcast_to(mask[:, None], (4, 2, 5))
    rows, *_, places = explicit_rows(tokens, queries, selected, allowed)
    for size in (1, 2, 4):
        found = mini_batch_direction(problem, selected, size)
        expected = largest_expected_margin(rows, places, 4, size, (3, 3), "frobenius")
        assert found.value == pytest.approx(expected, rel=1e-6)
        assert expected_margin(rows, places, 4, size, found.direction) == pytest.approx(found.value, rel=1e-9)
        assert found.margins[3] == np.inf
        assert found.dual.shape == (4, 2, 5)
        assert not found.dual[3].any()


@pytest.mark.parametrize("norm", ["frobenius", "linf", "spectral"])
def test_multipliers_prove_the_bound(norm):
    """They lie in the permutahedron of the weights, and N*(A*(λ)) bounds the ordered margin of any weights."""
    problem = attsvm.datasets.random_problem(6, 5, 4, seed=5, batch=(2,))
    found = mini_batch_direction(problem, attsvm.optimal_tokens(problem), 2, norm)
    for k in range(2):
        one = found[k]
        sums = np.sort(one.sequence_multipliers)[::-1]
        assert (np.cumsum(sums) <= np.cumsum(one.order_weights) + 1e-12).all()
        assert sums.sum() == pytest.approx(one.order_weights.sum(), rel=1e-12)
        assert (one.dual >= 0).all()
        rows, *_, places = explicit_rows(problem.tokens[k], problem.queries[k], one.selected)
        pull = sum(one.dual[i, t] * row for (i, _, t), row in zip(places, rows, strict=True)).reshape(4, 4)
        assert norm_and_dual(norm)[1](pull) == pytest.approx(one.bound, rel=1e-9)
        assert one.bound * (1 - 1e-8) <= one.value <= one.bound


def test_batch_of_all_sequences_is_the_att_svm():
    problem = attsvm.datasets.random_problem(6, 8, 10, seed=0, batch=(3,))
    selected = attsvm.optimal_tokens(problem)
    found, solution = mini_batch_direction(problem, selected, 6), attsvm.solve_svm(problem, selected)
    assert not found.changed.any()
    assert attsvm.direction_error(found, solution) == pytest.approx(0, abs=1e-12)
    assert found.value * solution.value == pytest.approx(1, rel=1e-10)


def test_direction_is_that_of_the_att_svm_exactly_where_it_is_not_changed():
    """``changed`` follows from the multipliers or from the margins; the directions decide here."""
    problem = attsvm.datasets.random_problem(6, 4, 6, seed=2, batch=(20,))
    selected = attsvm.optimal_tokens(problem)
    kept = 0
    for size in (1, 2, 3):
        found = mini_batch_direction(problem, selected, size)
        error = attsvm.direction_error(found, found.att_svm)
        # a loss of the ordered margin of 1e-8 is the smallest that counts, and the cosine loses at least as much
        assert ((error > 1e-8) == found.changed).all()
        assert (found.changed == (found.excess > 1 + 1e-9)).all()
        kept += (~found.changed).sum()
    assert 0 < kept < 60


def test_direction_exists_where_the_selection_cannot_be_separated():
    # the second sequence asks for the opposite of half of the first
    problem = attsvm.Problem([[[2.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]]])
    one = mini_batch_direction(problem, [0, 0], 1)
    assert attsvm.solve_svm(problem, [0, 0]).status == "infeasible"
    assert one.status == "optimal"
    assert one.changed
    assert one.direction == pytest.approx([1, 0], abs=1e-12)
    assert one.value == pytest.approx(0.5, rel=1e-12)
    both = mini_batch_direction(problem, [0, 0], 2)
    assert both.status == "infeasible"
    assert np.isnan(both.direction).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 7}, "batch_size: expected an integer"),
        ({"batch_size": 2, "norm": "gamma2"}, "norm: gamma2 does not provide"),
        ({"batch_size": 2, "tol": 0}, "tol: expected a number > 0"),
    ],
)
def test_errors_say_what_does_not_fit(options, message):
    problem = attsvm.datasets.random_problem(6, 4, 3, seed=0)
    with pytest.raises(attsvm.ProblemError, match=message):
        mini_batch_direction(problem, attsvm.optimal_tokens(problem), **options)


def test_sets_and_attention_heads_are_refused():
    problem = attsvm.datasets.random_problem(4, 4, 3, seed=0)
    sets = np.zeros((4, 4), bool)
    sets[:, :2] = True
    with pytest.raises(attsvm.ProblemError, match="one token for each query"):
        mini_batch_direction(problem, sets, 2)
    heads = attsvm.datasets.random_problem(4, 4, 3, seed=0, num_heads=2)
    with pytest.raises(attsvm.ProblemError, match="one attention head"):
        mini_batch_direction(heads, np.zeros((2, 4), int), 2)
