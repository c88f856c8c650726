"""Gains on the keys and rotated keys and queries: where training ends, in which norm, and what is refused."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, optimizers
from attsvm.datasets import random_problem
from attsvm.norms import Lp, OnRows, Rotary, SumOfHeads
from oracles.results import assert_survives_a_file

ROWS = OnRows(Lp(1.0))


def least_sum_of_rows(problem, selected):
    """The least Σ ‖row‖ with margins of 1, by CVXPY."""
    W = cp.Variable((problem.key_dim, problem.query_dim))
    margins = [
        (problem.tokens[i, kept] - problem.tokens[i, t]) @ W @ problem.queries[i] >= 1
        for i, kept in enumerate(selected)
        for t in range(problem.num_tokens)
        if t != kept
    ]
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(W, 2, axis=1))), margins).solve(solver=cp.CLARABEL)


def test_a_gain_and_its_matrix_maximise_the_margin_in_the_sum_of_the_rows():
    problem = random_problem(4, 6, 8, seed=41_001, batch=(2,))
    run = attsvm.train(problem, attention="gain", steps=40_000, record=[0, 39_999, 40_000])
    np.testing.assert_allclose(run.weights, run.parameters["g"][..., None] * run.parameters["W"], rtol=1e-12)
    prediction = attsvm.predict_direction(problem, run)
    assert (prediction.norm, prediction.standing) == (ROWS, "measured")
    # fewer steps than were measured
    few = attsvm.train(problem[0], attention="gain", steps=1000)
    assert attsvm.predict_direction(problem[0], few).standing == "conjecture"
    for k in range(len(run)):
        oracle = least_sum_of_rows(problem[k], run.selected[k])  # exact to about 1e-8
        assert prediction.solution.value[k] == pytest.approx(oracle, rel=1e-6)
    ratio = attsvm.margin_ratio(problem, run, norm=ROWS)
    assert ratio.min() > 0.99
    assert ratio.max() < 1
    # the criterion tells the norms apart
    assert attsvm.margin_ratio(problem, run, norm="frobenius").max() < 0.97
    assert attsvm.margin_ratio(problem, run, norm="nuclear").max() < 0.99


def test_gains_of_attention_heads_have_the_sum_of_their_norms():
    problem = random_problem(3, 4, 5, seed=41_002, num_heads=2)
    run = attsvm.train(problem, attention="gain", steps=30_000)
    assert (run.parameters["g"].shape, run.weights.shape) == ((2, 5), (2, 5, 5))
    assert attsvm.predict_direction(problem, run).norm == SumOfHeads(ROWS)
    assert 0.97 < attsvm.margin_ratio(problem, run, norm=SumOfHeads(ROWS)) < 1


def test_a_run_with_a_gain_is_saved_and_resumed_and_trained_in_single_precision(tmp_path):
    problem = random_problem(3, 4, 5, seed=3, batch=(2,))
    run = attsvm.train(problem, attention="gain", steps=200, record=[0, 20, 200])
    assert_survives_a_file(run, tmp_path)
    run.save(tmp_path / "run.npz")
    resumed = attsvm.train(problem, init=attsvm.Run.load(tmp_path / "run.npz"), steps=200)
    np.testing.assert_array_equal(resumed.weights, attsvm.train(problem, attention="gain", steps=400).weights)
    rough = attsvm.train(problem, attention="gain", steps=20, dtype="float32")
    np.testing.assert_allclose(rough.weights, run.history["weights"][1], atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ({"prompt": True}, {}, "attention: expected a problem with queries for 'gain'"),
        ({"num_heads": 2, "key_groups": 1}, {}, "attention: expected 'factored' for a problem with key_groups, got"),
        ({}, {"rank": 2}, "rank: expected None for gain attention, got 2"),
        ({}, {"fixed": ("K",)}, "fixed: expected some of g, W, v, got 'K'"),
    ],
)
def test_what_a_gain_does_not_take_is_refused(arguments, options, message):
    with pytest.raises(ProblemError, match=message):
        attsvm.train(random_problem(3, 4, 5, seed=0, **arguments), attention="gain", steps=1, **options)


def test_steps_on_a_gain_without_a_known_norm_need_one():
    problem = random_problem(3, 4, 5, seed=0)
    for optimizer in (optimizers.adam(), optimizers.normalized_gradient_descent(0.03, scope="each")):
        run = attsvm.train(problem, attention="gain", optimizer=optimizer, steps=100)
        with pytest.raises(ProblemError, match="norm: expected the norm of the Att-SVM to compare with, because"):
            attsvm.predict_direction(problem, run)


FREQUENCIES = (1.0, 0.5, 0.25, 0.1)


def turned(vector, position, frequencies):
    """The pairs of a projected key or query, rotated as in RoPE."""
    pairs = np.reshape(vector, (-1, 2)) @ [1, 1j]
    return pairs * np.exp(1j * np.asarray(frequencies) * position)


def test_rotated_logits_are_those_of_rope():
    generator = np.random.default_rng(0)
    X, Z = generator.normal(size=(2, 3, 4, 5)), generator.normal(size=(2, 3, 2, 6))
    K, Q = generator.normal(size=(2, 5, 8)), generator.normal(size=(2, 6, 8))
    mask, labels = generator.random((3, 2, 4)) < 0.8, generator.choice([-1.0, 1.0], size=(3, 2))
    mask[..., 0] = True
    at, of_queries = generator.integers(9, size=(3, 4)), generator.integers(9, size=(2, 3, 2))
    problem = attsvm.Problem(X, labels, Z, np.ones(5), mask=mask)
    rotated = problem.with_rotations(FREQUENCIES, at, of_queries)
    assert rotated.tokens.shape == (2, 6, 4, 5)
    np.testing.assert_array_equal(rotated.mask[0], mask.reshape(6, 4))
    np.testing.assert_array_equal(rotated.labels[0], labels.ravel())
    run = attsvm.train(rotated, attention="rotary", init=(K, Q), steps=0)
    logits = attsvm.measures.token_logits(rotated, run.weights).reshape(2, 3, 2, 4)
    for b, i, q, t in np.argwhere(np.broadcast_to(mask, logits.shape)):
        key = turned(X[b, i, t] @ K[b], at[i, t], FREQUENCIES)
        query = turned(Z[b, i, q] @ Q[b], of_queries[b, i, q], FREQUENCIES)
        assert logits[b, i, q, t] == pytest.approx(np.vdot(key, query).real, abs=1e-12)
    # each frequency has a matrix of rank one, and the norm is a bound on the factors
    norm = Rotary(4)
    assert (np.linalg.matrix_rank(norm.blocks(run.weights)) == 1).all()
    assert (norm.values(run.weights) <= 0.5 * (np.square(K).sum(axis=(1, 2)) + np.square(Q).sum(axis=(1, 2)))).all()
    # the position of all queries is free
    moved = problem.with_rotations(FREQUENCIES, at, of_queries + 2.5)
    selected = np.zeros((2, 6), int)
    values = [attsvm.solve_svm(one, selected, norm=norm).value for one in (rotated, moved)]
    np.testing.assert_allclose(*values, rtol=2e-8)


def test_default_positions_and_padded_queries():
    problem = random_problem(3, 4, 5, seed=0)
    behind = problem.with_rotations([0.7], np.arange(4), np.full(3, 4))
    np.testing.assert_array_equal(problem.with_rotations([0.7]).keys, behind.keys)
    own = attsvm.Problem(problem.tokens, np.ones((3, 4)), problem.tokens, np.ones(5))
    np.testing.assert_array_equal(
        own.with_rotations([0.7]).keys, own.with_rotations([0.7], query_positions=np.tile(np.arange(4), (3, 1))).keys
    )
    active = np.arange(4) < np.array([[4], [2], [3]])
    padded = attsvm.Problem(problem.tokens, np.ones((3, 4)), problem.tokens, np.ones(5), query_mask=active)
    rotated = padded.with_rotations([0.7])
    np.testing.assert_array_equal(rotated.query_mask[:, 0], active.ravel())
    run = attsvm.train(rotated, attention="rotary", steps=300)
    np.testing.assert_array_equal(run.selected[:, 0] >= 0, active.ravel())


def test_rotated_keys_and_queries_maximise_the_margin_where_the_bound_is_attained():
    problem = random_problem(3, 4, 5, seed=41_003, batch=(4,)).with_rotations(FREQUENCIES)
    run = attsvm.train(problem, attention="rotary", steps=30_000, record=[0, 29_999, 30_000])
    norm, found = Rotary(4), [attsvm.predict_direction(problem[k], run[k]) for k in range(4)]
    ratios = attsvm.margin_ratio(problem, run, norm=norm)
    attained = [np.linalg.matrix_rank(norm.blocks(one.direction), tol=1e-6).max() <= 1 for one in found]
    assert sum(attained) >= 2
    for one, ratio, rank_one in zip(found, ratios, attained, strict=True):
        assert one.norm == norm
        assert one.solution.status == "optimal"
        (rank,) = (each for each in one.hypotheses if each.name == "rank_one")
        assert rank.holds is bool(rank_one)
        assert one.standing == ("measured" if rank_one else "none")
        (near,) = (each for each in one.hypotheses if each.name == "near")
        assert near.number == pytest.approx(ratio, rel=1e-6)  # the gap to the bound is reported in either case
        assert ratio > (0.98 if rank_one else 0.9)
    # the criterion tells the norms apart
    assert attsvm.margin_ratio(problem, run, norm="nuclear").max() < 0.98
    assert attsvm.margin_ratio(problem, run, norm="frobenius").max() < 0.95


def test_rotated_heads_single_precision_fixed_keys_and_files(tmp_path):
    several = random_problem(3, 4, 5, seed=1, num_heads=2).with_rotations([1.0, 0.2])
    run = attsvm.train(several, attention="rotary", steps=2000)
    assert (run.parameters["K"].shape, run.weights.shape) == ((2, 5, 4), (2, 20, 5))
    assert attsvm.predict_direction(several, run).norm == SumOfHeads(Rotary(2))
    problem = random_problem(3, 4, 5, seed=1, batch=(2,)).with_rotations([1.0, 0.2])
    first = attsvm.train(problem, attention="rotary", steps=200, record=[0, 20, 200])
    assert_survives_a_file(first, tmp_path)
    resumed = attsvm.train(problem, init=first, steps=200)
    np.testing.assert_array_equal(resumed.weights, attsvm.train(problem, attention="rotary", steps=400).weights)
    rough = attsvm.train(problem, attention="rotary", steps=20, dtype="float32")
    np.testing.assert_allclose(rough.weights, first.history["weights"][1], atol=1e-4)
    alone = attsvm.train(problem, attention="rotary", fixed=("K",), steps=5000)
    prediction = attsvm.predict_direction(problem, alone)
    assert prediction.norm == Lp(2.0)
    assert attsvm.direction_error(alone.weights, prediction.direction, axis=(-2, -1)).max() < 1e-3
    stopped = attsvm.train(problem, attention="rotary", steps=20_000, stop=attsvm.Stopping(margin_tol=1e-2))
    assert (stopped.status == "converged").all()


@pytest.mark.parametrize("attention", ["gain", "rotary"])
def test_a_trained_prediction_head_is_short_in_the_euclidean_norm(attention):
    problem = random_problem(3, 4, 5, seed=5).with_rotations([1.0, 0.3])
    run = attsvm.train(problem, attention=attention, steps=500, train_head=True)
    found, head = attsvm.predict_direction(problem, run).head, attsvm.solve_head(problem, run.selected)
    np.testing.assert_allclose(found.direction, head.direction, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: attsvm.train(p, attention="rotary", steps=1), "attention: expected the problem of Problem.with_rot"),
        (
            lambda p: attsvm.train(
                attsvm.Problem(**p.arrays() | {"keys": np.ones((3, 4, 20)) * np.arange(20)}),
                attention="rotary",
                steps=1,
            ),
            "attention: expected the problem of Problem.with_rot",
        ),
        (lambda p: attsvm.train(p.with_rotations([1.0]), attention="rotary", rank=4, steps=1), "rank: expected None"),
        (
            lambda p: attsvm.train(p.with_rotations([1.0]), attention="rotary", fixed=("Q",), steps=1),
            "fixed: expected K",
        ),
        (lambda p: p.with_rotations([[1.0]]), r"frequencies: expected finite angles of shape \(J,\), got shape"),
        (lambda p: p.with_rotations([np.nan]), "frequencies: expected finite angles"),
        (lambda p: p.with_rotations([1.0], [0, 1]), r"positions: expected shape \(4,\) or \(3, 4\)"),
        (lambda p: p.with_rotations([1.0], query_positions=[0, np.inf, 1]), "query_positions: expected finite"),
        (lambda p: p.with_rotations([1.0], np.arange(4)), r"query_positions: expected shape \(3,\), got none"),
        (
            lambda p: p.with_rotations([1.0]).with_rotations([1.0]),
            "keys: expected d_k = d = 5 for rotations, got d_k = 10",
        ),
        (lambda p: random_problem(3, 4, 5, prompt=True).with_rotations([1.0]), "problem: expected queries"),
        (
            lambda p: attsvm.train(
                random_problem(3, 4, 5, num_heads=2, key_groups=1).with_rotations([1.0]), attention="rotary", steps=1
            ),
            "attention: expected 'factored' for a problem with key_groups, got 'rotary'",
        ),
    ],
)
def test_what_rotations_do_not_take_is_refused(call, message):
    with pytest.raises(ProblemError, match=message):
        call(random_problem(3, 4, 5, seed=0))
