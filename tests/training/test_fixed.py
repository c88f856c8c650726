"""Parameters that keep their initial values: the same training written as one of the other parameters alone."""

import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, heads, optimizers, train
from attsvm.datasets import random_problem
from attsvm.training.attention.registry import ATTENTIONS, parse_attention

OPTIMIZERS = {
    "one norm over all": optimizers.normalized_gradient_descent(0.1, scope="all"),
    "relative": optimizers.normalized_gradient_descent(0.1, scope="all", relative=True),
    "mirror": optimizers.mirror_descent(learning_rate=0.1, p=1.5),
    "momentum": optimizers.momentum(optimizers.gradient_descent(0.5)),
}
TRIALS, RANK = 3, 3


def written_otherwise(attention, fixed):
    """A problem, parameters of each trial, and the problem of the other parameter with the start of its weights."""
    generator = np.random.default_rng(5)
    problem = random_problem(2, 3, 2, 0, prompt=attention == "key_prompt")
    tokens = np.broadcast_to(problem.tokens, (TRIALS, 2, 3, 2))
    shapes = {"K": (2, RANK), "Q": (2, RANK)} if attention == "factored" else {"W": (2, RANK), "p": (RANK,)}
    start = {name: generator.normal(size=(TRIALS, *shape)) for name, shape in shapes.items()}
    other, given = {"queries": problem.queries}, start[fixed]
    if fixed in ("K", "W"):
        other["keys"] = np.einsum("intk,ikm->intm", tokens, given)
    elif fixed == "Q":
        other["queries"] = np.einsum("ne,iem->inm", problem.queries, given)
    else:
        other["queries"] = np.repeat(given[:, None], 2, axis=1)
    trained = {"K": "Q", "Q": "K", "W": "p", "p": "W"}[fixed]
    weights = np.swapaxes(start["Q"], -1, -2) if fixed == "K" else start[trained]
    return problem, start, attsvm.Problem(tokens, problem.labels, head=problem.head, **other), weights


