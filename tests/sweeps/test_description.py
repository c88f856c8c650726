"""The definition of a sweep as JSON: different for different sweeps, the same for equal ones."""

import functools
from dataclasses import dataclass, field

import cloudpickle
import numpy as np
import optax
import pytest

from attsvm.errors import ProblemError
from attsvm.heads import MLP
from attsvm.norms import Lp, Nuclear
from attsvm.optimizers import Rule, adam, chain, gradient_descent, normalized_gradient_descent, steepest_descent
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.description import described


@dataclass(frozen=True)
class Own(Rule):
    rate: float = field(default=0.1, compare=False, repr=False)

    def update(self, updates, state, params, *, numbers, value):
        return updates.gradient, state


def make(factor, offset=0):
    def scaled(x, base=offset):
        return scaled(x - 1) if x > 10 else factor * x + base  # recursive

    return scaled


def mlp(entry):
    hidden = np.zeros((40, 40))
    hidden[20, 20] = entry
    return MLP(hidden, np.ones(40))


def long(entry):
    array = np.zeros(5000)
    array[2500] = entry
    return array


MAKERS = {
    "rate": lambda x: normalized_gradient_descent(0.1 * x),
    "optax": lambda x: adam(0.1 * x),
    "norm": lambda x: steepest_descent(norm=Nuclear() if x == 1 else Lp(1.5)),
    "schedule": lambda x: gradient_descent(make(x)),
    "rule": lambda x: chain(Own(x)),
    "dataclass": mlp,
    "closure": make,
    "default": lambda x: make(1, x),
    "partial": lambda x: functools.partial(make, x),
    "array": long,
    "set": lambda x: {"l1", "nuclear", f"l{x}.5"},
    "lambda": lambda x: (lambda: 1, lambda: 2)[x - 1],
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_values_are_described_by_all_that_they_are(maker):
    assert described(maker(1)) == described(maker(1))
    assert described(maker(1)) != described(maker(2))
    assert described(cloudpickle.loads(cloudpickle.dumps(maker(1)))) == described(maker(1))


def test_optimizers_of_the_same_kind_of_closure_differ():
    assert described(normalized_gradient_descent(0.1)) != described(gradient_descent(0.1))


def test_an_import_path_is_described_by_what_it_refers_to(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    texts = []
    for i in (1, 2):
        (tmp_path / f"sweep_part{i}.py").write_text(f"import optax\noptimizer = optax.sgd({i})\ndef f(x): return {i}\n")
        texts.append([described(f"sweep_part{i}:{name}")[1] for name in ("optimizer", "f")])
    assert texts[0][0] != texts[1][0]
    assert texts[0][1] != texts[1][1]
    assert described("no_such:path") == "no_such:path"


@pytest.mark.parametrize("value", [optax.sgd(0.1), chain(optax.sgd(0.1)), object()])
def test_what_cannot_be_described_is_refused_by_name(value):
    with pytest.raises(ProblemError, match="optimizer: expected"):
        Definition({"dim": [2]}, ["feasible"], fixed={"optimizer": value})


def test_the_order_of_fixed_arguments_changes_nothing_and_the_block_is_kept():
    fixed = {"num_tokens": 3, "num_sequences": 2}
    one, other = (
        Definition({"dim": [2]}, ["feasible"], fixed=dict(items), block=1000, trials=1000)
        for items in (fixed.items(), reversed(fixed.items()))
    )
    assert one.hash == other.hash
    assert (one.changed(seed=1).block, one.changed(trials=100).block) == (1000, 104)


def test_an_optimizer_comes_back_from_a_worker():
    sent = steepest_descent(norm=Nuclear(), learning_rate=0.3)
    back = cloudpickle.loads(cloudpickle.dumps(sent))
    kept = ("name", "norm", "rule", "numbers", "arguments", "steps")
    assert [getattr(back, name) for name in kept] == [getattr(sent, name) for name in kept]
