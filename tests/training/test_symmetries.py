"""What must not matter, for every parametrisation: order, batches, padding, and how the weights are written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm import heads, optimizers, train

N, T, D, WIDTH, TRIALS = 3, 4, 3, 4, 3

MIRROR = optimizers.mirror_descent(learning_rate=0.1, p=1.75, scope="each")
KINDS = {
    "combined": {},
    "factored, ReLU": {"attention": "factored", "rank": 2},
    "prompt, GELU trained": {"attention": "prompt", "train_head": True, "optimizer": MIRROR},
    "several queries with keys, classes": {
        "loss": "cross_entropy",
        "train_head": True,
        "optimizer": optimizers.steepest_descent(learning_rate=0.1, norm="spectral"),
    },
}


def random_trials(kind, generator):
    """Arrays of a batch of problems, and where each starts."""
    arrays = {
        "tokens": generator.normal(size=(TRIALS, N, T, D)),
        "labels": generator.choice([-1.0, 1.0], size=(TRIALS, N)),
        "mask": generator.random((TRIALS, N, T)) < 0.7,
    }
    arrays["mask"][..., 0] = True
    head = None
    if "classes" in kind:
        arrays |= {
            "labels": generator.integers(3, size=(TRIALS, N, 2)).astype(float),
            "queries": generator.normal(size=(TRIALS, N, 2, D)),
            "keys": generator.normal(size=(TRIALS, N, T, 2)),
            "head": generator.normal(size=(TRIALS, 3, D)),
        }
        init = {"W": generator.normal(size=(TRIALS, 2, D))}
    elif kind == "combined":
        arrays |= {"queries": generator.normal(size=(TRIALS, N, D)), "head": generator.normal(size=(TRIALS, D))}
        init = {"W": generator.normal(size=(TRIALS, D, D))}
    elif "factored" in kind:
        arrays["queries"] = generator.normal(size=(TRIALS, N, D))
        init = {name: generator.normal(size=(TRIALS, D, 2)) for name in ("K", "Q")}
        head = heads.MLP(generator.normal(size=(WIDTH, D)))
    else:
        init = {"p": generator.normal(size=(TRIALS, D))}
        head = heads.MLP(generator.normal(size=(WIDTH, D)), generator.normal(size=WIDTH), activation="gelu")
    return arrays, init, head


def run_of(kind, arrays, init, head, steps=12):
    return train(attsvm.Problem(**arrays), init=init, head=head, steps=steps, record=1, **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_permuting_trials_sequences_or_tokens_permutes_the_run(kind, seed):
    generator = np.random.default_rng(seed)
    arrays, init, head = random_trials(kind, generator)
    trials, sequences, tokens = (generator.permutation(size) for size in (TRIALS, N, T))
    moved = {}
    for name, x in arrays.items():
        x = x[trials]
        x = x if name == "head" else x[:, sequences]
        moved[name] = x[:, :, tokens] if name in ("tokens", "keys", "mask") else x
    run = run_of(kind, arrays, init, head)
    other = run_of(kind, moved, {name: x[trials] for name, x in init.items()}, head)
    # the order of sums changes, and with it their rounding
    np.testing.assert_allclose(other.weights, run.weights[trials], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(tokens[other.selected], run.selected[trials][:, sequences])
    np.testing.assert_allclose(other.probability, run.probability[trials][:, sequences], rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_members(kind):
    # to rounding: how many trials lie side by side decides in which order the compiler adds and fuses
    arrays, init, head = random_trials(kind, np.random.default_rng(0))
    together = run_of(kind, arrays, init, head)
    for i in range(TRIALS):
        alone = run_of(kind, *({name: x[i] for name, x in part.items()} for part in (arrays, init)), head)
        np.testing.assert_allclose(together[i].weights, alone.weights, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(together[i].selected, alone.selected)
        for name in alone.parameters:
            np.testing.assert_allclose(together[i].parameters[name], alone.parameters[name], rtol=0, atol=1e-12)


def test_copies_of_a_problem_side_by_side_stay_equal_bit_for_bit():
    arrays, init, head = random_trials("factored, ReLU", np.random.default_rng(1))
    copies = {name: np.repeat(x[:1], 20, axis=0) for name, x in arrays.items()}
    run = run_of("factored, ReLU", copies, {name: np.repeat(x[:1], 20, axis=0) for name, x in init.items()}, head)
    assert (run.weights == run.weights[0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_masked_tokens_might_as_well_not_be_there(kind):
    generator = np.random.default_rng(2)
    arrays, init, head = random_trials(kind, generator)
    # more padding, full of other numbers
    wider = dict(arrays)
    for name in ("tokens", "keys"):
        if name in arrays:
            x = np.where(arrays["mask"][..., None], arrays[name], 1e3 * generator.normal(size=arrays[name].shape))
            wider[name] = np.concatenate([x, generator.normal(size=x[:, :, :2].shape)], axis=2)
    wider["mask"] = np.concatenate([arrays["mask"], np.zeros((TRIALS, N, 2), dtype=bool)], axis=2)
    run, other = run_of(kind, arrays, init, head), run_of(kind, wider, init, head)
    np.testing.assert_allclose(other.weights, run.weights, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(other.selected, run.selected)


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.floats(-1.0, 1.5))
def test_factors_with_at_least_d_columns_compute_what_their_product_does(seed, exponent):
    generator = np.random.default_rng(seed)
    problem = attsvm.Problem(
        generator.normal(size=(N, T, D)), generator.choice([-1, 1], size=N), generator.normal(size=(N, 2)), np.ones(D)
    )
    K, Q = (10.0**exponent * generator.normal(size=(d, 4)) for d in (D, 2))
    descent = optimizers.gradient_descent(1e-3)
    factored = train(problem, attention="factored", rank=4, init=(K, Q), optimizer=descent, steps=1, record=[0, 1])
    combined = train(problem, init=K @ Q.T, optimizer=descent, steps=1, record=[0, 1])
    np.testing.assert_array_equal(factored.selected, combined.selected)
    for name in ("loss", "probability"):
        np.testing.assert_allclose(factored.history[name][0], combined.history[name][0], rtol=1e-10)
    # and so ∇_K = ∇_W Q and ∇_Q = ∇_W' K
    step = combined.weights - K @ Q.T
    eps, of_K, of_Q = np.finfo(float).eps, np.abs(K).max(), np.abs(Q).max()
    for got, expected, own, other in (
        (factored.parameters["K"] - K, step @ Q, of_K, of_Q),
        (factored.parameters["Q"] - Q, step.T @ K, of_Q, of_K),
    ):
        # the steps are differences of rounded numbers
        rounding = 4 * eps * (own + 4 * np.abs(K @ Q.T).max() * other)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10 * np.abs(expected).max() + rounding)


def test_any_weights_are_a_product_of_factors_with_at_least_d_columns():
    problem = attsvm.datasets.random_problem(N, T, D, 0)
    W = 5 * np.random.default_rng(0).normal(size=(D, D))
    for K, Q in ((W, np.eye(D)), (np.eye(D), W.T), (np.c_[W, W], np.c_[np.eye(D), np.zeros((D, D))])):
        run = train(problem, attention="factored", rank=K.shape[1], init=(K, Q), steps=0)
        assert run.loss == pytest.approx(train(problem, init=W, steps=0).loss, rel=1e-13)
