"""Limits under sparsemax, 1.5-entmax and sigmoid attention: the Att-SVM itself, and the SVM of tokens."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import optimizers as o
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.losses import LOGISTIC
from attsvm.optimizers import Decaying
from attsvm.theory.one_hot import largest_penalty


def svm_by_cvxpy(rows, signs=None):
    """min ‖W‖ over ± ⟨row, W⟩ ≥ 1."""
    W = cp.Variable(rows.shape[1:])
    signs = np.ones(len(rows)) if signs is None else signs
    constraints = [sign * cp.sum(cp.multiply(row, W)) >= 1 for row, sign in zip(rows, signs, strict=True)]
    cp.Problem(cp.Minimize(cp.sum_squares(W)), constraints).solve(
        cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return W.value


def gaps_of(problem, selected):
    """(x_iα − x_it) z_i' of each token that is not selected, with (i, t)."""
    n, T, _ = problem.tokens.shape
    found = [(i, t) for i in range(n) for t in range(T) if t != selected[i]]
    x, z = problem.tokens, problem.queries
    return np.array([np.outer(x[i, selected[i]] - x[i, t], z[i]) for i, t in found]), found


def sparsemax(s):
    """By sorting, as it was published."""
    ordered = -np.sort(-s, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - 1
    counts = np.arange(1, s.shape[-1] + 1)
    k = (ordered * counts > excess).sum(axis=-1)
    return np.maximum(s - (np.take_along_axis(excess, k[:, None] - 1, axis=-1) / k[:, None]), 0)


def objective(problem, W, penalty):
    attention = sparsemax(np.einsum("ntk,kq,nq->nt", problem.tokens, W, problem.queries))
    outputs = problem.labels * np.einsum("nt,ntd,d->n", attention, problem.tokens, problem.head)
    return np.mean(np.logaddexp(0, -outputs)) + penalty * np.sum(W**2)


def largest_of(problem, selected=None):
    """λ* of the optimal tokens, by default."""
    selected = attsvm.optimal_tokens(problem) if selected is None else selected
    run = SimpleNamespace(selected=selected, batch_shape=problem.batch_shape)
    return largest_penalty(problem, run, attsvm.solve_svm(problem, selected), LOGISTIC)


@pytest.mark.parametrize("seed", range(71_000, 71_006))
def test_up_to_the_largest_penalty_the_svm_is_a_local_minimum_and_beyond_it_is_none(seed):
    problem = random_problem(3, 4, 8, seed=seed)
    most = float(largest_of(problem))
    rows, places = gaps_of(problem, attsvm.optimal_tokens(problem))
    W = svm_by_cvxpy(rows)
    tight = np.flatnonzero(np.abs(np.einsum("rkq,kq->r", rows, W) - 1) < 1e-8)
    flat = rows[tight].reshape(len(tight), -1)
    generator = np.random.default_rng(seed)
    step, grows = 1e-5, []
    for row in tight:
        # the attention goes to this token alone: its margin falls twice as fast as those of its query's others
        falls = np.array([1.0 * (places[other][0] == places[row][0]) + (other == row) for other in tight])
        H = np.linalg.lstsq(flat, -falls, rcond=None)[0].reshape(W.shape)
        H /= np.linalg.norm(H)
        grows.append(
            [objective(problem, W + step * H, c * most) - objective(problem, W, c * most) for c in (0.99, 1.01)]
        )
    below, above = np.array(grows).T
    assert (below > 0).all()
    assert (above < 0).any()
    for _ in range(200):
        H = generator.normal(size=W.shape)
        H *= step / np.linalg.norm(H)
        assert objective(problem, W + H, 0.99 * most) > objective(problem, W, 0.99 * most)


@pytest.mark.parametrize("seed", [71_100, pytest.param(71_101, marks=pytest.mark.long)])
def test_sparsemax_with_a_penalty_ends_at_the_svm_norm_included(seed):
    problem = random_problem(4, 5, 8, seed=seed)
    lam = float(largest_of(problem)) / 2
    run = attsvm.train(
        problem,
        map="sparsemax",
        penalty=lam,
        optimizer=o.gradient_descent(Decaying(1.0, 1.25 / lam)),
        steps=100_000,
    )
    prediction = attsvm.predict_direction(problem, run)
    W = svm_by_cvxpy(gaps_of(problem, run.selected)[0])
    assert np.abs(prediction.point - W).max() < 1e-8
    assert {one.name: one.holds for one in prediction.hypotheses if one.holds is not True} == {}
    assert prediction.standing == "measured"
    ratio = next(one.number for one in prediction.hypotheses if one.name == "small_penalty")
    assert ratio == pytest.approx(0.5)
    # the kinks of the loss are crossed back and forth, so that the distance is that of a step
    short = o.gradient_descent(Decaying(0.02, 20.0))
    near = attsvm.train(problem, map="sparsemax", penalty=lam, optimizer=short, steps=20_000, init=run.weights)
    assert np.linalg.norm(near.weights - W) < 1e-4 * np.linalg.norm(W)


def test_the_largest_penalty_of_every_layout_is_that_of_its_queries():
    problem = random_problem(4, 5, 8, seed=71_150)
    # two queries of one sequence, of which the second is a sequence of its own with the same tokens
    generator = np.random.default_rng(0)
    more, labels = generator.normal(size=(4, 8)), np.where(generator.random(4) < 0.5, -1, 1)
    mask = np.ones((4, 2, 5), bool)
    mask[0, 1, 3] = mask[2, 0, 1] = False
    both = attsvm.Problem(
        problem.tokens,
        np.stack([problem.labels, labels], axis=1),
        np.stack([problem.queries, more], axis=1),
        problem.head,
        mask=mask,
    )
    apart = attsvm.Problem(
        np.concatenate([problem.tokens] * 2),
        np.concatenate([problem.labels, labels]),
        np.concatenate([problem.queries, more]),
        problem.head,
        mask=np.concatenate([mask[:, 0], mask[:, 1]]),
    )
    batch = attsvm.Problem(
        *(np.stack([x, x]) for x in (apart.tokens, apart.labels, apart.queries)),
        apart.head,
        mask=np.stack([apart.mask] * 2),
    )
    most = [np.ravel(largest_of(each)) for each in (both, apart, batch)]
    assert most[0] == pytest.approx(most[1], rel=1e-9)
    assert most[2] == pytest.approx([most[1][0]] * 2, rel=1e-9)


def test_predictions_say_by_name_what_fails():
    problem = random_problem(4, 5, 8, seed=71_100)
    plain = attsvm.train(problem, map="sparsemax", steps=500)
    prediction = attsvm.predict_direction(problem, plain)
    assert prediction.standing == "none"
    assert "without a penalty, training under sparsemax stops at the first weights" in prediction.source
    assert prediction.point is None
    most, best = float(largest_of(problem)), attsvm.optimal_tokens(problem)
    # from the Att-SVM with a larger penalty than λ* the weights leave it
    solution = attsvm.solve_svm(problem, best)
    left = attsvm.train(
        problem, map="sparsemax", penalty=3 * most, optimizer="gradient_descent", init=solution.direction, steps=20_000
    )
    prediction = attsvm.predict_direction(problem, left)
    assert prediction.standing == "none"
    if (left.selected == best).all():
        assert "the penalty is at most λ*" in prediction.source
    assert np.linalg.norm(left.weights - solution.direction) > 0.02 * solution.value
    heads = attsvm.Problem(problem.tokens, problem.labels, problem.queries, np.stack([problem.head] * 2), num_heads=2)
    several = attsvm.train(heads, map="sparsemax", penalty=1e-3, steps=50)
    prediction = attsvm.predict_direction(heads, several)
    assert prediction.standing == "none"
    assert "of one attention head" in prediction.source
    classes = attsvm.Problem(problem.tokens, [0, 1, 2, 0], problem.queries, np.eye(3, 8))
    of_classes = attsvm.train(classes, map="sparsemax", loss="cross_entropy", penalty=1e-3, steps=5)
    assert "labels ±1" in attsvm.predict_direction(classes, of_classes).source
    with pytest.raises(ProblemError, match="norm: expected frobenius, the norm of the penalty, under sparsemax"):
        attsvm.predict_direction(problem, plain, norm="nuclear")


def test_the_minimum_under_entmax_nears_twice_the_svm_in_proportion_to_the_penalty():
    problem = random_problem(3, 4, 6, seed=71_200)
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    lam = float(largest_of(problem)) / 60
    gamma = attsvm.scores(problem)
    best = gamma.max(axis=1, keepdims=True)
    cost = (best - gamma) / (1 + np.exp(best)) / 3  # c_i D_it
    errors = []
    for penalty in (lam, lam / 4):
        run = attsvm.train(
            problem,
            map="entmax1.5",
            penalty=penalty,
            init=2 * solution.direction,
            optimizer="gradient_descent",
            steps=5,
        )
        prediction = attsvm.predict_direction(problem, run)
        logits = np.einsum("ntk,kq,nq->nt", problem.tokens, prediction.point, problem.queries)
        margins = np.take_along_axis(logits, run.selected[:, None], axis=1) - logits
        mu = solution.dual * solution.value
        first_order = 2 - 8 * penalty * mu / np.where(cost > 0, cost, 1.0)
        short = 2 - first_order.min()
        assert np.abs(margins - first_order)[solution.support].max() < 5 * short**2
        errors.append(np.linalg.norm(prediction.point - 2 * solution.direction))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("seed", [71_300, 71_301, 71_302])
def test_the_sigmoid_goes_to_the_svm_of_tokens(seed):
    problem = random_problem(4, 4, 8, seed=seed)
    run = attsvm.train(problem, map="sigmoid", optimizer=o.normalized_gradient_descent(growing), steps=40_000)
    prediction = attsvm.predict_direction(problem, run)
    rows = np.einsum("ntk,nq->ntkq", problem.tokens, problem.queries).reshape(-1, 8, 8)
    signs = np.sign(np.einsum("rkq,kq->r", rows, run.weights))
    W = svm_by_cvxpy(rows, signs)
    assert np.abs(prediction.direction - W).max() < 1e-7
    assert attsvm.direction_error(run.weights, W) < 1e-6
    assert (prediction.selected.ravel() == (signs > 0)).all()
    assert prediction.solution.value == pytest.approx(np.linalg.norm(W), rel=1e-9)
    right = (signs > 0) == (attsvm.scores(problem).ravel() > 0)
    found = attsvm.classify(problem, run)
    assert found.kind == ("global" if right.all() else "local")
    assert not found.breaking.any()
    # for this problem the head points the other way, so that every token has the wrong sign
    other = problem.with_head(-problem.head)
    assert attsvm.classify(other, run).kind == "not_local"
    held = {one.name: one.holds for one in attsvm.predict_direction(other, run).hypotheses}
    assert held["signs_of_scores"] is False
    assert attsvm.predict_direction(other, run).standing == "none"


def test_a_default_run_under_the_sigmoid_is_measured():
    problem = random_problem(4, 5, 8, seed=71_310)
    prediction = attsvm.predict_direction(problem, attsvm.train(problem, map="sigmoid"))
    assert prediction.standing == "measured"
    assert "attention_today_maps.py sigmoid" in prediction.source


def growing(step):
    return 0.1 * (1 + step / 2000)


def test_sigmoid_of_every_layout_is_that_of_its_tokens():
    generator = np.random.default_rng(0)
    tokens, queries = generator.normal(size=(3, 4, 9)), generator.normal(size=(3, 2, 9))
    mask = np.ones((3, 2, 4), bool)
    mask[0, 1, 2] = mask[2, 0, 1] = False
    labels, head = np.array([[1, -1], [-1, -1], [1, 1]]), generator.normal(size=9)
    several = attsvm.Problem(tokens, labels, queries, head, mask=mask)
    prompt = attsvm.Problem(tokens, labels[:, 0], head=head, mask=mask[:, 1])
    for problem in (several, prompt):
        batch = attsvm.Problem(
            *(None if x is None else np.stack([x, x]) for x in (tokens, problem.labels, problem.queries)),
            head,
            mask=np.stack([problem.mask] * 2),
        )
        runs = [attsvm.train(each, map="sigmoid", steps=3000) for each in (problem, batch)]
        one, both = (attsvm.predict_direction(each, run) for each, run in zip((problem, batch), runs, strict=True))
        assert np.abs(both.direction - one.direction).max() < 1e-9 * np.abs(one.direction).max()
        W = runs[0].weights
        logits = problem.tokens @ W if problem is prompt else np.einsum("ntk,kq,niq->nit", tokens, W, queries)
        assert (one.selected == (problem.canonical.allowed.reshape(logits.shape) & (logits > 0))).all()
        if problem is prompt:
            rows = tokens[prompt.mask][:, :, None]
        else:
            rows = np.einsum("ntk,niq->nitkq", tokens, queries)[mask]
        allowed = problem.canonical.allowed.reshape(logits.shape)
        expected = svm_by_cvxpy(rows, np.sign(logits[allowed]))
        assert np.abs(one.direction.ravel() - expected.ravel()).max() < 1e-7


def test_sigmoid_with_biases_offsets_and_a_sink_is_that_of_the_other_tokens():
    plain = random_problem(4, 4, 8, seed=71_330)
    offsets = np.broadcast_to([-0.5, 0.2, 0.0, 0.7, 0.3], (4, 5))
    blocks = plain.with_position_bias("absolute").with_sink(trained=True)
    problem = attsvm.Problem(**{**blocks.arrays(), "offsets": offsets})
    run = attsvm.train(problem, map="sigmoid", optimizer=o.normalized_gradient_descent(growing), steps=40_000)
    prediction = attsvm.predict_direction(problem, run)
    W, b = problem.blocks(run)
    assert b[-1] == 0  # a token of value 0 has no gradient
    rows = np.concatenate(
        [
            np.einsum("ntk,nq->ntkq", plain.tokens, plain.queries).reshape(16, -1),
            np.tile(np.eye(4), (4, 1)),
        ],
        axis=1,
    )
    signs = np.sign(rows @ np.concatenate([W.ravel(), b[:-1]]))
    expected = svm_by_cvxpy(rows[:, None], signs)[0]
    direction, of_bias = problem.blocks(prediction)
    assert np.abs(np.concatenate([direction.ravel(), of_bias[:-1]]) - expected).max() < 1e-7
    assert attsvm.direction_error(run, prediction) < 1e-6
    assert (prediction.selected[:, :4].ravel() == (signs > 0)).all()
    assert not prediction.selected[:, 4].any()
    assert attsvm.classify(problem, run).kind in ("global", "local")  # the sink does not hold it back
    assert prediction.standing == "conjecture"


def test_with_offsets_no_point_is_made_up_for_a_one_hot_map():
    # the weights stay finite, so that they need another margin than 1 of the linear part
    plain = random_problem(3, 4, 6, seed=71_340)
    problem = attsvm.Problem(**{**plain.arrays(), "offsets": np.broadcast_to([0.0, 0.3, 0.0, 0.0], (3, 4))})
    W = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).direction
    for name in ("sparsemax", "entmax1.5"):
        run = attsvm.train(problem, map=name, penalty=1e-3, init=W, optimizer=o.gradient_descent(0.01), steps=100)
        prediction = attsvm.predict_direction(problem, run)
        assert prediction.standing == "none"
        assert prediction.point is None
        assert "without offsets" in prediction.source


