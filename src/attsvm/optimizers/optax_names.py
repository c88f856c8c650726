"""The name of an optimiser of optax, which the transformation itself does not have."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import jax
import numpy as np
import optax

from attsvm.optimizers.steps import Steps

_LENGTH = ("learning_rate", "step_size")
"""What optax calls the length of steps in its closures; it does not tell optimisers apart."""


def steps_of_optax(transformation: optax.GradientTransformation) -> Steps:
    """The steps of an optimiser of optax with its default options, but without weight decay: their kind is its path.

    The learning rate may be any positive number or any schedule, of which nothing is known. Steps of any other
    transformation are of unknown kind.

    Examples
    --------
    >>> import optax
    >>> from attsvm.optimizers.optax_names import steps_of_optax
    >>> [steps_of_optax(one).kind for one in (optax.adam(1e-3), optax.adam(1e-3, b1=0.8), optax.adamw(1e-3))]
    ['optax.adam', 'unknown', 'unknown']
    """
    lengths: list[Any] = []
    name = _names().get(_written(tuple(transformation), lengths))
    numbers = {abs(float(length)) for length in lengths if not callable(length)}
    rate = numbers.pop() if len(numbers) == 1 and not any(map(callable, lengths)) else None
    return Steps() if name is None else Steps(name, schedule=rate)


@cache
def _names() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name, factory in _factories():
        options = {"weight_decay": 0.0} if "weight_decay" in inspect.signature(factory).parameters else {}
        for rate in (0.1, lambda count: 0.1):
            # it may need further arguments, take no schedules, or warn of its age
            with suppress(Exception), warnings.catch_warnings(action="ignore"):
                found.setdefault(_written(tuple(factory(learning_rate=rate, **options)), []), name)
    return found


def _factories() -> Iterator[tuple[str, Any]]:
    for path, module in (("optax", optax), ("optax.contrib", optax.contrib)):
        for name, function in sorted(vars(module).items()):
            if inspect.isfunction(function) and "learning_rate" in inspect.signature(function).parameters:
                yield f"{path}.{name}", function


def _written(x: Any, lengths: list[Any]) -> Any:
    """Write a function by its code, defaults and closure, to compare it; collect lengths, and write their signs."""
    x = inspect.unwrap(x) if callable(x) else x
    if inspect.isfunction(x):
        closure = sorted(inspect.getclosurevars(x).nonlocals.items())
        lengths += (y for name, y in closure if name in _LENGTH)
        inside = [(name, _sign(y) if name in _LENGTH else _written(y, lengths)) for name, y in closure]
        return x.__module__, x.__qualname__, tuple(inside), _written((x.__defaults__, x.__kwdefaults__), lengths)
    x = sorted(x.items()) if isinstance(x, dict) else x
    if isinstance(x, list | tuple):
        return tuple(_written(y, lengths) for y in x)
    if isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return x if isinstance(x, str | int | float | None) else str(np.asarray(x)) if isinstance(x, jax.Array) else repr(x)


def _sign(length: Any) -> Any:
    return "schedule" if callable(length) else float(np.sign(length))
