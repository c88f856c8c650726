"""The head's own SVM, and the finite weights that share attention among tokens kept together."""

import cvxpy as cp
import numpy as np
import pytest
import scipy

import attsvm


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
@pytest.mark.parametrize("num_queries", [None, 3])
def test_the_head_is_the_max_margin_classifier_of_what_is_selected(p, num_queries):
    problem = attsvm.datasets.random_problem(4, 5, 16, seed=1, num_queries=num_queries)
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_head(problem, selected, p)
    index = selected.reshape(4, -1)
    kept = problem.tokens[np.arange(4)[:, None], index]
    signed = (problem.labels.reshape(4, -1)[..., None] * kept).reshape(-1, 16)
    v = cp.Variable(16)
    peer = cp.Problem(cp.Minimize(cp.pnorm(v, p)), [signed @ v >= 1])
    peer.solve(solver=cp.CLARABEL)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(peer.value, rel=1e-6)
    assert (signed @ solution.direction).min() >= 1 - 1e-12
    assert solution.support.shape == solution.dual.shape == selected.shape
    tight = np.abs(signed @ solution.direction - 1) < 1e-7
    assert np.array_equal(solution.support.reshape(-1), tight)


def test_a_head_in_batches_with_padded_queries():
    whole = attsvm.datasets.random_problem(3, 4, 7, seed=2, num_queries=2, batch=(5,))
    query_mask = np.ones((3, 2), bool)
    query_mask[1, 1] = False
    arrays = {name: getattr(whole, name) for name in ("tokens", "labels", "queries", "head")}
    problem = attsvm.Problem(**arrays, query_mask=query_mask)
    selected = attsvm.optimal_tokens(problem)
    together = attsvm.solve_head(problem, selected)
    assert together.direction.shape == (5, 7)
    assert not together.support[:, 1, 1].any()
    for i in range(5):
        alone = attsvm.solve_head(problem[i], selected[i])
        assert np.allclose(together[i].direction, alone.direction, rtol=0, atol=1e-12)
        assert together[i].support.tolist() == alone.support.tolist()


def test_contradicting_labels_leave_no_head():
    problem = attsvm.Problem(np.ones((2, 1, 3)), labels=[1, -1])
    assert attsvm.solve_head(problem, [0, 0]).status == "infeasible"
    with pytest.raises(attsvm.ProblemError, match="expected labels -1 and 1"):
        attsvm.solve_head(attsvm.Problem(np.ones((2, 1, 3))), [0, 0])
    with pytest.raises(attsvm.ProblemError, match="got sets of tokens"):
        attsvm.solve_head(attsvm.Problem(np.eye(2)[None], labels=[1]), [[True, True]])


@pytest.mark.parametrize("prompt", [False, True])
def test_the_finite_part_gives_the_ratios_and_is_the_smallest(prompt):
    problem = attsvm.datasets.random_problem(3, 5, 8, seed=0, prompt=prompt)
    generator = np.random.default_rng(1)
    sets = np.zeros((3, 5), bool)
    sets[0, [1, 3]] = sets[1, [0, 2, 4]] = sets[2, 2] = True
    attention = generator.uniform(0.1, 1, (3, 5))
    found = attsvm.finite_part(problem, attention, sets)
    assert found.residual < 1e-12
    W = found.weights[:, None] if prompt else found.weights
    queries = np.ones((3, 1)) if prompt else problem.queries
    logits = np.einsum("ntd,de,ne->nt", problem.tokens, W, queries)
    for i in range(3):
        kept = np.flatnonzero(sets[i])
        assert np.ptp(logits[i, kept] - np.log(attention[i, kept])) < 1e-12
    # smallest: it lies in the span of the rows that ask for the ratios
    rows = [
        np.outer(problem.tokens[i, kept[0]] - problem.tokens[i, t], queries[i]).ravel()
        for i in range(3)
        for kept in [np.flatnonzero(sets[i])]
        for t in kept[1:]
    ]
    within = np.linalg.lstsq(np.array(rows).T, W.ravel())[0] @ np.array(rows)
    assert np.allclose(within, W.ravel(), atol=1e-12)