def test_what_is_not_defined_for_a_map_is_refused_by_name():
    problem = random_problem(3, 4, 5, seed=0)
    run = attsvm.train(problem, map="sigmoid", steps=5)
    for call in (
        lambda: attsvm.solve_svm(problem, run),
        lambda: attsvm.margin(problem, run),
        lambda: attsvm.margin_ratio(problem, run.weights, run),
    ):
        with pytest.raises(
            ProblemError, match="selected: expected a run whose tokens compete for attention, got one with the sig"
        ):
            call()
    with pytest.raises(ProblemError, match="run: expected a run with softmax attention, got one with the sigmoid map"):
        attsvm.theory.observed_rates(problem, run)
    with pytest.raises(ProblemError, match="weights_or_probabilities: expected a run with softmax attention"):
        attsvm.finite_part(problem, run, [[True, True, False, False]] * 3)
    with pytest.raises(ProblemError, match="init: expected a run with softmax attention, got one with the sigmoid map"):
        attsvm.theory.global_convergence_conditions(problem, run)
    with pytest.raises(ProblemError, match="weights: expected a run with softmax attention"):
        attsvm.plot.attention(problem, run)
    with pytest.raises(ProblemError, match=r"run: expected a map whose limit is known, .*sigmoid.*, got training"):
        attsvm.predict_direction(problem, attsvm.train(problem, map="training.test_maps:Hardened", steps=5))
    sparse = attsvm.train(problem, map="sparsemax", steps=50)
    assert 0 < attsvm.margin_ratio(problem, sparse) <= 1
