"""The error of memory that does not suffice, and how much is free."""

import jax
import numpy as np
import pytest

import attsvm
from attsvm.training import memory, session
from attsvm.training.memory import Needs, out_of_memory

pytestmark = pytest.mark.slow

PROBLEM = attsvm.datasets.random_problem(3, 4, 5, seed=0)


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
    monkeypatch.setattr(session.TrainingProgram, "compiled", fail)
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

    monkeypatch.setattr(session.TrainingProgram, "compiled", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        attsvm.train(PROBLEM, steps=1)


def test_a_memory_error_of_a_callback_is_its_own():
    def fail(_):
        raise MemoryError("the list of the callback")

    with pytest.raises(MemoryError, match=r"^the list of the callback$"):
        attsvm.train(PROBLEM, steps=1, callback=fail)
