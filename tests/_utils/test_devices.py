"""Names of devices, and where a call computes."""

import os
import subprocess
import sys

import jax
import pytest

import attsvm
from attsvm import fit
from attsvm._utils.devices import parse_device
from attsvm._utils.jax_devices import compiler_options, quick_to_compile
from attsvm.training import loop

pytestmark = pytest.mark.slow

PROBLEM = attsvm.datasets.random_problem(3, 4, 5, seed=0)


@pytest.mark.parametrize(
    ("name", "number_of_gpus", "found"),
    [("cpu", 0, ("cpu", 0)), ("gpu", 1, ("gpu", 0)), ("cuda", 2, ("gpu", 0)), ("cuda:1", 2, ("gpu", 1))],
)
def test_jax_and_torch_names_are_known(name, number_of_gpus, found):
    assert parse_device(name, number_of_gpus) == found


@pytest.mark.parametrize(
    ("name", "number_of_gpus", "existing"),
    [("cuda", 0, "'cpu', got"), ("cuda:2", 2, "'cpu' or 'cuda:0' or 'cuda:1', got"), ("cuda:", 1, "'cuda:0', got")]
    + [(name, 1, "'cpu' or 'cuda:0', got") for name in ("tpu", "cpu:1", "cuda:-1", "", 0)],
)
def test_a_device_that_does_not_exist_is_refused_with_those_that_do(name, number_of_gpus, existing):
    says = f"device: expected one of those available here, .*{existing} {name!r}"
    with pytest.raises(attsvm.errors.ProblemError, match=says):
        parse_device(name, number_of_gpus)


FORKED = """
import os, signal
import numpy as np
import attsvm
from attsvm.training import LossGradient
problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
attsvm.train(problem, steps=2)
gradient, weights = LossGradient(problem), np.zeros((1, 5, 5))
for call in (
    lambda: attsvm.train(problem, steps=3),
    lambda: attsvm.train(problem, steps=3, device="cpu"),
    lambda: gradient({"W": weights}),
    lambda: attsvm.solve_svm(problem, [0, 0, 0]).status,
):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            print(call(), flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this platform")
def test_a_fork_of_a_process_that_has_trained_solves_but_refuses_to_train():
    code = [sys.executable, "-W", "ignore", "-c", FORKED]
    *refused, solved = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    assert solved == "optimal"
    assert len(refused) == 3
    assert all("'spawn' or 'forkserver'" in line for line in refused)


def test_naming_the_default_device_compiles_nothing():
    attsvm.train(PROBLEM, steps=1)
    compiled = loop._compiled.cache_info().misses
    attsvm.train(PROBLEM, steps=1, device="cpu")
    assert loop._compiled.cache_info().misses == compiled


ON_DEVICES = """
import tempfile
from pathlib import Path
import jax, numpy as np, attsvm
from attsvm._utils.jax_devices import default_device
from attsvm.papers import run
from attsvm.sweeps import Definition, measured

first, second = jax.devices()
problem = attsvm.datasets.random_problem(4, 3, 2, seed=0)
optimizer = attsvm.optimizers.gradient_descent

def used(work):
    seen = []
    work(lambda _: seen.append(default_device()) or True)
    return seen[0]

def fit(callback, **options):
    attsvm.AttentionClassifier("gradient_descent", max_steps=25, early_stopping=False, **options).fit(
        problem.tokens, [1, -1, 1, -1], callback=callback
    )

def profile(callback, **options):
    attsvm.margin_profile(optimizer, seeds=1, norms=["l1", "l2"], steps=4, callback=callback, **options)

def sweep(callback, **options):
    def measure(problem, run):
        callback(0)
        return {"one": np.ones(8)}

    fixed = {"num_sequences": 2, "num_tokens": 2, "steps": 1}
    measured(Definition({"dim": [2]}, [measure], trials=8, fixed=fixed), **options)

def reproduce(callback, **options):
    with tempfile.TemporaryDirectory() as folder:
        run("feasibility", Path(folder), quick=True, progress=lambda piece, reused: callback(0), **options)

def train(callback, **options):
    attsvm.train(problem, steps=1, callback=callback, **options)

for work in (train, fit, profile, sweep, reproduce):
    with jax.default_device(second):
        assert used(lambda callback: work(callback, device="cpu")) == first
"""


def test_the_named_device_is_used_where_jax_has_several():
    several = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ON_DEVICES], env={**os.environ, **several}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def fit_in_place(device):
    attsvm.AttentionClassifier(device=device).fit(PROBLEM.tokens, PROBLEM.labels)


def profile_in_place(device):
    attsvm.margin_profile(attsvm.optimizers.gradient_descent, seeds=1, steps=4, device=device)


def fit_and_compare(device):
    fit(attsvm.datasets.random_problem(16, 4, 5, seed=1), steps=1, device=device)


@pytest.mark.parametrize("work", [fit_in_place, profile_in_place, fit_and_compare])
def test_every_call_refuses_a_device_that_does_not_exist(work):
    with pytest.raises(
        attsvm.errors.ProblemError, match="device: expected one of those available here, 'cpu', got 'cuda:7'"
    ):
        work("cuda:7")


def test_a_compiler_gets_no_option_that_it_lacks(monkeypatch):
    option = "xla_cpu_use_fusion_emitters"
    for version, has_it in (((0, 10, 2), True), ((0, 11, 2), False), ((0, 12, 0), False)):
        monkeypatch.setattr(jax, "__version_info__", version)
        assert (option in compiler_options(2), option in quick_to_compile()) == (has_it, has_it)
