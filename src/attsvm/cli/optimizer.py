"""The optimiser that a command line describes."""

import inspect
from collections.abc import Mapping
from typing import Any

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError
from attsvm.optimizers import OPTIMIZERS, gradient_descent, optimizer_options, parse_optimizer


def find_optimizer(name: str | None, learning_rate: float | None, options: Mapping[str, Any]) -> Any:
    """Make an optimiser from its options.

    ``name``: a registered name, or an import path ``package.module:name``. None is normalised gradient descent if there
    is any option. ``options``: values of ``--option``; by ``growth`` among them, step k is multiplied by 1 + growth·k.

    Returns None if neither a name nor an option is given: the default of :func:`attsvm.train`. Raises ProblemError if
    there is no such optimiser, or an option is missing, unknown or not valid.
    """
    if learning_rate is not None and "learning_rate" in options:
        raise ProblemError("--learning-rate, --option learning_rate: expected only one of them")
    options = {**options} if learning_rate is None else {"learning_rate": learning_rate, **options}
    growth = check_number("--option growth", options.pop("growth", 0), "a number >= 0", lambda x: x >= 0)
    if name is None and not options and not growth:
        return None
    if growth:
        options["learning_rate"] = _growing(name or "normalized_gradient_descent", options.get("learning_rate"), growth)
    return parse_optimizer(name, **options)


def optimizer_help() -> str:
    """Every known optimiser that needs no other one, with its options, as a Markdown list."""
    lines = []
    for name, found in OPTIMIZERS.items():
        if callable(found) and "inner" in inspect.signature(found).parameters:
            continue
        options = ", ".join(f"`{option}`" for option in optimizer_options(name))
        lines.append(f"- `{name}`: {options or 'no options'}")
    return "\n".join(lines)


def _growing(name: str, learning_rate: Any, growth: float) -> Any:
    """A schedule that starts at the learning rate and grows linearly."""
    parameter = optimizer_options(name).get("learning_rate")
    if learning_rate is None and parameter is not None:
        learning_rate = parameter.default
    if callable(learning_rate):
        raise ProblemError(
            f"--option growth: expected an optimiser with a constant learning rate, got {name} with a schedule"
        )
    rate: Any = 1.0 if learning_rate is None else gradient_descent(learning_rate).numbers["learning_rate"]

    def schedule(step: Any) -> Any:
        return rate * (1 + growth * step)

    return schedule
