"""What is known of the steps of an optimizer, written to files and read again."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attsvm import optimizers
from attsvm.norms import Lp, OnColumns
from attsvm.norms.factors import Gamma2
from attsvm.optimizers import Decaying, Growing, Limit, Steps, configuration, converted
from attsvm.optimizers.limit import read_limit, written_limit


def test_steps_are_written_and_read():
    for schedule in (0.1, Decaying(0.02, 100, 0.6), Growing(), None):
        steps = Steps("steepest", OnColumns(Lp(np.inf)), "step", 0.9, "kq", "short", True, schedule, True)
        limit = Limit(Gamma2(), steps, 2)
        assert read_limit(json.loads(json.dumps(written_limit(limit)))) == limit


@pytest.mark.parametrize(
    ("name", "optimizer", "attention", "heads", "groups"),
    [
        ("gradient descent", optimizers.gradient_descent(), "combined", None, None),
        ("normalized gradient descent", optimizers.normalized_gradient_descent(average=0.9), "prompt", None, None),
        ("each factor", optimizers.normalized_gradient_descent(scope="each"), "factored", None, None),
        ("adam on factors", optimizers.adam(), "factored", None, None),
        ("nu, short", optimizers.steepest_descent(norm="linf"), "factored", None, None),
        ("fused_heads on factors", optimizers.spectral_descent(scope="fused"), "factored", 2, None),
        ("max over heads of gamma2, shared keys", optimizers.row_descent(), "factored", 2, 1),
        (
            "spectral on factors, momentum",
            optimizers.momentum(optimizers.spectral_descent(), 0.5),
            "factored",
            None,
            None,
        ),
    ],
)
def test_steps_of_files_of_earlier_versions_are_those_of_today(name, optimizer, attention, heads, groups):
    limit, made = optimizer.limit(attention, heads, groups), configuration(optimizer)
    old = {"limit": {**written_limit(limit), "steps": name}, "attention": attention, "optimizer_config": made}
    assert read_limit(converted({**old, "schedule": "constant"})["limit"]) == limit
    # these files have the norm of the optimizer as that of the run
    assert converted({**old, "norm": None})["norm"] == written_limit(limit)["norm"]
    # version 0.2 had no schedules, and of an optimizer that is imported nothing is known before it is
    assert read_limit(converted(old)["limit"]).steps == replace(limit.steps, schedule=None)
    for imported in ({"name": "os:getcwd", "arguments": {}}, {"name": "momentum", "arguments": {"inner": "os:getcwd"}}):
        assert read_limit(converted({**old, "optimizer_config": imported})["limit"]).steps.kind == "unknown"
