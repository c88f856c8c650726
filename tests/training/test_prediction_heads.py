"""Prediction heads: what they compute, how they train, where they are undefined."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, heads, train
from attsvm.datasets import random_problem
from attsvm.losses import Loss
from attsvm.training.attention.combined import CombinedAttention
from attsvm.training.objective import Objective
from oracles.attention import softmax

START = np.random.default_rng(0).normal(size=(3, 3))


@pytest.fixture(scope="module")
def problem():
    return random_problem(4, 5, 3, 0)


def with_classes(seed=0, C=3):
    base, generator = random_problem(4, 5, 3, seed), np.random.default_rng(seed)
    return attsvm.Problem(base.tokens, generator.integers(C, size=4), base.queries, generator.normal(size=(C, 3)))


def hidden_layer(parameters, o):
    return parameters["output"] @ jax.nn.gelu(parameters["hidden"] @ o + parameters["bias"], approximate=False)


MLP = heads.MLP.random(6, 3, activation="gelu", seed=1)
MLP = heads.MLP(MLP.hidden, MLP.output, MLP.bias + 0.1, activation="gelu")
VALUE_MLP = heads.ValueMLP.random(6, 3, 2, activation="gelu", seed=1)


def arrays_of(layer):
    return {name: getattr(layer, name) for name in ("hidden", "output", "bias")}


@pytest.mark.parametrize(
    ("head", "written", "parameters", "trained"),
    [
        (MLP, hidden_layer, arrays_of(MLP), ()),
        (MLP, hidden_layer, arrays_of(MLP), ("hidden", "output", "bias")),
        (
            VALUE_MLP,
            lambda p, o: hidden_layer(p, p["value"].T @ o),
            {"value": VALUE_MLP.value, **arrays_of(VALUE_MLP.mlp)},
            ("value", "output"),
        ),
    ],
    ids=["fixed", "trained", "value matrix"],
)
def test_a_hidden_layer_is_the_function_that_one_would_write(problem, head, written, parameters, trained):
    fixed = tuple(parameters.keys() - set(trained)) if trained else ()
    options = {"train_head": bool(trained), "fixed": fixed, "init": {"W": START}, "steps": 30}
    run, other = (train(problem, head=x, **options) for x in (head, heads.FunctionHead(written, parameters)))
    np.testing.assert_allclose(run.weights, other.weights, rtol=0, atol=1e-12)
    for name, start in parameters.items():
        np.testing.assert_allclose(run.parameters[name], other.parameters[name], rtol=0, atol=1e-12)
        assert (np.abs(run.parameters[name] - start).max() > 1e-3) == (name in trained)
    if head is VALUE_MLP:
        # after 30 steps no token is dropped
        assert attsvm.predict_direction(problem, run).standing == "none"


def test_each_problem_of_a_batch_has_the_head_given_for_it(problem):
    generator = np.random.default_rng(1)
    hidden, output = generator.normal(size=(9, 4, 3)), generator.normal(size=(9, 4))
    # one problem nine times: with arrays of batch axes, and with an array that all share
    trials = attsvm.Problem(
        *(np.repeat(getattr(problem, x)[None], 9, axis=0) for x in ("tokens", "labels", "queries", "head"))
    )
    run = train(trials, head=heads.MLP(hidden, output), init=START, steps=20)
    shared = train(trials, head=heads.MLP(hidden[3], output), init=START, steps=20)
    alone = train(problem, head=heads.MLP(hidden[3], output[3]), init=START, steps=20)
    np.testing.assert_allclose(run.weights[3], alone.weights, rtol=0, atol=1e-13)
    np.testing.assert_allclose(shared.weights[3], alone.weights, rtol=0, atol=1e-13)
    assert np.abs(run.weights[4] - alone.weights).max() > 1e-3


def test_a_quadratic_head_keeps_tokens_mixed_where_a_linear_one_would_not():
    # v'o is the same for both tokens, and the shorter mean wins
    problem = attsvm.Problem([[[1.0, 1.0], [1.0, -1.0], [-2.0, 0.0]]], [1], head=[1.0, 0.0])
    descent = attsvm.optimizers.gradient_descent(10.0)
    run = train(problem, head=heads.Quadratic(0.2), optimizer=descent, steps=5000, init=[0.1, 0.3], record=1)
    logits = problem.tokens[0] @ run.weights
    a = softmax(logits)
    np.testing.assert_allclose(a, [0.5, 0.5, 0.0], atol=1e-3)
    np.testing.assert_array_equal(
        train(problem, head=heads.Quadratic(0.0), steps=9).weights, train(problem, steps=9).weights
    )


HEADS = {
    "linear": (None, {}),
    "quadratic": (heads.Quadratic(0.1), {}),
    "relu": (heads.MLP.random(8, 3, seed=2), {}),
    "gelu": (heads.MLP.random(8, 3, activation="gelu", seed=2), {}),
    "function": (heads.FunctionHead(lambda p, o: jnp.tanh(p["u"] @ o), {"u": np.ones(3)}), {}),
    "classes": (None, {"loss": "cross_entropy"}),
    "relu classes": (heads.MLP.random(8, 3, 3, seed=2), {"loss": "cross_entropy"}),
}


@pytest.mark.parametrize("name", HEADS)
def test_every_head_trains_with_the_attention(problem, name):
    head, options = HEADS[name]
    data = with_classes() if options else problem
    run = train(data, head=head, train_head=True, init={"W": START}, steps=300, **options)
    assert run.loss < 0.5 * run.history["loss"][0]
    assert np.isfinite(run.loss)
    assert {"W"} < set(run.parameters)


def test_two_classes_are_two_labels():
    base, head = random_problem(4, 5, 3, 0), np.random.default_rng(0).normal(size=(2, 3))
    binary = attsvm.Problem(base.tokens, base.labels, base.queries, head[1] - head[0])
    classes = attsvm.Problem(base.tokens, (base.labels + 1) / 2, base.queries, head)
    run, other = train(binary, init=START, steps=40), train(classes, init=START, steps=40, loss="cross_entropy")
    np.testing.assert_allclose(other.weights, run.weights, rtol=0, atol=1e-13)
    np.testing.assert_allclose(other.history["loss"], run.history["loss"], rtol=1e-13)


@pytest.mark.parametrize("prompt", [False, True])
def test_scores_of_classes_are_slopes_of_the_loss_at_the_run(prompt):
    generator = np.random.default_rng(4)
    tokens, V = generator.normal(size=(2, 4, 3)), generator.normal(size=(3, 3))
    if prompt:
        problem = attsvm.Problem(tokens, [2, 0], head=V)
    else:
        mask, query_mask = (
            np.tril(np.ones((2, 4), dtype=bool), 1)[None].repeat(2, axis=0),
            [[True, True], [False, True]],
        )
        queries = generator.normal(size=(2, 2, 3))
        problem = attsvm.Problem(tokens, [[2, 0], [0, 1]], queries, V, mask=mask, query_mask=query_mask)
    starts = generator.normal(size=(2, 3) if prompt else (2, 3, 3))
    run = train(problem, init=starts, loss="cross_entropy", train_head=True, steps=5)
    gamma = attsvm.scores(problem, run)
    _, queries, allowed, active = problem.canonical
    labels = problem.labels if problem.has_query_axis else problem.labels[:, None]
    gamma = gamma if problem.has_query_axis else gamma[:, :, None]
    assert gamma.shape == (2, *allowed.shape)
    for trial, i, q in np.ndindex(2, *active.shape):
        if not active[i, q]:
            assert np.isneginf(gamma[trial, i, q]).all()
            continue
        W = run.weights[trial] if not prompt else run.weights[trial][:, None]
        a = softmax(np.where(allowed[i, q], tokens[i] @ W @ queries[i, q], -np.inf))
        o, head = a @ tokens[i], run.parameters["v"][trial]

        def loss(o, head=head, label=int(labels[i, q])):
            return np.log(np.exp(head @ o).sum()) - (head @ o)[label]

        for t in range(4):
            slope = (loss(o - 1e-5 * tokens[i, t]) - loss(o + 1e-5 * tokens[i, t])) / 2e-5
            assert gamma[trial, i, q, t] == (pytest.approx(slope, rel=1e-7, abs=1e-7) if allowed[i, q, t] else -np.inf)


def test_scores_say_when_a_run_is_wanted_and_when_it_is_not(problem):
    with pytest.raises(ProblemError, match="classes"):
        attsvm.scores(with_classes())
    with pytest.raises(ProblemError, match="run"):
        attsvm.scores(problem, train(problem, steps=0))
    run = train(with_classes(), head=heads.MLP.random(4, 3, 3), loss="cross_entropy", steps=0)
    with pytest.raises(ProblemError, match="linear"):
        attsvm.scores(with_classes(), run)


def test_padded_queries_never_reach_a_head_that_has_no_slope_at_zero():
    generator = np.random.default_rng(3)
    tokens, queries = generator.normal(size=(2, 3, 2)), generator.normal(size=(2, 2, 2))
    mask = np.array([[True, True], [True, False]])
    problem = attsvm.Problem(tokens, [[1, -1], [1, 0]], queries, query_mask=mask)
    head = heads.FunctionHead(lambda p, o: p["c"] * jnp.sqrt(o @ o) - 1.0, {"c": np.ones(())})
    run = train(problem, head=head, train_head=True, steps=20, init={"W": START[:2, :2]})
    assert run.status == "finished"
    # as the three queries that are there, each with a sequence of its own
    rows = np.argwhere(mask)
    apart = attsvm.Problem(tokens[rows[:, 0]], [1, -1, 1], queries[mask])
    other = train(apart, head=head, train_head=True, steps=20, init={"W": START[:2, :2]})
    np.testing.assert_allclose(run.weights, other.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.parameters["c"], other.parameters["c"], rtol=0, atol=1e-12)


def test_a_head_without_a_value_stops_its_trial_alone(problem):
    # the head of the second start leaves where its logarithm is defined
    head = heads.FunctionHead(lambda p, o: jnp.log(p["c"]) - o[0], {"c": np.ones(())})
    init = {"W": np.stack([START, START]), "c": np.array([3.0, 0.12])}
    labels = attsvm.Problem(problem.tokens, -np.ones(4), problem.queries)
    run = train(labels, head=head, train_head=True, init=init, steps=20)
    assert run.status.tolist() == ["finished", "non_finite"]
    assert run.step[1] < 5
    assert np.isfinite(run.loss).all()
    assert all(np.isfinite(x).all() for x in run.history.values())


@pytest.mark.parametrize("far", [2e3, 1e-300])
def test_a_query_without_an_active_unit_does_not_hide_the_gradient_of_the_others(far):
    """The slope of the first loss is 1/2. That of the second is exp(-2000), or its gradient is 1e-300."""
    problem = attsvm.Problem([[[-1.0, 0.0]], [[far, far / 2]]], [1, 1])
    head = heads.MLP([[1.0, 0.0]], [1.0])
    run = train(
        problem, head=head, train_head=True, steps=1, optimizer=attsvm.optimizers.normalized_gradient_descent(1.0)
    )
    # h = u relu(H o) moves along (u o, H o); a sequence of one token moves no attention
    np.testing.assert_allclose(run.parameters["hidden"], [[1 + 2 / 3, 1 / 3]], rtol=4e-16)
    np.testing.assert_allclose(run.parameters["output"], [1 + 2 / 3], rtol=4e-16)


def test_a_start_where_nothing_is_defined_is_refused(problem):
    head = heads.FunctionHead(lambda p, o: jnp.log(-jnp.abs(o[0])))
    with pytest.raises(ProblemError, match="init"):
        train(problem, head=head, steps=3)


def test_weights_whose_outputs_would_overflow_stop_before_they_do(problem):
    fast = attsvm.optimizers.normalized_gradient_descent(1e305)
    for attention in ("combined", "factored"):
        run = train(problem, attention=attention, optimizer=fast, steps=1000, record=20, train_head=True)
        assert run.status == "non_finite"
        assert run.step < 1000
        assert np.isfinite(run.loss)
        assert all(np.isfinite(x).all() for x in run.history.values())


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: heads.Quadratic(np.nan), "curvature"),
        (lambda: heads.MLP(np.ones((4, 3)), activation="sine"), "activation"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.MLP(np.ones((4, 2)))), "hidden"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.MLP(np.ones((4, 3)), np.ones(3))), "output"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.MLP(np.ones((4, 3)), bias=np.ones(3))), "bias"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.MLP(np.full((4, 3), np.inf))), "hidden"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.MLP("weights")), "hidden"),
        (
            lambda: train(random_problem(4, 5, 3, 0), head=heads.ValueMLP(np.ones((4, 2)), VALUE_MLP.mlp)),
            "value: expected shape",
        ),
        (lambda: train(with_classes(), head=heads.Quadratic(1.0), loss="cross_entropy"), "classes"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.FunctionHead(lambda p, o: o)), "head"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.FunctionHead(lambda p, o: p["v"] @ o)), "head"),
        (lambda: train(random_problem(4, 5, 3, 0), head=heads.FunctionHead(lambda p, o: o[0], {"W": 1.0})), "W"),
        (
            lambda: train(random_problem(4, 5, 3, 0), head=heads.FunctionHead(lambda p, o: o[0]), train_head=True),
            "train_head",
        ),
    ],
)
def test_heads_that_do_not_fit_are_named(build, name):
    with pytest.raises(ProblemError, match=name):
        build()


@dataclass(frozen=True)
class Bilinear(heads.Head):
    """h(o) = v'o, written as a user writes it; what it declares is its only standing."""

    declared: bool

    name = "bilinear"

    @property
    def defined_everywhere(self):
        return self.declared

    def initial(self, problem):
        return {"v": problem.head}

    def outputs(self, parameters, pooled):
        return jnp.sum(parameters["v"] * pooled, axis=2)


