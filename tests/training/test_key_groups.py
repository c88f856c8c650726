"""Attention heads that share keys: their axis in training and results, where training ends, and what is refused."""

import cvxpy as cp
import numpy as np
import optax
import pytest

import attsvm
from attsvm import ProblemError, optimizers
from attsvm.datasets import random_problem
from attsvm.norms import MaxOfHeads, Nuclear, Spectral, SumOfHeads

H, G = 4, 2


def problem_of_groups(**options):
    return random_problem(3, 4, 5, seed=1, num_heads=H, key_groups=G, **options)


def least_sum(problem, selected, groups):
    """The least Σ ‖[W_1 … W_G]‖_* over groups of weights with margins of 1, by CVXPY."""
    d = problem.dim
    weights = [cp.Variable((d, d)) for _ in range(len(selected))]
    sides = [cp.hstack(weights[first : first + len(weights) // groups]) for first in range(0, H, H // groups)]
    margins = [
        (problem.tokens[0, i, kept] - problem.tokens[0, i, t]) @ W @ problem.queries[0, i] >= 1
        for W, of_head in zip(weights, selected, strict=True)
        for i, kept in enumerate(of_head)
        for t in range(problem.num_tokens)
        if t != kept
    ]
    return cp.Problem(cp.Minimize(sum(map(cp.normNuc, sides))), margins).solve(solver=cp.CLARABEL)


def test_gradient_descent_maximises_the_margin_in_the_norm_of_heads_side_by_side():
    problem = problem_of_groups()
    run = attsvm.train(problem, steps=30_000)
    prediction = attsvm.predict_direction(problem, run)
    assert prediction.norm == SumOfHeads(Nuclear(), num_groups=G)
    assert prediction.standing == "measured"
    # an oracle with interior points of its own; both are exact to about 1e-8
    assert prediction.solution.value == pytest.approx(least_sum(problem, run.selected, G), rel=1e-6)
    assert attsvm.direction_error(run.weights, prediction.direction, axis=(-3, -2, -1)) < 1e-3
    own = attsvm.margin_ratio(problem, run, norm=prediction.norm)
    assert 0.98 < own < 1
    for other in ("sum over heads of nuclear", "sum over 1 group of nuclear"):
        assert attsvm.margin_ratio(problem, run, norm=other) < 0.97


def test_weights_are_products_with_the_keys_of_the_group():
    problem = problem_of_groups(batch=(2,))
    run = attsvm.train(problem, steps=300)
    K, Q = run.parameters["K"], run.parameters["Q"]
    assert (K.shape, Q.shape, run.weights.shape) == ((2, G, 5, 5), (2, H, 5, 5), (2, H, 5, 5))
    for h in range(H):
        np.testing.assert_allclose(run.weights[:, h], K[:, h // (H // G)] @ Q[:, h].mT, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "optimizer", [None, optimizers.spectral_descent(), optimizers.spectral_descent(scope="fused", momentum=0.9), "adam"]
)
def test_a_run_that_is_saved_and_resumed_is_that_of_one_call(tmp_path, optimizer):
    problem = problem_of_groups(batch=(2,))
    options = {"optimizer": optimizer, "steps": 200, "record": 2}
    whole = attsvm.train(problem, **(options | {"steps": 400}))
    half = attsvm.train(problem, **options)
    half.save(tmp_path / "run.npz")
    problem.save(tmp_path / "problem.npz")
    loaded = attsvm.Problem.load(tmp_path / "problem.npz")
    again = attsvm.train(loaded, init=attsvm.Run.load(tmp_path / "run.npz"), steps=200)
    np.testing.assert_array_equal(again.weights, whole.weights)
    np.testing.assert_array_equal(again.parameters["K"], whole.parameters["K"])
    assert again.limit == half.limit


def test_groups_of_one_head_are_heads_with_keys_of_their_own():
    problem = random_problem(3, 4, 5, seed=0, num_heads=H)
    single = random_problem(3, 4, 5, seed=0, num_heads=H, key_groups=H)
    assert (single.key_groups, single.data_hash) == (None, problem.data_hash)
    options = {"attention": "factored", "steps": 30}
    runs = [attsvm.train(one, **options) for one in (single, problem)]
    np.testing.assert_array_equal(runs[0].weights, runs[1].weights)
    standings = [attsvm.predict_direction(problem, run).source for run in runs]
    assert standings[0] == standings[1]


def test_a_head_moves_as_far_as_the_others_of_its_group_however_small_its_gradient_is():
    problem = random_problem(3, 4, 5, seed=0, num_heads=2, key_groups=1)
    K, Q = np.random.default_rng(0).standard_normal((2, 2, 5, 5))
    start = {"K": K[:1], "Q": np.array([1.0, 3000.0])[:, None, None] * Q}
    still, run = (attsvm.train(problem, init=start, optimizer=optimizers.spectral_descent(), steps=s) for s in (0, 1))
    first, second = np.linalg.norm(run.parameters["Q"] - still.parameters["Q"], 2, axis=(-2, -1))
    # 0.05 each, less what rounding removes from entries of 3,000
    assert (first, second) == (pytest.approx(0.05, rel=1e-9), pytest.approx(0.05, rel=1e-9))


def test_limits_of_steps_whose_norm_is_known():
    def limit(optimizer):
        return optimizer.limit("factored", H, G)

    assert limit(optimizers.gradient_descent()).norm == SumOfHeads(Nuclear(), num_groups=G)
    assert limit(optimizers.spectral_descent()).norm == MaxOfHeads(Spectral())
    assert limit(optimizers.row_descent()).norm.name == f"max over {G} groups of gamma2"
    assert limit(optimizers.steepest_descent(norm="linf")).norm.name == f"max over {G} groups of nu"
    # no norm is known for these
    for optimizer in (
        optimizers.spectral_descent(scope="fused"),
        optimizers.column_descent(),
        optimizers.normalized_gradient_descent(scope="each"),
    ):
        assert limit(optimizer).norm is None
    # nor for factors with few columns; with K fixed, each Q_h is a matrix of its own
    problem = problem_of_groups()
    few, of_queries = (attsvm.train(problem, steps=1, **options) for options in ({"rank": 2}, {"fixed": ("K",)}))
    assert few.limit.norm is None
    assert of_queries.limit.norm.name == "frobenius"


def test_steps_along_sums_and_unknown_steps_keep_what_is_known_of_them():
    lagging = optimizers.momentum(optimizers.spectral_descent()).limit("factored", H, G)
    assert (lagging.steps.kind, lagging.steps.shared_keys, lagging.steps.momentum) == ("steepest", True, 0.9)
    unknown = optimizers.chain(optax.adamw(0.01, weight_decay=0.1))
    run = attsvm.train(problem_of_groups(), optimizer=unknown, steps=1)
    assert (run.limit.steps.kind, run.weight_decay) == ("unknown", None)


def test_what_does_not_fit_is_refused():
    problem = problem_of_groups()
    for refused, message in (
        (
            lambda: attsvm.train(problem, attention="combined"),
            "attention: expected 'factored' for a pr",
        ),
        (lambda: attsvm.train(problem, fixed=("Q",)), "fixed: expected K or none"),
        (lambda: attsvm.train(problem, init={"K": np.ones((H, 5, 5))}), r"init: expected K of shape \(..., 2, 5, 5\)"),
        (
            lambda: attsvm.train(problem, optimizer=optimizers.spectral_descent(by_logit=True), steps=1),
            "by_logit: expected False",
        ),
        (
            lambda: attsvm.train(problem, optimizer="bilinear_descent", steps=1),
            r"params: expected only the matrices K "
            r"\(\*heads",
        ),
        (lambda: attsvm.theory.factor_ratio(problem, attsvm.train(problem, steps=1)), "problem: expected one without"),
        (lambda: attsvm.theory.constrained_limit(problem, radius=9.0), "problem: expected one without key_groups"),
        (lambda: attsvm.Stack(problem, 2), "problem: expected one without key_groups"),
        (lambda: SumOfHeads(Nuclear(), num_groups=3).value(np.ones((H, 2, 2))), "num_groups: expected a divisor of 4"),
        (lambda: attsvm.solve_svm(problem, np.zeros((H, 3), int), "sum over 3 groups of nuclear"), "a divisor of 4"),
    ):
        with pytest.raises(ProblemError, match=message):
            refused()