def test_one_token_a_query_has_no_finite_part_and_impossible_ratios_show():
    problem = attsvm.datasets.random_problem(3, 5, 4, seed=0)
    found = attsvm.finite_part(problem, np.ones((3, 5)), [0, 1, 2])
    assert not found.weights.any()
    assert found.residual == 0
    same = attsvm.Problem(np.ones((1, 2, 3)), queries=np.ones((1, 3)))
    assert attsvm.finite_part(same, [[0.2, 0.8]], [[True, True]]).residual == pytest.approx(np.log(4))
    with pytest.raises(attsvm.ProblemError, match="kept tokens, got 0"):
        attsvm.finite_part(same, [[0.0, 1.0]], [[True, True]])


def test_the_combined_prediction_is_as_near_as_the_published_one(reference):
    data = reference("nonlinear_head.npz")
    cases = [name.removesuffix("_status") for name in data.files if name.endswith("_status") and data[name] == "ok"]
    assert len(cases) == 7
    for case in cases:
        problem = attsvm.Problem(data[f"{case}_X"], queries=data[f"{case}_Z"])
        attention, trained = data[f"{case}_softmax"], data[f"{case}_W_at"][-1]
        found = attsvm.svm.combined_prediction(problem, trained, attention > 1e-3)
        ours, published = (attsvm.direction_error(W, trained) for W in (found.weights, data[f"{case}_svm_eq"]))
        assert ours <= 1.01 * published
        # its attention is that of its weights, and the largest difference is as large as stated
        logits = np.einsum("ntd,de,ne->nt", problem.tokens, found.weights, problem.queries)
        assert found.probabilities == pytest.approx(scipy.special.softmax(logits, axis=-1), abs=1e-9)
        logits = np.einsum("ntd,de,ne->nt", problem.tokens, trained, problem.queries)
        errors = np.abs(scipy.special.softmax(logits, axis=-1) - found.probabilities)
        assert found.probability_error == pytest.approx(errors.max(), abs=1e-12)
        # and it is nearer than the direction alone, or there is nothing to add, which rounding may see either way
        assert ours <= attsvm.direction_error(found.solution.direction, trained) * (1 + 1e-13)


def test_weights_and_their_attention_have_the_same_finite_part():
    for num_queries, prompt in ((None, False), (3, False), (None, True)):
        problem = attsvm.datasets.random_problem(3, 5, 8, seed=0, num_queries=num_queries, prompt=prompt)
        weights = np.random.default_rng(1).standard_normal((2, 8) if prompt else (2, 8, 8))
        if prompt:
            logits = np.einsum("rk,ntk->rnt", weights, problem.tokens)
        else:
            logits = np.einsum("rke,n...e,ntk->rn...t", weights, problem.queries, problem.tokens)
        attention = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        sets = np.zeros(attention.shape, bool)
        sets[..., :2] = True
        of_weights = attsvm.finite_part(problem, weights, sets)
        of_attention = attsvm.finite_part(problem, attention, sets)
        np.testing.assert_allclose(of_weights.weights, of_attention.weights, atol=1e-12)
        assert of_weights[1].weights.shape == weights.shape[1:]


def test_square_arrays_are_told_apart_by_their_sums():
    problem = attsvm.datasets.random_problem(4, 4, 4, seed=0)
    attention, sets = np.full((4, 4), 0.25), np.arange(4) < np.array([[2], [2], [1], [1]])
    assert not attsvm.finite_part(problem, attention, sets).weights.any()
    assert attsvm.finite_part(problem, 4 * attention, sets).weights.any()
    with pytest.raises(attsvm.ProblemError, match=r"expected shape \(4, 4\) or \(4, 4\), got \(4, 5\)"):
        attsvm.finite_part(problem, np.ones((4, 5)), sets)