@pytest.mark.parametrize(
    ("attention", "fixed", "num_queries"),
    [
        *((attention, fixed, n) for attention, fixed in (("factored", "K"), ("factored", "Q")) for n in (1, 2)),
        *((attention, fixed, 1) for attention, fixed in (("key_prompt", "W"), ("key_prompt", "p"))),
        *(("gain", "g", n) for n in (1, 2)),
        ("gain", "W", None),
        ("rotary", "K", None),
    ],
)
def test_the_problem_of_the_trained_parameter_has_the_same_logits(attention, fixed, num_queries):
    generator = np.random.default_rng(3)
    queries = generator.normal(size=(4, 2) if num_queries is None else (4, num_queries, 2))
    queries = None if attention == "key_prompt" else queries
    problem = attsvm.Problem(generator.normal(size=(4, 5, 3)), np.ones(4), queries, np.ones(3))
    problem = problem.with_rotations([1.0, 0.4]) if attention == "rotary" else problem
    layer = parse_attention(attention, problem, RANK if ATTENTIONS.find(attention).takes_rank else None)
    values = {name: generator.normal(size=(TRIALS, *shape)) for name, shape in layer.shapes(problem).items()}
    reduced = layer.reduced(problem, {fixed: values[fixed]})
    weights = reduced.weights({name: x for name, x in values.items() if name != fixed})
    expected = attsvm.measures.token_logits(problem, layer.weights(values))
    np.testing.assert_allclose(attsvm.measures.token_logits(reduced.problem, weights), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(reduced.whole(weights), layer.weights(values), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("attention", "fixed", "optimizer", "options"),
    [
        ("factored", "K", "one norm over all", {"train_head": True}),
        ("key_prompt", "W", "mirror", {"penalty": 0.1}),
        ("key_prompt", "p", "relative", {}),
    ],
)
def test_a_fixed_factor_is_part_of_the_keys_or_queries(attention, fixed, optimizer, options):
    problem, start, other, weights = written_otherwise(attention, fixed)
    options = {"optimizer": OPTIMIZERS[optimizer], "steps": 60, **options}
    run = train(problem, attention=attention, rank=RANK, fixed=(fixed,), init=start, **options)
    expected = train(other, init=weights, **options)
    (trained,) = set(start) - {fixed}
    moved = np.swapaxes(run.parameters["Q"], -1, -2) if fixed == "K" else run.parameters[trained]
    # the same sums in another order, over 60 steps
    np.testing.assert_allclose(moved, expected.weights, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(run.parameters[fixed], start[fixed])
    np.testing.assert_allclose(run.history["loss"], expected.history["loss"], rtol=1e-11)
    np.testing.assert_array_equal(run.history[trained][-1], run.parameters[trained])
    assert np.abs(moved - weights).max() > 0.1
    assert fixed not in run.history
    assert run.limit == expected.limit
    # what theory says is said of the other problem
    found, same = attsvm.predict_direction(problem, run, "l2"), attsvm.predict_direction(other, expected, "l2")
    np.testing.assert_allclose(found.solution.direction, same.solution.direction, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(attsvm.classify(problem, run, "l2").kind, attsvm.classify(other, expected).kind)


def test_one_layer_of_a_head_can_be_fixed():
    problem, generator = random_problem(2, 3, 3, 0), np.random.default_rng(1)
    hidden, output = generator.normal(size=(4, 3)), generator.normal(size=4)
    run = train(problem, head=heads.MLP(hidden, output), train_head=True, fixed=["output"], steps=40)

    def constant_output(parameters, o):
        return jnp.asarray(output) @ jnp.maximum(parameters["hidden"] @ o, 0)

    other = heads.FunctionHead(constant_output, {"hidden": hidden})
    expected = train(problem, head=other, train_head=True, steps=40)
    np.testing.assert_allclose(run.weights, expected.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.parameters["hidden"], expected.parameters["hidden"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(run.parameters["output"], output)
    # the head alone: the attention stays where it is
    alone = train(problem, train_head=True, fixed=("W",), init={"W": np.eye(3)}, steps=40)
    np.testing.assert_array_equal(alone.weights, np.eye(3))
    assert alone.loss < alone.history["loss"][0]
    assert alone.limit.norm is None
    with pytest.raises(ProblemError, match="run: expected trained attention"):
        attsvm.predict_direction(problem, alone, "l2")


@pytest.mark.parametrize("fixed", [("W",), ("p", "v")])
def test_a_resumed_run_keeps_what_is_fixed(fixed, tmp_path):
    problem = random_problem(2, 3, 3, 0, prompt=True)
    options = {"attention": "key_prompt", "train_head": True, "optimizer": OPTIMIZERS["momentum"]}
    whole = train(problem, fixed=fixed, steps=50, record=range(51), **options)
    train(problem, fixed=fixed, steps=20, record=range(21), **options).save(tmp_path / "run.npz")
    part = attsvm.Run.load(tmp_path / "run.npz")
    resumed = train(problem, init=part, steps=30, record=range(51), **options)
    assert resumed.fixed == fixed
    for name, x in whole.parameters.items():
        np.testing.assert_allclose(resumed.parameters[name], x, rtol=0, atol=1e-13)
    assert set(resumed.history) == set(whole.history)
    np.testing.assert_allclose(resumed.history["weights"], whole.history["weights"], rtol=0, atol=1e-13)
    with pytest.raises(ProblemError, match=r"fixed: expected .* as in the run that is resumed, got none"):
        train(problem, init=part, fixed=(), **options)


def test_far_in_the_limit_powers_are_taken_out_of_what_is_trained():
    problem, start, _, _ = written_otherwise("key_prompt", "W")
    start["p"] *= 1e152
    options = {"optimizer": OPTIMIZERS["relative"], "steps": 2000, "record": 1}
    run = train(problem, attention="key_prompt", rank=RANK, fixed=("W",), init=start, **options)
    assert (run.log_scale > 10).all()
    np.testing.assert_array_equal(run.parameters["W"], start["W"])
    np.testing.assert_allclose(run.weights, np.einsum("ikm,im->ik", start["W"], run.parameters["p"]), rtol=1e-13)
    assert (train(problem, init=run, rank=RANK, steps=1).log_scale == run.log_scale).all()
    # if both are trained, each has its power
    start["W"] *= 1e76
    start["p"] *= 1e-76
    both = train(problem, attention="key_prompt", rank=RANK, init=start, **options)
    assert (both.log_scale > 20).all()
    norms = np.log(attsvm.norms.Lp(2.0).values(both.weights, 1)) + both.log_scale
    assert (norms > np.log(1e152) + 20).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": "W"}, "fixed: expected a sequence of names of parameters, got 'W'"),
        ({"fixed": ("V",)}, "fixed: expected some of W, v, got 'V'"),
        ({"fixed": ("W",)}, "fixed: expected at least one parameter to train, got W, which are all"),
        ({"fixed": ("W", "v"), "train_head": True}, "fixed: expected at least one parameter to train"),
        (
            {"fixed": ("W",), "train_head": True, "stop": attsvm.Stopping(margin_tol=0.1)},
            "margin_tol: expected trained attention",
        ),
    ],
)
def test_what_cannot_be_fixed_is_refused(options, message):
    with pytest.raises(ProblemError, match=message):
        train(random_problem(4, 5, 3, 0), **options)
