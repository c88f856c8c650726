"""Weights whose norm leaves the floats: their scale is kept apart, and their direction is what it would be without."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import attsvm
from attsvm import Problem, ProblemError, optimizers
from attsvm.datasets import random_problem
from attsvm.optimizers import rule_of
from attsvm.training import changes
from attsvm.training import range as ranges

W = 0.1 * np.ones((4, 4))
FACTORS = optimizers.normalized_gradient_descent(0.01, relative=True)


@pytest.fixture(scope="module")
def problem():
    return random_problem(5, 6, 4, 0)


def steepest(rate=0.1, norm="linf"):
    return optimizers.steepest_descent(norm=norm, learning_rate=rate, relative=True)


# all but the last pass the border within these steps; without exponents they are non_finite
GROWING = {
    "factors": ({"attention": "factored", "optimizer": FACTORS, "dtype": "float32"}, 20_000),
    "each factor": (
        {
            "attention": "factored",
            "optimizer": optimizers.normalized_gradient_descent(0.1, scope="each", relative=True),
        },
        20_000,
    ),
    "momentum": ({"optimizer": optimizers.momentum(steepest()), "init": W}, 20_000),
    "mirror, relative": ({"optimizer": optimizers.mirror_descent(p=3.0, relative=True), "init": W}, 60_000),
    "mini-batches": ({"optimizer": steepest(), "init": W, "batch_size": 2}, 8000),
    "shrinking": ({"optimizer": optimizers.steepest_descent(norm="linf", learning_rate=1e-3), "init": W * 1e-200}, 10),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_run_of_any_length_ends_finite_and_resumes_bit_for_bit(problem, name, tmp_path):
    options, steps = GROWING[name]
    run = attsvm.train(problem, steps=steps, **options)
    assert run.status == "finished"
    assert run.log_scale != 0 or name == "shrinking"
    assert all(np.isfinite(x).all() for x in run.history.values())
    assert run.history["log_scale"][-1] == run.log_scale
    # a part of the steps lies before the border
    attsvm.train(problem, steps=steps // 8, **options).save(tmp_path / "run.npz")
    part = attsvm.Run.load(tmp_path / "run.npz")
    rest = {key: x for key, x in options.items() if key != "init"}
    parts = attsvm.train(problem, init=part, steps=steps - steps // 8, **rest)
    assert parts.log_scale == run.log_scale
    for key, x in run.parameters.items():
        np.testing.assert_array_equal(parts.parameters[key], x)


def test_exponents_change_no_digit(problem, monkeypatch):
    """The same steps with the exponent 0 and, with a lower border, with others."""
    options = {"attention": "factored", "optimizer": FACTORS, "steps": 20_000}
    whole = attsvm.train(problem, **options)
    monkeypatch.setattr(ranges, "half_range", lambda dtype: 100)
    scaled = attsvm.train(problem, **options)
    assert whole.log_scale == 0
    assert scaled.log_scale > 10
    assert (scaled.status, scaled.step) == (whole.status, whole.step)
    power = round(scaled.log_scale / np.log(4))
    for name in "KQ":
        np.testing.assert_array_equal(np.ldexp(scaled.parameters[name], power), whole.parameters[name])
    np.testing.assert_array_equal(scaled.probability, whole.probability)


def test_the_direction_of_factors_still_converges_beyond_the_floats():
    problem = random_problem(6, 8, 10, 0)
    ends = [100_000, 120_000, 140_000]
    optimizer = optimizers.normalized_gradient_descent(
        lambda k: jnp.select([k < ends[0], k < ends[1]], [1e-2, 1e-3], 1e-4), relative=True
    )
    run = attsvm.train(problem, attention="factored", optimizer=optimizer, steps=ends[-1], record=ends)
    # KQ' is e^200 times as large as the largest weights with the scale 0, whose squares are floats
    assert (run.history["log_scale"] > 200).all()
    direction = attsvm.solve_svm(problem, run.selected, "nuclear").direction
    errors = attsvm.direction_error(run.history["weights"], direction, axis=(-2, -1))
    assert (np.diff(errors) < 0).all()
    # what the same stages of short steps reach inside the floats
    assert errors[-1] < 5e-5


def test_trials_have_exponents_of_their_own(problem):
    init = np.stack([W, 1e150 * W, 1e153 * W, np.zeros((4, 4))])
    runs = attsvm.train(problem, optimizer=steepest(), init=init, steps=300)
    assert (runs.log_scale[1:3] > 0).all()
    assert (runs.log_scale[[0, 3]] == 0).all()
    for start, run in zip(init, runs, strict=True):
        alone = attsvm.train(problem, optimizer=steepest(), init=start, steps=300)
        assert alone.log_scale == run.log_scale
        np.testing.assert_allclose(run.weights, alone.weights, rtol=1e-13)


def test_the_weights_of_mirror_descent_are_the_power_of_its_mirror_variable(problem):
    for p, relative in ((1.1, False), (3.0, True)):
        optimizer = optimizers.mirror_descent(p=p, relative=relative)
        run = attsvm.train(problem, optimizer=optimizer, init=W, steps=50_000 if relative else 50)
        assert (run.log_scale > 0) == relative
        mirror = run.optimizer_state["0"]
        kept = np.abs(run.weights) > 0
        found = np.log(np.abs(run.weights[kept]))  # powers of two are taken out of both
        # the logarithm of a number near 1 has the absolute error eps
        np.testing.assert_allclose(found, np.log(np.abs(mirror[kept])) / (p - 1), rtol=1e-12, atol=1e-15 / (p - 1))
        assert (np.sign(run.weights[kept]) == np.sign(mirror[kept])).all()


def test_weights_that_would_leave_the_floats_end_a_trial_with_its_last_finite_weights(problem):
    base = random_problem(6, 8, 10, 0)
    for dtype in ("float64", "float32"):
        run = attsvm.train(base, optimizer=optimizers.polyak(target=0.0), steps=1000, dtype=dtype)
        assert run.status == "non_finite"
        assert np.isfinite(run.weights).all()
    for optimizer in (
        optimizers.mirror_descent(p=1.0001, learning_rate=1.0),
        optimizers.normalized_gradient_descent(1e306),
    ):
        run = attsvm.train(problem, optimizer=optimizer, steps=1000)
        assert (run.status, run.log_scale) == ("non_finite", 0)
        assert np.isfinite(run.weights).all()
    # a bound on their length keeps them going
    assert attsvm.train(base, optimizer=optimizers.polyak(longest=0.5), steps=1000).status == "finished"


@pytest.mark.parametrize(("size", "dtype"), [(1e160, "float64"), (1e30, "float32"), (1e300, "float32")])
def test_tokens_whose_logits_are_no_floats_are_refused(problem, size, dtype):
    large = Problem(size * problem.tokens, problem.labels, problem.queries, problem.head)
    with pytest.raises(ProblemError, match=rf"tokens: expected entries up to about .*{dtype}"):
        attsvm.train(large, steps=5, dtype=dtype)


@pytest.mark.parametrize(("size", "dtype"), [(1e100, "float64"), (1e10, "float32"), (1e-100, "float64")])
def test_large_and_small_tokens_train_like_others(problem, size, dtype):
    size = 2.0 ** np.round(np.log2(size))
    other = Problem(size * problem.tokens, problem.labels, problem.queries, problem.head / size)
    optimizer = optimizers.normalized_gradient_descent(0.1 / size)
    run = attsvm.train(other, optimizer=optimizer, steps=50, dtype=dtype)
    same = attsvm.train(problem, steps=50, dtype=dtype)
    assert run.status == "finished"
    tolerance = {"float64": 1e-12, "float32": 1e-4}[dtype]
    true = run.weights * np.exp(run.log_scale)
    np.testing.assert_allclose(true * size, same.weights, rtol=0, atol=tolerance * np.abs(same.weights).max())


def test_what_mirror_descent_cannot_represent_is_refused(problem):
    with pytest.raises(ProblemError, match=r"p: expected at least 1\.0000000149"):
        optimizers.mirror_descent(p=1.000000001)
    with pytest.raises(ProblemError, match=r"p: expected at least 1\.000345.*float32"):
        attsvm.train(problem, optimizer=optimizers.mirror_descent(p=1.0001), steps=5, dtype="float32")
    run = attsvm.train(problem, optimizer=optimizers.mirror_descent(p=1000.0), init=1e3 * W, steps=5)
    assert (run.status, run.step) == ("non_finite", 0)


def test_counts_and_keys_in_a_state_have_no_exponent():
    drawn = optax.chain(optax.trace(0.9), optax.noisy_sgd(0.1, key=3))
    rule = rule_of(optimizers.chain(*rule_of(FACTORS).parts, drawn))
    state = rule.init({"W": jnp.ones((2, 2, 1))})
    state = state._replace(rule=jax.tree.map(jnp.ones_like, state.rule))
    kinds = {x.dtype.kind: np.unique(x).tolist() for x in jax.tree.leaves(rule.rescaled(state, jnp.array([-3.0])))}
    assert kinds == {"f": [0.125], "i": [1], "u": [1]}


def test_what_takes_no_exponents_refuses_a_run_that_has_them(problem):
    run = attsvm.train(problem, optimizer=steepest(), init=1e150 * W, steps=5000)
    assert run.log_scale > 0
    with pytest.raises(ProblemError, match="init: expected weights within the range of floats"):
        attsvm.train(problem, init=run, optimizer=optax.sgd(0.1), steps=5)
    # a run whose weights are floats is taken
    near = attsvm.train(problem, optimizer=steepest(), init=1e150 * W, steps=200)
    assert near.log_scale > 0
    taken = attsvm.train(problem, init=near, optimizer=optax.sgd(0.1), steps=0)
    np.testing.assert_allclose(taken.weights, near.weights * np.exp(near.log_scale), rtol=1e-10)


def test_the_change_of_the_logits_in_a_step_is_recorded(tmp_path):
    """Against two runs that end one step apart, by loops; it stays finite where the weights leave the floats."""
    problem = random_problem(3, 4, 5, seed=0, num_heads=2, batch=(2,))
    options = {"attention": "factored", "optimizer": optimizers.normalized_gradient_descent(0.05, relative=True)}
    run = attsvm.train(problem, steps=40, record=[0, 7, 40], **options)
    before = {step: attsvm.train(problem, steps=step - 1, record=1, **options).weights for step in (7, 40)}
    expected = np.zeros((3, 2))
    for record, step in enumerate((7, 40), start=1):
        moved = run.history["weights"][record] - before[step]
        for b, h, i, t in np.ndindex(2, 2, 3, 4):
            change = abs(problem.tokens[b, h, i, t] @ moved[b, h] @ problem.queries[b, h, i])
            expected[record, b] = max(expected[record, b], change)
    # a step of about 0.05 on weights of about 1
    np.testing.assert_allclose(run.history["logit_change"], expected, rtol=0, atol=1e-14)
    resumed = attsvm.train(problem, steps=20_000, init=run, record=[41, 20_000])
    assert (resumed.log_scale > 400).all()  # beside weights of about exp(350)
    assert (resumed.history["logit_change"][-1] == np.finfo(float).max).all()
    np.testing.assert_array_equal(resumed.history["logit_change"][:3], run.history["logit_change"])
    assert (resumed.history["logit_change"][3] > 0).all()
    resumed.save(tmp_path / "run.npz")
    loaded = attsvm.Run.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(loaded.history["logit_change"], resumed.history["logit_change"])


def test_masked_tokens_and_queries_change_no_logit(monkeypatch):
    """By loops, over two heads and two queries, at once and in slices of one trial."""
    r = np.random.default_rng(0)
    mask, query_mask = np.ones((3, 2, 4), dtype=bool), np.array([[True, True], [True, False], [True, True]])
    arrays = {"tokens": r.normal(size=(3, 4, 5)), "labels": np.ones((3, 2)), "queries": r.normal(size=(3, 2, 5))}
    # a long token that only the short queries may attend to, one that none may attend to, and a padded query
    arrays["tokens"][:, 2:] *= 1e6
    arrays["queries"][:, 1] *= 1e-6
    arrays["queries"][1, 1] = 1e6
    mask[:, 0, 2], mask[..., 3] = False, False
    problem = Problem(**arrays, head=r.normal(size=(2, 5)), num_heads=2, mask=mask, query_mask=query_mask)
    weights, power = r.normal(size=(4, 3, 2, 5, 5)), r.integers(-2, 3, (4, 3))
    expected = np.zeros((4, 3))
    for record, trial, h, i, q, t in product((1, 3), *map(range, (3, 2, 3, 2, 4))):
        after, before = (np.ldexp(weights[at, trial, h], power[at, trial]) for at in (record, record - 1))
        change = abs(arrays["tokens"][i, t] @ (after - before) @ arrays["queries"][i, q])
        if mask[i, q, t] and query_mask[i, q]:
            expected[record, trial] = max(expected[record, trial], change)
    for numbers in (changes._NUMBERS_AT_ONCE, 1):
        monkeypatch.setattr(changes, "_NUMBERS_AT_ONCE", numbers)
        found = changes.logit_changes(problem, np.array([0, 1, 3, 4]), weights, power)
        # rounding of sums of 25 products
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0)
