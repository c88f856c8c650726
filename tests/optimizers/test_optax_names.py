"""Optimizers of optax are known by what their functions hold."""

import inspect
import warnings

import jax
import optax
import pytest

from attsvm import optimizers, train
from attsvm.datasets import random_problem
from attsvm.optimizers.optax_names import steps_of_optax


def _factories():
    for path, module in (("optax", optax), ("optax.contrib", optax.contrib)):
        for name, found in vars(module).items():
            parameters = inspect.signature(found).parameters if inspect.isfunction(found) else {}
            required = [one.name for one in parameters.values() if one.default is one.empty]
            if (
                "learning_rate" in parameters
                and required in ([], ["learning_rate"])
                and not name.startswith("scale_by")
            ):
                yield f"{path}.{name}", found, parameters


RATE_IN_OPTIONS = ("optax.fromage", "optax.optimistic_adam")
"""They compute an option from the learning rate."""


@pytest.mark.parametrize(
    ("path", "factory", "parameters"), [*_factories()], ids=lambda x: x if isinstance(x, str) else ""
)
def test_an_optimizer_has_its_name_with_any_rate_and_none_with_other_options(path, factory, parameters):
    with warnings.catch_warnings(action="ignore"):
        without = {name: 0.0 for name in ("weight_decay",) if name in parameters}
        made = [factory(learning_rate=rate, **without) for rate in (1e-3, 7.0)]
        found = [steps_of_optax(one) for one in made]
        if path in RATE_IN_OPTIONS:
            assert {one.kind for one in found} == {"unknown"}
            return
        assert found[0].kind == found[1].kind != "unknown"
        # another name of the same steps
        module, _, name = found[0].kind.rpartition(".")
        same = getattr(optax.contrib if module == "optax.contrib" else optax, name)
        options = {name: 0.0 for name in ("weight_decay",) if name in inspect.signature(same).parameters}
        assert steps_of_optax(same(learning_rate=0.5, **options)).kind == found[0].kind
        assert [one.schedule for one in found] in ([1e-3, 7.0], [None, None])
        numbers = {
            name: one.default * 0.9 + 0.013
            for name, one in parameters.items()
            if isinstance(one.default, float) and name not in ("learning_rate", "weight_decay")
        }
        for name, number in numbers.items():
            try:
                changed = factory(learning_rate=1e-3, **without, **{name: number})
            except Exception:  # not a value of this option
                continue
            assert steps_of_optax(changed).kind != found[0].kind, name
        if without and parameters["weight_decay"].default:
            assert steps_of_optax(factory(learning_rate=1e-3)).kind == "unknown"


def test_what_is_not_such_an_optimizer_is_unknown():
    for other in (
        optax.sgd(-0.1),
        optax.chain(optax.clip(1.0), optax.adam(0.1)),
        optax.chain(optax.scale_by_adam(), optax.scale_by_learning_rate(lambda k: 0.1, flip_sign=False)),
        optax.inject_hyperparams(optax.adam)(0.1),
        optax.GradientTransformation(lambda params: (), lambda updates, state, params=None: (updates, state)),
    ):
        assert steps_of_optax(other).kind == "unknown"
    scheduled = steps_of_optax(optax.adam(optax.cosine_decay_schedule(0.1, 100)))
    assert (scheduled.kind, scheduled.schedule) == ("optax.adam", None)


def test_only_normalization_keeps_the_name():
    adam = optimizers.normalized(optax.adam(0.1)).steps
    assert (adam.kind, adam.normalised, adam.norm, adam.schedule) == ("optax.adam", "step", None, 0.1)
    assert str(adam) == "normalized optax.adam"
    assert optimizers.normalized(optax.adam(0.1), norm="linf").steps.kind == "unknown"
    assert optimizers.momentum(optax.adam(0.1)).steps.kind == "unknown"
    named = optimizers.chain(optax.adam(0.1), name="mine").steps
    assert (named.kind, named.normalised) == ("optax.adam", "no")


def test_keys_of_random_numbers_are_options():
    assert steps_of_optax(optax.noisy_sgd(0.1, key=jax.random.key(3))).kind == "unknown"
    problem = random_problem(2, 3, 4, seed=0)
    assert train(problem, optimizer=optax.noisy_sgd(0.1, key=jax.random.key(3)), steps=5).steps == 5
