"""How the arguments of optimizers are read."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attsvm._utils.checks import as_number
from attsvm.errors import ProblemError
from attsvm.optimizers.scales import Scope


def _positive(number: float) -> bool:
    return bool(0 < number < np.inf)


def read_number(name: str, value: Any, expected: str, fits: Callable[[float], bool] = _positive) -> float:
    """Read a number; raise ProblemError if it is not a number, or does not fit."""
    number = as_number(value)
    if not fits(number):
        raise ProblemError(f"{name}: expected {expected}, got {value!r}")
    return number


def read_scope(scope: str) -> Scope:
    """Read a scope, "all" or "each"; raise ProblemError if it is neither."""
    if scope == "all":
        return "all"
    if scope == "each":
        return "each"
    raise ProblemError(f'scope: expected "all" or "each", got {scope!r}')