def test_a_custom_head_and_loss_are_trusted_if_they_declare_it(problem):
    log_slope = lambda m: -jax.nn.softplus(m)  # noqa: E731
    runs, checked = [], []
    for declared in (True, False):
        loss = Loss(lambda m: jax.nn.softplus(-m), log_slope, "mine", defined_everywhere=declared)
        runs.append(train(problem, head=Bilinear(declared), loss=loss, init=START, steps=30))
        checked.append(not Objective(CombinedAttention(), Bilinear(declared), loss).defined_everywhere)
    assert checked == [False, True]
    assert [run.head for run in runs] == ["bilinear", "bilinear"]
    for run in runs:
        np.testing.assert_allclose(run.weights, train(problem, init=START, steps=30).weights, rtol=0, atol=1e-12)


def test_heads_are_found_by_name_and_import_path(problem):
    assert heads.parse_head("linear") == heads.Linear()
    assert heads.parse_head("attsvm.heads.linear:Linear") == heads.Linear()
    np.testing.assert_array_equal(train(problem, head="linear", steps=9).weights, train(problem, steps=9).weights)
    for head, words in (
        (heads.MLP, r"got the class MLP; pass MLP\(...\)"),
        ("quadratic", "needs arguments"),
        ("cubic", "got 'cubic'. The names are linear, mlp, quadratic"),
        ("attsvm.losses:Loss", "expected a Head"),
    ):
        with pytest.raises(ProblemError, match=f"head: .*{words}"):
            train(problem, head=head)
