"""Names of devices, and the error of memory that does not suffice."""

import jax
import numpy as np
import pytest

import attsvm
from attsvm.devices import Needs, out_of_memory, parse_device
from attsvm.training import memory, session

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


def test_other_errors_of_xla_are_not_changed(monkeypatch):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(session.Program, "compiled", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        attsvm.train(PROBLEM, steps=1)
