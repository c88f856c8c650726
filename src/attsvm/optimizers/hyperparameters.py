"""Checks of learning rates and the like, which may be numbers that JAX traces, as by ``optax.inject_hyperparams``."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attsvm._utils import checks


def check_number(name: str, value: Any, expected: str, fits: Callable[[float], bool] = lambda number: True) -> Any:
    """The value as a finite real number that ``fits`` accepts; a traced number as it is, because it is not known yet.

    Raises ProblemError if it is not one.
    """
    return value if is_traced(value) and jnp.ndim(value) == 0 else checks.check_number(name, value, expected, fits)


def check_positive(name: str, value: Any) -> Any:
    """The value as a positive finite number, or as a traced one; raises ProblemError if it is neither."""
    return check_number(name, value, "a positive number", lambda number: number > 0)


def is_traced(value: Any) -> bool:
    """Whether the value is known only when the compiled function runs."""
    return isinstance(value, jax.core.Tracer)


def is_used(value: Any) -> bool:
    """Whether an optional part has a number other than 0, or one that may change.

    ``optax.inject_hyperparams`` makes the state with an array and steps with a traced one. Both need the same parts.
    """
    return isinstance(value, jax.Array) or bool(value)
