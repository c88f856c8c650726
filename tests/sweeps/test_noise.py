"""The source and the measure of the sweep ``noise``, and the sweep on a small grid."""

import numpy as np

import attsvm
from attsvm.datasets import signal_noise
from attsvm.sweeps import SOURCES

SMALL = {"num_sequences": 6, "num_tokens": 5, "dim": 40, "num_test": 30}


def test_a_trial_is_drawn_from_its_generator_alone():
    draw = SOURCES["noise"]
    drawn = draw([np.random.default_rng(seed) for seed in (3, 4)], label_noise=0.4, **SMALL)
    alone = signal_noise(6, 5, 40, label_noise=0.4, num_test=30, seed=4)
    for part, whole in ((alone.train, drawn.problem), (alone.test, drawn.test)):
        for name in ("tokens", "labels", "head"):
            np.testing.assert_array_equal(getattr(whole, name)[1], getattr(part, name))
    np.testing.assert_array_equal(drawn.extras["flipped"][1], alone.flipped)


def test_errors_and_selections_are_those_of_the_run_of_each_trial(tmp_path):
    fixed = {**SMALL, "optimizer": "gradient_descent", "learning_rate": 0.05, "steps": 60, "label_noise": 0.4}
    grid, measures = {"signal": [1.0, 8.0]}, ["error", "noise_selected"]
    found = attsvm.sweep(grid, measures, data="noise", fixed=fixed, trials=8, workers=0, store=tmp_path / "store")
    for cell, signal in enumerate(grid["signal"]):
        for trial in (0, 7):
            generator = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(cell, trial)))
            data = signal_noise(6, 5, 40, signal=signal, label_noise=0.4, num_test=30, seed=generator)
            prompt = np.zeros(40)
            for _ in range(60):
                prompt -= 0.05 * gradient(data.train, prompt)
            here = found.isel(signal=cell, trial=trial)
            assert here.train_error == np.mean(data.train.labels * outputs(data.train, prompt) <= 0)
            assert here.test_error == np.mean(data.test.labels * outputs(data.test, prompt) <= 0)
            noise = np.argmax(data.train.tokens @ prompt, axis=-1) >= 3
            assert here.noise_selected == noise.mean()
            assert here.noise_selected_flipped == noise[data.flipped].mean()


def attention(problem, prompt):
    logits = problem.tokens @ prompt
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def outputs(problem, prompt):
    return np.einsum("nt,ntd,d->n", attention(problem, prompt), problem.tokens, problem.head)


def gradient(problem, prompt):
    """Of the mean logistic loss, as written."""
    a, values = attention(problem, prompt), problem.tokens @ problem.head
    output = (a * values).sum(axis=-1, keepdims=True)
    slope = -problem.labels / (1 + np.exp(problem.labels * output[:, 0])) / len(output)
    return np.einsum("n,nt,ntd->d", slope, a * (values - output), problem.tokens)
