"""Names of devices, and the error of memory that does not suffice."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import attsvm
from attsvm import fit
from attsvm._utils.devices import parse_device
from attsvm._utils.memory import _of_control_groups
from attsvm.training import loop, memory, session
from attsvm.training.memory import Needs, out_of_memory

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
    says = f"device: expected one that exists here, .*{existing} {name!r}"
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


def test_the_error_says_how_many_trials_fit():
    # (1000 - 100) / 30 = 30 trials; 100 + 50·30 = 1600 bytes
    said = str(out_of_memory("cuda:0", 1000, Needs(100, 30), 50))
    assert said == "50 trials need about 1.562 KiB on cuda:0, which has 1000 bytes available; about 30 would fit"
    assert "not even one" in str(out_of_memory("cuda:0", 90, Needs(100, 30), 50))
    assert "try 10" in str(out_of_memory("cuda:0", 1000, Needs(100, 30), 20))
    assert str(out_of_memory("cpu", 0, Needs(0, 1), 1)) == "1 trial needs about 1 bytes on cpu"


@pytest.mark.parametrize(
    "error", [jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), MemoryError()]
)
def test_training_without_enough_memory_says_how_many_trials_fit(monkeypatch, error):
    def fail(*_):
        raise error

    starts = np.zeros((7, 5, 5))
    monkeypatch.setattr(session.Program, "compiled", fail)
    monkeypatch.setattr(memory, "available", lambda device: 10_000)
    with pytest.raises(MemoryError, match=r"7 trials need .* on cpu, which has 9.766 KiB available; about 3 would fit"):
        attsvm.train(PROBLEM, init=starts, steps=1, device="cpu")


def test_a_solve_without_enough_memory_names_its_constraints(monkeypatch):
    def fail(*_):
        raise MemoryError("Unable to allocate 7.45 GiB")

    monkeypatch.setattr("attsvm.svm.solve.find_candidate", fail)
    said = r"^12 constraints on 5 × 5 weights need more memory than there is on cpu, which has .* available; try 6$"
    with pytest.raises(MemoryError, match=said):
        attsvm.solve_svm(PROBLEM, [0, 0, 0])


def test_other_errors_of_xla_are_not_changed(monkeypatch):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(session.Program, "compiled", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        attsvm.train(PROBLEM, steps=1)


def test_a_memory_error_of_a_callback_is_its_own():
    def fail(_):
        raise MemoryError("the list of the callback")

    with pytest.raises(MemoryError, match=r"^the list of the callback$"):
        attsvm.train(PROBLEM, steps=1, callback=fail)


def test_naming_the_default_device_compiles_nothing():
    attsvm.train(PROBLEM, steps=1)
    compiled = loop._compiled.cache_info().misses
    attsvm.train(PROBLEM, steps=1, device="cpu")
    assert loop._compiled.cache_info().misses == compiled


CONTROL_GROUPS = {
    "version 2": ("0::/jobs/mine", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "version 1": (
        "4:cpu,memory:/jobs/mine",
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
}


@pytest.mark.parametrize("version", CONTROL_GROUPS)
def test_control_groups_limit_the_free_memory(version, tmp_path):
    line, mount, most, used, cached = CONTROL_GROUPS[version]
    files = {"proc/self/cgroup": f"9:name=systemd:/\n{line}\n"}
    # the group of the process has no limit; the one above it has 1000 bytes, of which 700 are in use, 50 of them cached
    of_groups = {"jobs/mine": ("max", "600", "0"), "jobs": ("1000", "700", "50"), ".": ("5000", "4000", "0")}
    for group, (limit, use, cache) in of_groups.items():
        for name, content in ((most, limit), (used, use), ("memory.stat", f"anon 1\n{cached} {cache}\n")):
            files[f"{mount}/{group}/{name}"] = content
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert sorted(_of_control_groups(tmp_path)) == [350, 1000]


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
    with pytest.raises(attsvm.errors.ProblemError, match="device: expected one that exists here, 'cpu', got 'cuda:7'"):
        work("cuda:7")
