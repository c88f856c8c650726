"""The bound on the first selection: attained by straight paths, and never undercut by training."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import optimizers
from attsvm.theory import earliest_selection
from oracles.attention import attention
from oracles.norms import norm_and_dual

NORMS = ("frobenius", "linf", "l1", "nuclear", "spectral")


@pytest.mark.parametrize("name", NORMS)
def test_a_straight_path_of_two_tokens_selects_exactly_at_the_bound(name):
    """With two tokens a margin of log((1 − δ)/δ) is the attention 1 − δ."""
    generator = np.random.default_rng(0)
    start = generator.standard_normal((4, 4))
    problem = attsvm.Problem(generator.standard_normal((1, 2, 4)), queries=generator.standard_normal((1, 4)))
    miss, rate = 0.03, 0.001
    bound = earliest_selection(problem, norm=name, learning_rate=rate, selected=[1], init=start, miss=miss)
    required = [[np.log((1 - miss) / miss), 0.0]]
    goal = attsvm.solve_svm(problem, [1], name, required=required, center=start).direction
    step = goal - start
    step *= rate / norm_and_dual(name, (4, 4))[0](step.ravel())
    assert attention(problem, start + bound.steps[0] * step)[0, 1] >= 1 - miss
    assert attention(problem, start + (bound.steps[0] - 1) * step)[0, 1] < 1 - miss
    assert bound.all_steps == bound.steps[0] > 100


def test_factors_that_grow_along_one_pair_of_vectors_select_exactly_at_the_bound():
    token, query = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[1.0, 0.0]])
    problem = attsvm.Problem(token[None], queries=query)
    key, query = np.array([[0.6, 0], [0.8, 0]]), np.array([[1.0, 0], [0, 0]])
    need = np.log(99)
    of_each = optimizers.steepest_descent(norm="frobenius", learning_rate=0.01)
    for optimizer, together in ((optimizers.normalized_gradient_descent(0.01), True), (of_each, False)):
        bound = earliest_selection(problem, optimizer, selected=[0], factored=True, init=(0.1 * key, 0.1 * query))
        # the margin is 5 s² for K = s·key and Q = s·query; a joint step of length η lengthens each by η/√2
        length = (np.sqrt(need / 5) - 0.1) * (np.sqrt(2) if together else 1)
        assert bound.length[0] == pytest.approx(length, rel=1e-7)
        assert bound.steps[0] == np.ceil(length / 0.01)


def shortest(problem, selected, need):
    """The least ‖W‖_F with Σ_t exp(−m_t) ≤ exp(−need) for each query, by CVXPY."""
    W = cp.Variable((problem.key_dim, problem.query_dim))
    constraints = []
    for tokens, query, token in zip(problem.tokens, problem.queries, selected, strict=True):
        rows = tokens[token] - np.delete(tokens, token, axis=0)
        constraints.append(cp.log_sum_exp(-rows @ W @ query) <= -need)
    return cp.Problem(cp.Minimize(cp.norm(W, "fro")), constraints).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("shape", [(1, 6, 4), (3, 5, 6), (4, 12, 8)])
def test_the_bound_is_nearly_the_length_to_the_whole_softmax_and_never_above(shape):
    """With all margins at least log((1 − δ)/δ) alone, it would be 10 to 30 % lower."""
    problem, miss = attsvm.datasets.random_problem(*shape, seed=1), 0.01
    selected = attsvm.optimal_tokens(problem)
    need = np.log((1 - miss) / miss)
    length = shortest(problem, selected, need)
    bound = earliest_selection(problem, learning_rate=1.0, selected=selected, miss=miss)
    plain = need * attsvm.solve_svm(problem, selected).value
    assert max(0.94 * length, plain) < bound.all_length <= length * (1 + 1e-7)
    for i in range(shape[0]):
        alone = attsvm.Problem(problem.tokens[i : i + 1], queries=problem.queries[i : i + 1])
        assert bound.length[i] <= shortest(alone, selected[i : i + 1], need) * (1 + 1e-7)


@pytest.mark.parametrize(
    ("optimizer", "factored"),
    [
        (optimizers.normalized_gradient_descent(lambda k: 0.2 / (1 + k / 20)), False),
        (optimizers.momentum(optimizers.normalized_gradient_descent(0.2)), False),
        (optimizers.steepest_descent(norm="linf", learning_rate=0.05), False),
        (optimizers.normalized_gradient_descent(0.2), True),
        (optimizers.normalized_gradient_descent(0.2, scope="each"), True),
        (optimizers.spectral_descent(0.1), True),
    ],
    ids=["schedule", "momentum", "sign", "factors together", "each factor", "spectral"],
)
def test_no_run_selects_before_the_bound(optimizer, factored):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=1, batch=(20,))
    generator = np.random.default_rng(0)
    start = 0.3 * generator.standard_normal((2, 20, 5, 5))
    init, form = (tuple(start), "factored") if factored else (start[0], "combined")
    run = attsvm.train(problem, optimizer=optimizer, attention=form, init=init, steps=300, record=range(301))
    bound = earliest_selection(problem, optimizer, selected=run, factored=factored, init=init)
    any_token = earliest_selection(problem, optimizer, factored=factored, init=init)
    probability, selected = run.history["probability"], run.history["selected"]
    step = np.arange(301)[:, None, None]
    has_selected = (probability >= 0.99) & (selected == run.selected)
    assert has_selected.any()
    assert (step >= bound.steps)[has_selected].all()
    assert (step >= any_token.steps)[probability >= 0.99].all()
    assert (step[..., 0] >= bound.all_steps)[has_selected.all(axis=-1)].all()
    assert (any_token.steps <= bound.steps).all()
    assert (bound.all_steps >= bound.steps.max(axis=-1)).all()


def test_steps_of_a_schedule_are_added_up():
    problem = attsvm.Problem([[[2.0, 0.0], [0.0, 0.0]]])
    rates = optimizers.Decaying(0.5, 10)
    bound = earliest_selection(problem, learning_rate=rates, selected=[0])
    assert bound.length[0] == pytest.approx(np.log(99) / 2)
    sums = np.cumsum(0.5 / (1 + np.arange(100) / 10))
    assert bound.steps[0] == 1 + np.flatnonzero(sums >= np.log(99) / 2)[0]
    # Σ 2^−k is less than the length: the steps that were added up are a valid bound
    assert earliest_selection(problem, learning_rate=lambda k: 0.5**k, selected=[0]).steps[0] == 1_000_000


def test_shapes_follow_queries_heads_and_padding():
    generator = np.random.default_rng(0)
    tokens, queries = generator.standard_normal((2, 3, 4)), generator.standard_normal((2, 2, 4))
    padded = np.array([[True, True], [True, False]])
    several = earliest_selection(attsvm.Problem(tokens, queries=queries, query_mask=padded))
    assert several.steps.shape == (2, 2)
    assert ((several.steps > 0) == padded).all()
    heads = attsvm.Problem(tokens, queries=queries[:, 0], num_heads=3)
    found = earliest_selection(heads, "spectral_descent", 0.1, selected=[0, 1])
    assert (found.steps.shape, found.all_steps.shape) == ((3, 2), (3,))
    # a token between two others leads neither of them
    never = earliest_selection(attsvm.Problem([[[0.0], [1.0], [-1.0]]]), selected=[0])
    np.testing.assert_array_equal(never.steps, np.inf)
    assert never.all_steps == np.inf
    given = earliest_selection(attsvm.Problem([[[5.0], [0.0]]]), selected=[0], init=[1.0])
    assert (given.steps[0], given.length[0]) == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adam"}, "optimizer: expected normalized_gradient_descent"),
        ({"optimizer": optimizers.normalized_gradient_descent(0.1, relative=True)}, "optimizer: expected"),
        # steps up to 1/(1 − β) times as long
        ({"optimizer": optimizers.normalized_gradient_descent(0.1, average=0.9)}, "optimizer: expected"),
        ({"optimizer": optimizers.spectral_descent(0.1, weight_decay=0.1)}, "optimizer: expected"),
        ({"optimizer": optimizers.spectral_descent(0.1, polar="optax")}, "optimizer: expected"),
        ({"optimizer": "gradient_descent"}, "optimizer: expected"),
        ({"norm": "l3"}, "learning_rate: expected a number or a function"),
        ({"norm": "l3", "optimizer": "adam"}, "norm: expected None with an optimiser"),
        ({"norm": "l3", "learning_rate": -1.0}, "learning_rate: expected a number >= 0"),
        ({"learning_rate": lambda step: np.nan * step}, "learning_rate: expected a schedule of finite numbers"),
        ({"init": np.full((4, 4), np.nan)}, "init: expected finite numbers"),
        ({"miss": 0.5}, "miss: expected a number between 0 and 1/2"),
        ({"init": np.ones((3, 3))}, r"init: expected shape \(4, 4\), got \(3, 3\)"),
        ({"factored": True}, r"init: expected \(K, Q\)"),
    ],
)
def test_what_gives_no_bound_is_refused(options, message):
    problem = attsvm.datasets.random_problem(2, 3, 4, seed=0)
    with pytest.raises(attsvm.ProblemError, match=message):
        earliest_selection(problem, **options)
