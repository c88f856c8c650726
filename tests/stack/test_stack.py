"""Stacks of layers: what they select and where they converge to, against definitions written as loops."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace

import cvxpy as cp
import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.optimizers import normalized_gradient_descent
from attsvm.stack import layers
from attsvm.stack.prediction import model_of
from attsvm.theory import table

N, T, D = 2, 4, 5


def drawn(layers=2, num_heads=None, seed=0, batch=(), **options):
    problem = random_problem(N, T, D, seed=seed, batch=batch, num_heads=num_heads)
    if num_heads is not None:
        options["values"] = np.random.default_rng(seed).standard_normal((num_heads, layers - 1, D, D))
    return attsvm.Stack(problem, layers, **options)


@pytest.fixture(scope="module")
def with_weights():
    """A run with given weights, without any training."""
    some = drawn().train(steps=0)

    def run(stack, weights):
        return replace(some, weights=weights, layers=stack.layers, data_hash=stack.data_hash)

    return run


def equal_to(x, winner):
    return {s for s in range(T) if np.abs(x[s] - x[winner]).max() <= 1e-9 * np.abs(x).max()}


def by_loops(stack, weights):
    """Tokens of the last layer and the path, one sequence, position and head at a time; ``weights[l][h]``."""
    problem, heads = stack.problem, stack.problem.num_heads or 1
    of_one = problem[0] if stack.problem.num_heads else problem
    values = None if stack.values is None else stack.values.reshape(heads, stack.layers - 1, D, D)
    path = np.zeros((stack.layers, N, T), bool)
    last = np.zeros((N, T, D))
    for i in range(N):
        x, chosen = of_one.tokens[i], []
        for number in range(stack.layers - 1):
            new, of_layer = [], {}
            for t in range(T):
                seen = range(t + 1) if stack.causal else range(T)
                total = x[t].copy() if stack.residual else np.zeros(D)
                for h in range(heads):
                    logits = np.array([x[s] @ weights[number][h] @ x[t] for s in seen])
                    a = np.exp(logits - logits.max())
                    o = sum(p * x[s] for p, s in zip(a / a.sum(), seen, strict=True))
                    total += o if values is None else values[h, number] @ o
                    of_layer[t, h] = equal_to(x, int(np.argmax(logits))) & set(seen)
                new.append(total)
            x = np.array(new)
            chosen.append(of_layer)
        last[i] = x
        on = set.union(*(equal_to(x, int(np.argmax(x @ weights[-1][h] @ of_one.queries[i]))) for h in range(heads)))
        path[-1, i, list(on)] = True
        for number in reversed(range(stack.layers - 1)):
            read = set.union(*(read for (t, _), read in chosen[number].items() if t in on))
            on = on | read if stack.residual else read
            path[number, i, list(on)] = True
    return last, path


@given(
    seed=st.integers(0, 1000),
    layers=st.integers(2, 4),
    num_heads=st.sampled_from([None, 1, 2]),
    residual=st.booleans(),
    causal=st.booleans(),
)
@settings(max_examples=40)
def test_layers_and_path_are_those_of_the_definition(with_weights, seed, layers, num_heads, residual, causal):
    stack = drawn(layers, num_heads, seed, residual=residual, causal=causal)
    generator = np.random.default_rng(seed)
    shape = (D, D) if num_heads is None else (num_heads, D, D)
    weights = {f"W{number}": 3.0 * generator.standard_normal(shape) for number in range(layers)}
    run = with_weights(stack, weights)
    last, path = by_loops(stack, [x.reshape(-1, D, D) for x in weights.values()])
    tokens = stack.layer(run, layers - 1).problem.tokens
    assert np.abs((tokens if num_heads is None else tokens[0]) - last).max() <= 1e-9 * np.abs(last).max()
    assert (np.array(stack.path(run)) == path).all()


@pytest.fixture(scope="module")
def trained():
    stack = attsvm.Stack(random_problem(3, 4, 10, seed=17, batch=(8,)), 3)
    return stack, stack.train(steps=12_000, loss="exponential", record=2)


@pytest.mark.optimized
def test_each_layer_converges_to_its_relaxed_att_svm(trained):
    stack, run = trained
    assert (stack.saturation(run) > 0.99).all()
    for number, solution in enumerate(stack.solve(run)):
        assert (solution.status == "optimal").all()
        # the slowest problems of these seeds are at 2e-3 after so few steps
        errors = attsvm.direction_error(run.weights[f"W{number}"], solution, axis=(-2, -1))
        assert np.median(errors) < 1e-3
        assert errors.max() < 2e-2
    margins = stack.margins(run)
    assert np.median(margins.max(axis=-1) / margins.min(axis=-1)) < 1.02


@pytest.mark.optimized
def test_solution_of_a_layer_is_that_of_its_constraints(trained):
    stack, run = trained
    layer, on_path = stack.layer(run, 0), stack.path(run)[1]
    tokens, weights = stack.problem.tokens[0], run.weights["W0"][0]
    rows, right = [], []
    for i, t in np.ndindex(3, 4):
        winner = int(np.argmax(tokens[i] @ weights @ tokens[i, t]))
        for s in set(range(4)) - {winner}:
            rows.append(np.outer(tokens[i, winner] - tokens[i, s], tokens[i, t]).ravel())
            right.append(float(on_path[0, i, t]))
    w = cp.Variable(100)
    least = cp.Problem(cp.Minimize(cp.norm(w)), [np.array(rows) @ w >= np.array(right)]).solve(solver="CLARABEL")
    assert abs(stack.solve(run)[0].value[0] / least - 1) < 1e-6
    assert (layer.relaxed[0] == ~on_path[0]).all()


def test_trials_of_a_batch_do_not_influence_each_other():
    stack = drawn(3, 2, batch=(3,))
    generator = np.random.default_rng(0)
    init = {f"W{number}": generator.standard_normal((3, 2, D, D)) for number in range(3)}
    together = stack.train(steps=40, init=init)
    for i in range(3):
        of_one = attsvm.Stack(stack.problem[i], 3, values=stack.values[0])
        alone = of_one.train(steps=40, init={name: x[i] for name, x in init.items()})
        for name, x in alone.weights.items():
            # sums over trials side by side may be compiled in another order
            assert np.abs(x - together.weights[name][i]).max() <= 1e-10 * np.abs(x).max()


def test_frame_has_the_history_and_a_plot_the_path_of_one_trial():
    stack = drawn(batch=(2,), seed=8)
    run = stack.train(steps=400, record=[0, 100, 400])
    frame = run.to_frame()
    assert frame.index.names[0] == "steps"
    assert (frame.xs(400, level="steps").loss == run.loss).all()
    assert frame.log_scale.shape == frame.logit_change.shape == (3 * 2,)
    for trial in range(2):
        axes = run.plot(stack, trial=trial)
        # a marker for each token of the path, and for the query of each sequence
        marked = [line for line in axes.lines if line.get_color() == "#D55E00" and line.get_linestyle() == "None"]
        assert sum(len(line.get_xdata()) for line in marked) == sum(on[trial].sum() for on in stack.path(run)) + N


def test_tokens_that_several_positions_select_are_kept_together(with_weights):
    stack = drawn(2, residual=False)
    # every position selects the token with the largest first entry
    direction = np.zeros((D, D))
    direction[0, 0] = 1.0
    tokens = np.abs(stack.problem.tokens)
    stack = attsvm.Stack(
        attsvm.Problem(tokens, stack.problem.labels, stack.problem.queries, stack.problem.head), 2, residual=False
    )
    run = with_weights(stack, {"W0": 1e6 * direction, "W1": np.eye(D)})
    assert stack.layer(run, 1).selected.all()
    assert (stack.path(run)[0] == (np.arange(T) == tokens[..., 0].argmax(axis=-1)[:, None])).all()


def test_a_run_is_read_back_from_its_file(tmp_path):
    run = drawn(2, batch=(2,)).train(steps=5, attention="factored", rank=2)
    run.save(tmp_path / "run.npz")
    read = attsvm.StackRun.load(tmp_path / "run.npz")
    assert (read.weights["W1"] == run.weights["W1"]).all()
    assert (read.limit, read.layers, read.batch_shape) == (run.limit, 2, (2,))
    assert np.allclose(run.weights["W0"], run.parameters["K0"] @ run.parameters["Q0"].mT, rtol=1e-14)


def as_schema_1(path):
    """Rename what a file holds as before schema 2, which counted layers from 1."""
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays.pop("__meta__").tobytes())

    def before(name):
        return re.sub(r"(?<=[WKQ])\d+$", lambda number: str(int(number[0]) + 1), name)

    for name in ("weights", "parameters", "history"):
        meta[name] = {before(key): None for key in meta[name]}
    header = np.frombuffer(json.dumps(meta | {"schema": 1}).encode(), np.uint8)
    np.savez(path, __meta__=header, **{before(name): array for name, array in arrays.items()})


@pytest.mark.parametrize("attention", ["combined", "factored"])
def test_a_file_that_counts_layers_from_1_is_converted_and_continues(tmp_path, attention):
    stack = drawn(2, batch=(2,))
    options = {"attention": attention, "optimizer": "adam"}
    stack.train(steps=20, record=[20], **options).save(tmp_path / "run.npz")
    as_schema_1(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as archive:
        first = archive["weights/W1"]
    read = attsvm.StackRun.load(tmp_path / "run.npz")
    assert (read.weights["W0"] == first).all()
    assert set(read.parameters) == {f"{of}{i}" for of in ("W" if attention == "combined" else "KQ") for i in (0, 1)}
    resumed, whole = stack.train(steps=20, init=read), stack.train(steps=40, **options)
    assert all((x == whole.weights[name]).all() for name, x in resumed.weights.items())


def test_an_optimizer_state_in_another_order_is_left_out_with_a_warning(tmp_path):
    """Sorted by name, "W10" comes before "W2", so that ten layers have another order if they count from 0."""
    stack, numbers = drawn(10), normalized_gradient_descent(scope="each", average=0.9)
    for optimizer, kept in (("adam", False), (numbers, False), (None, True)):
        run = stack.train(steps=2, optimizer=optimizer)
        run.save(tmp_path / "run.npz")
        as_schema_1(tmp_path / "run.npz")
        with nullcontext() if kept else pytest.warns(match="optimizer_state: left out"):
            read = attsvm.StackRun.load(tmp_path / "run.npz")
        assert all((x == run.weights[name]).all() for name, x in read.weights.items())
        assert len(read.optimizer_state) == (len(run.optimizer_state) if kept else 0)
        assert stack.train(steps=1, init=read).step == 3


PROBLEM = random_problem(N, T, D, seed=0)
WITH_KEYS = attsvm.Problem(PROBLEM.tokens, PROBLEM.labels, PROBLEM.queries, PROBLEM.head, PROBLEM.tokens)


def test_a_run_of_another_stack_is_refused(with_weights):
    for other in (drawn(2, seed=1), drawn(2, residual=False), drawn(2, values=np.ones((1, D, D)))):
        with pytest.raises(ProblemError, match="run: expected a run of this stack"):
            drawn().path(with_weights(other, {}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: attsvm.Stack(random_problem(N, T, D, prompt=True), 2), "problem: expected queries"),
        (lambda: attsvm.Stack(WITH_KEYS, 2), "problem: expected no keys"),
        (lambda: attsvm.Stack(PROBLEM, 1), "layers: expected an integer"),
        (lambda: attsvm.Stack(random_problem(N, T, D, num_heads=2), 2), "values: expected value matrices for 2"),
        (lambda: attsvm.Stack(PROBLEM, 2, values=np.eye(D)), r"values: expected shape \(1, 5, 5\), got \(5, 5\)"),
        (
            lambda: attsvm.Stack(PROBLEM, 2, values=np.full((1, D, D), np.nan)),
            "values: expected finite numbers, got NaN",
        ),
        (lambda: attsvm.Stack(PROBLEM, 2, values="identity"), "values: expected real numbers, got str"),
        (lambda: drawn().train(init={"W2": np.eye(D)}, steps=1), "init: expected parameters W0, W1, got 'W2'"),
        (lambda: drawn().train(init={"W0": np.eye(D), "W1": np.eye(3)}, steps=1), "init: expected W1 of shape"),
        (lambda: drawn().train(attention="prompt", steps=1), "attention: expected combined or factored"),
        (lambda: drawn().path(attsvm.train(PROBLEM, steps=1)), "run: expected"),
        (lambda: drawn().layer(None, 2), "number, which counts layers from 0: expected an integer from 0 to 1, got 2"),
        (lambda: drawn().train(steps=1).plot(), "stack: expected"),
        (lambda: drawn(batch=(2,)).train(steps=1).plot(drawn(batch=(2,))), "trial: expected an index for batch axes"),
        (lambda: drawn().train(steps=1, init=drawn(seed=1).train(steps=1)), "init: expected a run of this stack"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ProblemError, match=message):
        make()


@pytest.mark.parametrize(
    "options", [{}, {"attention": "factored"}, {"batch_size": 1, "seed": 3}, {"optimizer": "adam"}]
)
def test_a_resumed_run_is_that_of_all_steps_bit_for_bit(tmp_path, options):
    stack = drawn(2, batch=(2,))
    whole = stack.train(steps=60, record=[20, 50, 60], **options)
    stack.train(steps=20, record=[20], **options).save(tmp_path / "run.npz")
    given = {name: x for name, x in options.items() if name in ("batch_size", "seed")}
    resumed = stack.train(steps=40, init=attsvm.StackRun.load(tmp_path / "run.npz"), record=[50, 60], **given)
    assert (resumed.step == 60).all()
    for name in ("W0", "W1", "loss", "steps"):
        assert (resumed.history[name] == whole.history[name]).all()


def test_sums_in_another_order_are_equal_in_both_precisions():
    generator = np.random.default_rng(0)
    tokens = generator.standard_normal((50, 6, 5))
    for dtype in (np.float64, np.float32):
        with jax.enable_x64(True):
            in_order, reverse = (np.cumsum(x.astype(dtype), axis=1)[:, -1] for x in (tokens, tokens[:, ::-1]))
            first, other, another = (jax.numpy.asarray(x.T) for x in (in_order, reverse, reverse * dtype(1.1)))
            is_winner = np.array([True, False, False])[None, None, :, None]
            equal = jax.jit(layers._equal)(is_winner, jax.numpy.stack([first, other, another])[None])
            assert equal[0, 0, :2].all()
            assert not equal[0, 0, 2].any()


def test_a_prediction_is_measured_only_for_what_was_measured():
    stack = drawn()
    run = stack.train(steps=5000, loss="exponential")
    first, last = stack.predict(run)
    assert first.standing == last.standing == "measured"
    assert attsvm.direction_error(run.weights["W0"], first.direction) < 1e-3
    verdicts = {one.name: one.holds for one in first.hypotheses}
    assert verdicts["saturated"]
    assert verdicts["separable_0"]
    assert verdicts["separable_1"]
    early = stack.predict(stack.train(steps=20, loss="exponential"))[0]
    assert {one.name: one.holds for one in early.hypotheses}["saturated"] is False
    assert early.standing == "none"
    unknown = replace(run.limit, steps=replace(run.limit.steps, schedule=None))
    for changes in ({"limit": unknown}, {"step": 100_000}, {"loss_name": "custom"}):
        assert stack.predict(replace(run, **changes))[0].standing == "conjecture"
    for changes in ({"batch_size": 1}, {"weight_decay": 0.1}):
        assert stack.predict(replace(run, **changes))[0].standing == "none"
    # what was measured of plain layers says nothing of causal ones
    rows = {row.model for row in table()}
    assert model_of(drawn(causal=True), run).name in rows - {model_of(stack, run).name}
    assert model_of(drawn(causal=True, residual=False), run).name not in rows


def test_heads_of_a_layer_are_compared_with_each_other():
    stack = drawn(num_heads=2)
    run = stack.train(steps=5000, loss="exponential")
    last = stack.solve(run)[1]
    values, near = last.value, {}
    for part in (1.0, 0.1):
        planted = run.weights | {"W1": 1e3 * last.direction * [[[1.0]], [[part]]]}
        found = stack.predict(replace(run, weights=planted))[0]
        near[part] = next(one for one in found.hypotheses if one.name == "near")
    assert near[1.0].holds
    # the margins of the second head are a tenth of those of the first
    ratio = 0.1 * np.hypot(*values) / np.hypot(values[0], 0.1 * values[1])
    assert (near[0.1].holds, near[0.1].number) == (False, pytest.approx(ratio, rel=1e-5))


def test_what_is_not_known_of_steps_is_not_recorded_as_known():
    stack = drawn()
    assert stack.train(steps=1, optimizer=optax.adamw(0.01, weight_decay=0.1)).weight_decay is None


def test_products_of_many_factors_have_more_terms_than_an_integer_of_64_bits():
    run = drawn(11).train(steps=1, attention="factored")
    assert np.isfinite(run.loss)
