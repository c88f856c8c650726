"""From the same start, the weights of the papers' published runs."""

import numpy as np
import pytest

import attsvm
from attsvm import heads, optimizers

PROJECTION = np.array([1.0, 1.0, 0.0])


def upto(marks, last):
    return [int(mark) for mark in marks if mark <= last]


@pytest.mark.parametrize("seed", range(6))
def test_combined_weights_by_normalized_gradient_descent(reference, seed):
    data = reference("combined_and_factored.npz")
    problem = attsvm.Problem(*(data[f"s{seed}_{name}"] for name in ("X", "Y", "Z", "v")))
    marks = upto(data["marks"], 100)
    run = attsvm.train(problem, init=data[f"s{seed}_W_W0"], steps=100, record=marks)
    assert run.history["steps"].tolist() == marks
    expected = data[f"s{seed}_W_W_at"][: len(marks)]
    np.testing.assert_allclose(run.history["weights"], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_factored_weights_each_factor_normalized_and_penalized(reference, seed):
    data = reference("combined_and_factored.npz")
    problem = attsvm.Problem(*(data[f"s{seed}_{name}"] for name in ("X", "Y", "Z", "v")))
    run = attsvm.train(
        problem,
        attention="factored",
        optimizer=optimizers.normalized_gradient_descent(0.1, scope="each"),
        init=(data[f"s{seed}_KQ_K0"], data[f"s{seed}_KQ_Q0"]),
        penalty=2.2e-16,
        steps=100,
        record=[1, 2, 10, 100],
    )
    expected = data[f"s{seed}_KQ_W_at"][:4]
    np.testing.assert_allclose(run.history["weights"][:3], expected[:3], rtol=0, atol=1e-12)
    # the published run is limited by rounding there
    np.testing.assert_allclose(run.history["weights"][3], expected[3], rtol=0, atol=1e-5)


def prompt_problem(data, name, project=True):
    X = data[f"{name}_X"].astype(float)
    prefix = name.split("_")[0]
    v = data[f"{name}_v"] if f"{name}_v" in data else np.array([0.0, 0.0, 1.0])
    Y = data[f"{name}_Y"] if f"{name}_Y" in data else np.ones(len(X))
    assert prefix in ("single", "multi", "loss")
    return attsvm.Problem(X, Y, head=v, keys=X * PROJECTION if project else None)


def assert_prompt_agrees(got, expected, marks):
    """Float32 references: to 1e-4 up to step 50, to 2e-3 at 100."""
    got, expected = np.moveaxis(got, 0, -2), np.asarray(expected, dtype=float)
    for i, mark in enumerate(upto(marks, 100)):
        assert np.abs(got[..., i, :] - expected[..., i, :]).max() < (1e-4 if mark <= 50 else 2e-3), mark


@pytest.mark.parametrize(
    ("name", "result", "optimizer"),
    [
        ("single_global", "single_global_p_at", None),
        ("single_local", "single_local_p_at", None),
        ("multi", "multi_ngd_p_at", None),
        ("multi", "multi_gd_p_at", optimizers.gradient_descent(1.0)),
    ],
)
def test_prompts_from_six_starts_at_once(reference, name, result, optimizer):
    data = reference("prompt_attention.npz")
    marks = upto(data["marks"], 100)
    run = attsvm.train(
        prompt_problem(data, name), optimizer=optimizer, init=data[f"{name}_p0"], steps=100, record=marks
    )
    assert_prompt_agrees(run.history["weights"], data[result], marks)


@pytest.mark.parametrize("loss", ["linear", "logistic", "exponential"])
@pytest.mark.parametrize("scale", [1, 5, 10, 100])
def test_prompts_under_three_losses(reference, loss, scale):
    data = reference("prompt_attention.npz")
    name = f"loss_{loss}_C{scale}"
    marks = upto(data["marks"], 100)
    run = attsvm.train(prompt_problem(data, name), loss=loss, steps=100, record=marks)
    assert_prompt_agrees(run.history["weights"], data[f"{name}_p_at"], marks)


@pytest.mark.parametrize("name", ["joint_all_support", "joint_relaxed"])
def test_prompt_and_head_together(reference, name):
    data = reference("prompt_attention.npz")
    marks = upto(data["marks"], 100)
    problem = attsvm.Problem(data[f"{name}_X"], data[f"{name}_Y"], head=data[f"{name}_v0"])
    run = attsvm.train(
        problem,
        optimizer=optimizers.normalized_gradient_descent(0.1, scope="each"),
        train_head=True,
        init=data[f"{name}_p0"],
        steps=100,
        record=marks,
    )
    assert_prompt_agrees(run.history["weights"], data[f"{name}_p_at"], marks)
    assert_prompt_agrees(run.history["v"], data[f"{name}_v_at"], marks)


@pytest.mark.parametrize("p", [1.75, 2.0, 3.0])
def test_combined_weights_by_mirror_descent(reference, p):
    data = reference("mirror_descent.npz")
    name = f"p{p:g}".replace(".", "_")
    seeds = range(1, 5)
    problem = attsvm.Problem(*(np.stack([data[f"s{seed}_{x}"] for seed in seeds]) for x in ("X", "Y", "Z", "v")))
    expected = np.stack([data[f"s{seed}_{name}_W_at"][:4] for seed in seeds], axis=1)
    run = attsvm.train(
        problem,
        optimizer=optimizers.mirror_descent(learning_rate=0.1, p=p),
        init=expected[0],
        steps=100,
        record=upto(data[f"s1_{name}_marks"], 100),
    )
    assert run.history["steps"].tolist() == [0, 1, 10, 100]
    np.testing.assert_allclose(run.history["weights"], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("p", [1.75, 2.0, 3.0])
def test_weights_and_head_together_by_mirror_descent(reference, p):
    data = reference("mirror_descent.npz")
    name = f"joint_p{p:g}".replace(".", "_")
    problem = attsvm.Problem(data["joint_X"], data["joint_Y"], data["joint_Z"], np.zeros(2))
    marks = upto(data[f"{name}_marks"], 10)
    run = attsvm.train(
        problem,
        optimizer=optimizers.mirror_descent(learning_rate=0.1, p=p, scope="each"),
        train_head=True,
        steps=10,
        record=marks,
    )
    for got, at in (("weights", "W_at"), ("v", "v_at")):
        np.testing.assert_allclose(run.history[got], data[f"{name}_{at}"][: len(marks)], rtol=0, atol=1e-12)


def test_relu_heads(reference):
    data = reference("nonlinear_head.npz")
    names = sorted(key.removesuffix("_X") for key in data if key.endswith("_X"))
    assert len(names) == 53
    for d in (4, 6, 8, 10):
        members = [name for name in names if name.startswith(f"d{d}_")]
        X, Y, Z, V, W0, W_at = (
            np.stack([data[f"{name}_{x}"] for name in members]) for x in ("X", "Y", "Z", "V", "W0", "W_at")
        )
        run = attsvm.train(
            attsvm.Problem(X, Y, Z),
            head=heads.MLP(np.swapaxes(V, -1, -2)),
            init=W0,
            steps=100,
            record=[1, 10, 100],
        )
        np.testing.assert_allclose(run.history["weights"], np.moveaxis(W_at, 1, 0)[:3], rtol=0, atol=1e-11)
