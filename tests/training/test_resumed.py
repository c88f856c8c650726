"""A run that is resumed keeps its settings: it is the run that was not interrupted."""

import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, Run, train
from attsvm.datasets import random_problem
from attsvm.heads import Quadratic
from attsvm.results import NOT_RECORDED

PROBLEM = random_problem(4, 5, 3, seed=0)


def own_loss(margin):
    return (1 - margin) ** 2


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "exponential"},
        {"penalty": 0.05},
        {"batch_size": 2, "seed": 3},
        {"train_head": True},
        {"train_head": True, "penalty": 0.05, "loss": "linear"},
        {"dtype": "float32"},
        {"attention": "factored", "rank": 2},
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_a_resumed_run_equals_one_that_was_not_interrupted(settings, saved, tmp_path):
    first, whole = (train(PROBLEM, steps=steps, **settings) for steps in (6, 12))
    if saved:
        first.save(tmp_path / "run.npz")
        first = Run.load(tmp_path / "run.npz")
    further = train(PROBLEM, init=first, steps=6)
    for name, x in whole.parameters.items():
        np.testing.assert_array_equal(further.parameters[name], x)
    for name in ("loss_name", "penalty", "batch_size", "seed", "dtype", "loss"):
        assert getattr(further, name) == getattr(whole, name)


def test_a_setting_that_no_file_holds_has_to_be_given(tmp_path):
    run, whole = (train(PROBLEM, loss=own_loss, head=Quadratic(0.1), steps=steps) for steps in (6, 12))
    np.testing.assert_array_equal(train(PROBLEM, init=run, steps=6).weights, whole.weights)
    run.save(tmp_path / "run.npz")
    with pytest.raises(ProblemError, match=r"^loss: expected that of the run that is resumed"):
        train(PROBLEM, init=Run.load(tmp_path / "run.npz"), steps=6)
    with pytest.raises(ProblemError, match=r"^head: quadratic needs arguments; pass an object"):
        train(PROBLEM, init=Run.load(tmp_path / "run.npz"), loss=own_loss, steps=6)


def test_settings_that_changed_have_to_be_given_again_and_a_trained_head_stays_trained():
    mixed = train(PROBLEM, init=train(PROBLEM, steps=6), penalty=0.05, steps=6)
    assert mixed.penalty == NOT_RECORDED
    with pytest.raises(ProblemError, match=r"^penalty: expected one"):
        train(PROBLEM, init=mixed, steps=6)
    assert train(PROBLEM, init=mixed, penalty=0.0, steps=6).step == 18
    joint = train(PROBLEM, train_head=True, steps=6)
    with pytest.raises(ProblemError, match=r"^train_head: expected True"):
        train(PROBLEM, init=joint, train_head=False)
    stack = attsvm.Stack(PROBLEM, layers=2)
    first, whole = (stack.train(steps=steps, loss="exponential", batch_size=2, seed=3) for steps in (6, 12))
    np.testing.assert_array_equal(stack.train(init=first, steps=6).weights["W0"], whole.weights["W0"])
