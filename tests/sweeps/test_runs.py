"""Training of a block that is stopped by Ctrl-C."""

from dataclasses import replace

import pytest

import attsvm
from attsvm.datasets import random_problem
from attsvm.results import Status
from attsvm.sweeps import training


def test_an_interrupted_training_is_no_result(monkeypatch):
    problem = random_problem(2, 3, 2, 0)
    run = replace(attsvm.train(problem, steps=10), status=Status.INTERRUPTED)
    monkeypatch.setattr(training, "train", lambda *_, **__: run)
    with pytest.raises(KeyboardInterrupt):
        training.train_until_decided(problem, {"steps": 50, "record": 10}, seed=0, budget=0)
